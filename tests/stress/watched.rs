//! A waiter that knows, after it has left, whether its call had been decided.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use tollgate::{Acquire, Error, Queue};

use crate::support::until;

/// Nanoseconds by the operating system's clock.
pub(crate) fn now() -> i64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(ORIGIN.elapsed().as_nanos()).expect("less than a life")
}

/// Forwards the wake-up, and records it: the queue wakes exactly when it has decided.
#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Bell {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        assert!(!self.rung.swap(true, Ordering::SeqCst), "woken twice");
        let waiting = self.waiting().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

pub(crate) struct Watched<L: Queue> {
    acquire: Acquire<L>,
    bell: Arc<Bell>,
    waker: Waker,
    /// A time at which it was certainly queued.
    entered: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The call was decided before it left.
    Heard,
    NeverCame,
    Undecided,
    Decided,
}

impl<L: Queue> Watched<L> {
    pub(crate) fn new(acquire: Acquire<L>) -> Self {
        let bell = Arc::<Bell>::default();
        Self { acquire, waker: Waker::from(Arc::clone(&bell)), bell, entered: None }
    }

    pub(crate) fn entered(&self) -> i64 {
        self.entered.unwrap_or_else(now)
    }

    /// Drops the future, which is not ready yet.
    pub(crate) fn leave(self) -> Left {
        let Self { acquire, bell, waker, entered } = self;
        drop(acquire);
        drop(waker);
        if entered.is_none() {
            return Left::NeverCame;
        }
        // Another thread may have taken the waker out of the queue, and not called it yet.
        until(|| Arc::strong_count(&bell) == 1);
        fence(Ordering::Acquire);
        if bell.rung.load(Ordering::SeqCst) { Left::Decided } else { Left::Undecided }
    }
}

impl<L: Queue> Future for Watched<L> {
    type Output = Result<L::Grant, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        *self.bell.waiting() = Some(context.waker().clone());
        let Self { acquire, waker, entered, .. } = &mut *self;
        let polled = Pin::new(acquire).poll(&mut Context::from_waker(waker));
        entered.get_or_insert_with(now);
        polled
    }
}
