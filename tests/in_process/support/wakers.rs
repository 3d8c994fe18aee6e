//! Wakers that do more than wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// Counts its calls.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicUsize);

impl Count {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), Waker::from(count))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Does something when it is called.
pub(crate) struct OnWake<F>(F);

impl<F: Fn() + Send + Sync + 'static> OnWake<F> {
    pub(crate) fn waker(act: F) -> Waker {
        Waker::from(Arc::new(Self(act)))
    }
}

impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Owns something that goes when the last copy of the waker goes.
pub(crate) struct Owner<T>(T);

impl<T: Send + Sync + 'static> Owner<T> {
    pub(crate) fn waker(owned: T) -> Waker {
        Waker::from(Arc::new(Self(owned)))
    }
}

impl<T: Send + Sync + 'static> Wake for Owner<T> {
    fn wake(self: Arc<Self>) {}
}
