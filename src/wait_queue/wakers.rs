//! Whom a queue wakes after the lock is released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use smallvec::SmallVec;

use crate::clock::{Alarm, TimerTask, wake_each};
use crate::units::Nanos;

/// A call wakes one caller at most, or many.
pub(super) type WakeList = SmallVec<[Waker; 2]>;

#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// Made when a caller first waits.
    pub(super) alarm: Option<Alarm>,
    /// The time that the alarm is set for, if it is: never later than the next event. It goes off up to the clock's slack later.
    pub(super) armed: Option<Nanos>,
    /// Whether a caller has joined or was polled since the last [`arm`](super::WaitQueue::arm), by the same thread: the alarm
    /// has to go off there.
    pub(super) polled_since_armed: bool,
    /// Whether callers wait and nothing is due that a clock can come to. Callers that are polled then cannot move one
    /// that advances by itself.
    pub(super) no_next_event: bool,
    /// To be woken when nothing is left to wait for.
    pub(super) draining: Vec<Waker>,
    /// To be woken after the lock is released.
    pub(super) wake: WakeList,
    /// To be woken by the first of those that are woken.
    #[cfg(feature = "redis")]
    pub(super) deferred: Vec<Waker>,
    /// To be dropped after the lock is released.
    pub(super) discard: Vec<Waker>,
}

impl Wakers {
    pub(super) fn discard(&mut self, waker: Waker) {
        if !waker.will_wake(Waker::noop()) {
            self.discard.push(waker);
        }
    }
}

/// What is left to do after the lock is released.
#[must_use]
#[derive(Default)]
pub(crate) struct AfterUnlock {
    pub(super) timer_task: Option<TimerTask>,
    pub(super) wake: WakeList,
    /// Dropped last.
    pub(super) discard: Vec<Waker>,
}

impl AfterUnlock {
    /// A panic of a waker is not for the caller whose call wakes it: what that call returns would be lost.
    #[inline]
    pub(crate) fn run(self) {
        if self.timer_task.is_some() || !self.wake.is_empty() || !self.discard.is_empty() {
            self.run_all();
        }
    }

    #[inline(never)]
    fn run_all(mut self) {
        if let Some(task) = self.timer_task {
            task();
        }
        let _ = catch_unwind(AssertUnwindSafe(|| {
            wake_each(&mut self.wake.drain(..));
            drop(self.discard);
        }));
    }

    /// Adds the wakers to `wake` instead of waking.
    pub(crate) fn run_without_waking(mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.wake.drain(..));
        self.run();
    }
}
