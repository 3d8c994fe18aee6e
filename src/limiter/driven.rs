//! A caller with several queues before it, which goes on from one to the next without being polled.
//!
//! The thread that wakes it polls it: one thread at a time, and as often again as it is woken meanwhile.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use super::Granted;
use crate::clock::{Woken, go_on_in_turn, in_turn};
use crate::error::Error;
use crate::sync::Mutex;
use crate::unwinding::in_drop;

/// Drives a future by its own wake-ups. A caller that was granted by the first of two limiters must ask the second
/// one at once: while it waited to be polled, it would hold a place for which others wait, and would have none in
/// the queue of the second.
pub struct Driven<F: Passage<G>, G: Granted + 'static> {
    task: Arc<Task<F, G>>,
    is_kept: bool,
}

/// A future that passes several queues.
pub trait Passage<G>: Future<Output = Result<G, Error>> + Unpin + Send + 'static {}

impl<G, F: Future<Output = Result<G, Error>> + Unpin + Send + 'static> Passage<G> for F {}

struct Task<F, G> {
    /// How many times it was to be driven since a thread began to. Only that thread locks the future.
    rounds: AtomicUsize,
    future: Mutex<Option<F>>,
    end: Mutex<End<G>>,
}

enum End<G> {
    Pending(Option<Waker>),
    Ready(Result<G, Error>),
    /// The outcome was taken, or the caller has left.
    Over,
}

impl<F: Passage<G>, G: Granted> Driven<F, G> {
    pub(crate) fn new(future: F) -> Self {
        let task = Arc::new(Task {
            rounds: AtomicUsize::new(0),
            future: Mutex::new(Some(future)),
            end: Mutex::new(End::Pending(None)),
        });
        in_turn(|| task.drive());
        Self { task, is_kept: false }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<G, Error>> {
        self.task.keep_waker(context.waker());
        in_turn(|| self.task.drive());
        let mut end = self.task.end.lock();
        match mem::replace(&mut *end, End::Over) {
            End::Ready(outcome) => Poll::Ready(outcome),
            pending @ End::Pending(_) => {
                *end = pending;
                Poll::Pending
            }
            End::Over => panic!("`Acquire` polled after it was ready"),
        }
    }

    /// It goes on without its caller. What is granted stays charged.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Looks at the future. `None` if it is over, or is just being driven by another thread.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&F) -> R) -> Option<R> {
        let Task { rounds, future, .. } = &*self.task;
        // A look at a queue can grant: what wakes the future drives it afterwards, not below the lock.
        rounds.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).ok()?;
        let mut seen = None;
        in_turn(|| self.task.go_round(|| seen = future.lock().as_ref().map(look)));
        seen
    }
}

impl<F: Passage<G>, G: Granted + 'static> Task<F, G> {
    fn keep_waker(&self, waker: &Waker) {
        let mut end = self.end.lock();
        if let End::Pending(kept) = &mut *end
            && !kept.as_ref().is_some_and(|kept| kept.will_wake(waker))
        {
            let old = kept.replace(waker.clone());
            drop(end);
            // It may own anything, also a caller whose leaving wakes this one.
            drop(old);
        }
    }

    /// Polls the future, unless another thread does, or this one further up: that one polls it once more.
    fn drive(self: &Arc<Self>) {
        if self.rounds.fetch_add(1, Ordering::AcqRel) == 0 {
            self.go_round(|| self.drive_once());
        }
    }

    /// Acts, and polls the future as often as it was to be driven meanwhile. Wakers and what they own may panic: the
    /// rounds end all the same.
    fn go_round(self: &Arc<Self>, act: impl FnOnce()) {
        let mut panicked = catch_unwind(AssertUnwindSafe(act)).err();
        let mut rounds = 1;
        while let Err(more) =
            self.rounds.compare_exchange(rounds, 0, Ordering::AcqRel, Ordering::Acquire)
        {
            rounds = more;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.drive_once())) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(panic) = panicked
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    fn drive_once(self: &Arc<Self>) {
        let mut slot = self.future.lock();
        let Some(future) = &mut *slot else { return };
        // If the caller has left meanwhile, so does the future.
        let has_left = matches!(*self.end.lock(), End::Over);
        let mut outcome = None;
        if !has_left {
            let waker = Waker::from(Arc::clone(self));
            match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => return,
                Poll::Ready(ready) => outcome = Some(ready),
            }
        }
        let passed = slot.take();
        drop(slot);
        let mut end = self.end.lock();
        if let (Some(_), End::Pending(waker)) = (&outcome, &mut *end) {
            let waker = waker.take();
            *end = outcome.map_or(End::Over, End::Ready);
            drop(end);
            waker.into_iter().for_each(Waker::wake);
        } else {
            drop(end);
            // The caller has left before it learned of its grant.
            outcome.into_iter().flatten().for_each(Granted::refund);
        }
        // Last: to leave a queue may wake others.
        drop(passed);
    }

    /// The queue that it has joined here sounds its alarm here, until the caller asks elsewhere.
    fn wake_caller(&self) {
        let waker = match &mut *self.end.lock() {
            End::Pending(waker) => waker.take(),
            End::Ready(_) | End::Over => None,
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<F: Passage<G>, G: Granted + 'static> Wake for Task<F, G> {
    fn wake(self: Arc<Self>) {
        go_on_in_turn(self);
    }
}

impl<F: Passage<G>, G: Granted + 'static> Woken for Task<F, G> {
    fn go_on(self: Arc<Self>) {
        let driven = catch_unwind(AssertUnwindSafe(|| self.drive()));
        self.wake_caller();
        driven.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl<F: Passage<G>, G: Granted + 'static> Drop for Driven<F, G> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let end = mem::replace(&mut *self.task.end.lock(), End::Over);
        match end {
            End::Ready(outcome) => in_drop(|| outcome.into_iter().for_each(Granted::refund)),
            // If a thread drives it just now, that thread drops it.
            End::Pending(_) | End::Over => in_turn(|| self.task.drive()),
        }
    }
}

impl<F: Passage<G>, G: Granted + 'static> fmt::Debug for Driven<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}
