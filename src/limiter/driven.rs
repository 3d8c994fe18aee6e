//! A caller with several queues before it, which goes on from one to the next without being polled.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
pub(crate) struct Driven<F: Passage> {
    task: Arc<Task<F>>,
}

/// A future that passes several queues.
pub trait Passage: Future<Output = Result<Self::Grant, Error>> + Unpin + Send + 'static {
    type Grant: Granted + 'static;
}

struct Task<F: Passage> {
    /// How many times it was to be driven since a thread began to. Only that thread locks the future for longer than
    /// a look.
    rounds: AtomicUsize,
    /// It was woken where its caller may not be.
    is_woken: AtomicBool,
    future: Mutex<Option<F>>,
    end: Mutex<End<F::Grant>>,
}

enum End<G> {
    Pending(Option<Waker>),
    Ready(thread::Result<Result<G, Error>>),
    /// The outcome was taken, or the caller has left.
    Over,
    /// The caller has left, and what is granted is for it all the same.
    Kept,
}

impl<F: Passage> Driven<F> {
    pub(crate) fn new(future: F) -> Self {
        let task = Arc::new(Task {
            rounds: AtomicUsize::new(0),
            is_woken: AtomicBool::new(false),
            future: Mutex::new(Some(future)),
            end: Mutex::new(End::Pending(None)),
        });
        in_turn(|| task.drive());
        Self { task }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.task.keep_waker(context.waker());
        in_turn(|| self.task.drive_for_caller());
        let mut end = self.task.end.lock();
        match mem::replace(&mut *end, End::Over) {
            End::Ready(outcome) => {
                drop(end);
                Poll::Ready(outcome.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            pending @ End::Pending(_) => {
                *end = pending;
                Poll::Pending
            }
            End::Over | End::Kept => panic!("`Acquire` polled after it was ready"),
        }
    }

    /// It goes on without its caller. What is granted stays charged.
    pub(super) fn keep(self) {
        let end = mem::replace(&mut *self.task.end.lock(), End::Kept);
        drop(end);
    }

    /// Looks at the future. `None` if it is over, or is just being driven by another thread.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&F) -> R) -> Option<R> {
        let Task { rounds, future, .. } = &*self.task;
        // A look at a queue can grant: what wakes the future drives it afterwards, not below the lock.
        rounds.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).ok()?;
        let seen = catch_unwind(AssertUnwindSafe(|| future.lock().as_ref().map(look)));
        let waited = rounds.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire);
        if let Err(rounds) = waited {
            in_turn(|| self.task.drive_from(rounds));
        }
        seen.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<F: Passage> Task<F> {
    fn keep_waker(&self, waker: &Waker) {
        let mut end = self.end.lock();
        let End::Pending(kept) = &mut *end else { return };
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            let old = kept.replace(waker.clone());
            drop(end);
            // It may own anything, also a caller whose leaving wakes this one.
            drop(old);
        }
    }

    fn drive(self: &Arc<Self>) {
        if self.rounds.fetch_add(1, Ordering::AcqRel) == 0 {
            self.drive_from(1);
        }
        // Else another thread drives it, or this one further up: it goes round once more.
    }

    /// The queue's alarm has to go off where the caller is. If another thread drives it just now, that thread sets the alarm
    /// there, so it wakes the caller to come again.
    fn drive_for_caller(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if self.rounds.fetch_add(1, Ordering::AcqRel) == 0 {
            self.is_woken.store(false, Ordering::Release);
            self.drive_from(1);
        }
    }

    fn drive_from(self: &Arc<Self>, mut rounds: usize) {
        let waker = Waker::from(Arc::clone(self));
        let mut panicked = None;
        loop {
            let mut context = Context::from_waker(&waker);
            // Wakers and what they own may panic, and a policy when the future leaves: the rounds end all the same.
            let driven = catch_unwind(AssertUnwindSafe(|| self.drive_once(&mut context)));
            if let Err(panic) = driven {
                panicked.get_or_insert(panic);
            }
            match self.rounds.compare_exchange(rounds, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(more) => rounds = more,
            }
        }
        if let Some(panic) = panicked
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    fn drive_once(&self, context: &mut Context<'_>) {
        let mut future = self.future.lock();
        if matches!(*self.end.lock(), End::Over) {
            // The caller has left meanwhile.
            let left = future.take();
            drop(future);
            return drop(left);
        }
        let Some(current) = &mut *future else { return };
        // A policy may panic: that is for the caller, not for the thread that woke it.
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(current).poll(context)));
        let outcome = match polled {
            Ok(Poll::Pending) => {
                drop(future);
                if self.is_woken.swap(false, Ordering::AcqRel) {
                    self.wake_caller();
                }
                return;
            }
            Ok(Poll::Ready(outcome)) => Ok(outcome),
            Err(panic) => Err(panic),
        };
        let passed = future.take();
        drop(future);
        let mut end = self.end.lock();
        match mem::replace(&mut *end, End::Over) {
            End::Pending(waker) => {
                *end = End::Ready(outcome);
                drop(end);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            End::Kept => {
                drop(end);
                drop(outcome);
            }
            End::Ready(_) | End::Over => {
                drop(end);
                give_back(outcome);
            }
        }
        // Last: after a panic it leaves its queue here, and its policy may panic again.
        drop(passed);
    }

    /// The queue that it has joined here sounds its alarm here, until the caller asks elsewhere.
    fn wake_caller(&self) {
        let waker = match &mut *self.end.lock() {
            End::Pending(waker) => waker.take(),
            End::Ready(_) | End::Over | End::Kept => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The caller has left before it learned of its grant.
fn give_back<G: Granted>(outcome: thread::Result<Result<G, Error>>) {
    if let Ok(Ok(grant)) = outcome {
        grant.refund();
    }
}

impl<F: Passage> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        go_on_in_turn(self);
    }
}

impl<F: Passage> Woken for Task<F> {
    fn go_on(self: Arc<Self>) {
        self.drive();
    }
}

impl<F: Passage> Drop for Driven<F> {
    fn drop(&mut self) {
        let mut end = self.task.end.lock();
        if matches!(*end, End::Kept) {
            return;
        }
        let outcome = mem::replace(&mut *end, End::Over);
        drop(end);
        if let End::Ready(outcome) = outcome {
            return in_drop(|| give_back(outcome));
        }
        // If a thread drives it just now, that thread drops it.
        in_turn(|| self.task.drive());
    }
}

impl<F: Passage> fmt::Debug for Driven<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}
