//! The inner service of calls that wait: whichever is granted next calls it, when it is ready.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use tower_service::Service;

use crate::sync::Mutex;

/// A service that several calls use, one at a time. So it need not be `Clone`, and each has it for a moment only.
pub(super) struct Inner<S>(Arc<Shared<S>>);

struct Shared<S> {
    service: Mutex<S>,
    waiting: Arc<Waiting>,
}

/// Those that wait until the service is ready, which keeps one waker only.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn enter(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn leave(&self, waker: &Waker) {
        let left = self.0.lock().extract_if(.., |other| other.will_wake(waker)).collect::<Vec<_>>();
        // A waker may own anything.
        drop(left);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = mem::take(&mut *self.0.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<S> Inner<S> {
    pub(super) fn new(service: S) -> Self {
        Self(Arc::new(Shared { service: Mutex::new(service), waiting: Arc::default() }))
    }

    /// Another handle of the same service.
    pub(super) fn handle(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(super) fn poll_ready<R>(&self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<R>,
    {
        self.poll_with(context, |_| ())
    }

    /// Calls it as soon as it is ready.
    pub(super) fn poll_call<R>(
        &self,
        context: &mut Context<'_>,
        request: &mut Option<R>,
    ) -> Poll<Result<S::Future, S::Error>>
    where
        S: Service<R>,
    {
        self.poll_with(context, |service| {
            service.call(request.take().unwrap_or_else(|| unreachable!("it is called once")))
        })
    }

    fn poll_with<R, T>(
        &self,
        context: &mut Context<'_>,
        then: impl FnOnce(&mut S) -> T,
    ) -> Poll<Result<T, S::Error>>
    where
        S: Service<R>,
    {
        let Shared { service, waiting } = &*self.0;
        waiting.enter(context.waker());
        let waker = Waker::from(Arc::clone(waiting));
        let mut service = service.lock();
        let ready = ready!(service.poll_ready(&mut Context::from_waker(&waker)));
        let called = ready.map(|()| then(&mut service));
        drop(service);
        waiting.leave(context.waker());
        Poll::Ready(called)
    }
}

/// A clone of the service.
impl<S: Clone> Clone for Inner<S> {
    fn clone(&self) -> Self {
        Self::new(self.0.service.lock().clone())
    }
}

impl<S: fmt::Debug> fmt::Debug for Inner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.service.lock().fmt(f)
    }
}
