//! Alarms: a clock calls a limiter at a time.
//!
//! A clock has a list of [`Alarms`] in the order of their times. The thread of the system's clock takes out what is due
//! ([`timer_thread`](super::timer_thread)), or the caller that moves a manual clock does. Tokio's clock has no list: a runtime
//! with its own time has a task for each limiter ([`tokio`](super::tokio)), and all other callers use an alarm of the system's clock.

use std::fmt::Debug;
use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, Weak};
use std::task::Waker;

use slab::Slab;

use super::time_order::{TimeOrder, Timed};
use crate::units::Nanos;
use crate::unwinding::{WakerList, caught};

/// Keep this many free entries; after a crowd has left, give the memory back.
pub(crate) const KEEP: usize = 1024;

/// What a clock calls: a limiter with waiting callers.
pub(crate) trait OnAlarm: Send + Sync {
    /// The alarm went off. Adds the callers to be woken to `after`, or wakes them. Returns how many continue to wait.
    fn on_alarm(self: Arc<Self>, after: &mut AfterUnlock) -> usize;

    /// The alarm cannot be relied on: wakes all callers, if there are any, each of which looks for itself.
    #[cfg(feature = "tokio")]
    fn wake_all(self: Arc<Self>) {}
}

/// Calls a limiter whose alarm went off, where no caller is to get its panic. Adds the callers to be woken to
/// `after`, and returns how many continue to wait.
pub(super) fn sound_in_round(line: &Weak<dyn OnAlarm>, after: &mut AfterUnlock) -> usize {
    // The last handle on a limiter may be dropped in here too, and with it values of its user.
    caught(|| line.upgrade().map_or(0, |line| line.on_alarm(after))).unwrap_or(0)
}

/// The same for one limiter alone.
pub(super) fn sound(line: &Weak<dyn OnAlarm>) {
    let mut after = AfterUnlock::default();
    sound_in_round(line, &mut after);
    after.run();
}

/// Starts the task of a tokio runtime that sounds an alarm there. Called without a lock.
#[cfg(feature = "tokio")]
pub(crate) type TimerTask = Box<dyn FnOnce() + Send>;

/// What is left to do after the lock of a limiter is released. It is run and never dropped: each place that may unwind would
/// have the code for that.
#[must_use]
#[derive(Default)]
pub(crate) struct AfterUnlock {
    /// To be woken. A call seldom wakes two, so the first one needs no list.
    first: ManuallyDrop<Option<Waker>>,
    more: ManuallyDrop<Option<Box<More>>>,
}

#[derive(Default)]
pub(crate) struct More {
    /// To be called, as a manual clock has moved past its alarm.
    pub(crate) missed: Option<Weak<dyn OnAlarm>>,
    #[cfg(feature = "tokio")]
    pub(crate) timer_task: Option<TimerTask>,
    /// To be woken after the first.
    pub(crate) others: WakerList,
    /// To be dropped after all are woken.
    discard: WakerList,
}

impl AfterUnlock {
    #[inline(never)]
    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_none()
    }

    pub(crate) fn wake(&mut self, waker: Waker) {
        if waker.will_wake(no_waker()) {
            return;
        }
        match *self.first {
            None => *self.first = Some(waker),
            Some(_) => self.more().others.push(waker),
        }
    }

    pub(crate) fn wake_all(&mut self, wakers: &mut Vec<Waker>) {
        if !wakers.is_empty() {
            self.more().others.append(wakers);
        }
    }

    pub(crate) fn discard(&mut self, waker: Waker) {
        if !waker.will_wake(no_waker()) {
            self.more().discard.push(waker);
        }
    }

    #[inline]
    pub(crate) fn run(self) {
        if !self.is_empty() {
            self.run_all();
        }
    }

    #[inline(never)]
    fn run_all(self) {
        if let Some(first) = ManuallyDrop::into_inner(self.first) {
            wake_one(first);
        }
        let Some(mut more) = ManuallyDrop::into_inner(self.more) else { return };
        #[cfg(feature = "tokio")]
        if let Some(task) = more.timer_task.take() {
            task();
        }
        if let Some(line) = &more.missed {
            sound(line);
        }
        wake_each(&mut more.others);
    }

    /// Adds the wakers to others instead of waking.
    pub(crate) fn run_without_waking(mut self, after: &mut Self) {
        if let Some(first) = self.first.take() {
            after.wake(first);
        }
        if let Some(more) = &mut *self.more {
            after.wake_all(&mut more.others);
        }
        self.run();
    }
}

/// Stands for no waker.
// Not inlined: it is compared by its address, and each unit of the compiler has its own `Waker::noop`.
#[inline(never)]
pub(crate) fn no_waker() -> &'static Waker {
    Waker::noop()
}

/// Wakes callers in this order, all of them also if a waker panics.
#[inline(never)]
pub(super) fn wake_each(wakers: &mut Vec<Waker>) {
    for waker in wakers {
        wake_one(mem::replace(waker, Waker::noop().clone()));
    }
}

/// A panic of a waker is not for the caller whose call wakes it: what that call returns would be lost.
#[inline(never)]
fn wake_one(waker: Waker) {
    _ = caught(|| waker.wake());
}

/// When it goes off, and what it calls.
pub(super) type NewAlarm = (Nanos, Weak<dyn OnAlarm>);

/// A clock that does not run.
pub(super) trait ByHand: Debug + Send + Sync {
    /// The time of limiters, which does not go back.
    fn now(&self) -> Nanos;

    /// Takes an alarm out and sets another.
    fn replace(&self, old: Option<Timed>, new: Option<NewAlarm>) -> Option<Timed>;

    /// Whether a wait moves it to the next event.
    fn advances_by_itself(&self) -> bool {
        false
    }

    /// Moves to `due`, if it advances by itself and does not end before.
    fn skip_to(&self, _due: Nanos) -> bool {
        false
    }
}

/// The alarms that are set. An id is the time, a number in the order in which they were set, and the place.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    times: TimeOrder,
    lines: Slab<Weak<dyn OnAlarm>>,
    count: u32,
}

impl Alarms {
    /// Takes an alarm out and sets another.
    pub(super) fn replace(&mut self, old: Option<Timed>, new: Option<NewAlarm>) -> Option<Timed> {
        old.map(|old| self.remove(old));
        new.map(|(due, line)| self.insert(due, line))
    }

    pub(super) fn insert(&mut self, due: Nanos, line: Weak<dyn OnAlarm>) -> Timed {
        self.count = self.count.wrapping_add(1);
        let place = u32::try_from(self.lines.insert(line))
            .unwrap_or_else(|_| unreachable!("2^32 limiters"));
        let id = Timed::new(due.get(), self.count, place);
        self.times.insert(id);
        id
    }

    /// Takes an alarm out, if it has not gone off.
    #[inline(never)]
    pub(super) fn remove(&mut self, id: Timed) -> Option<Weak<dyn OnAlarm>> {
        let line = self.times.remove(id).then(|| self.lines.remove(id.id() as usize));
        if self.lines.is_empty() && self.lines.capacity() > KEEP {
            self.lines = Slab::new();
        }
        line
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    pub(super) fn first(&self) -> Option<Nanos> {
        self.times.first().map(|first| Nanos::new(first.time()))
    }

    /// Takes out the first alarm, if it is due by `time`.
    pub(super) fn pop(&mut self, time: Nanos) -> Option<(Nanos, Weak<dyn OnAlarm>)> {
        let first = self.times.first().filter(|first| first.time() <= time.get())?;
        Some((Nanos::new(first.time()), self.remove(first)?))
    }
}

/// A limiter that does nothing at an alarm.
#[cfg(test)]
pub(super) struct Silent;

#[cfg(test)]
impl OnAlarm for Silent {
    fn on_alarm(self: Arc<Self>, _: &mut AfterUnlock) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_crowd_has_left_its_memory_is_given_back() {
        let mut alarms = Alarms::default();
        let time = |index: usize| Nanos::new(index as u64);
        let line = || Weak::<Silent>::new();
        let ids: Vec<_> = (0..=KEEP).map(|index| alarms.insert(time(index), line())).collect();
        // One that leaves takes no other one's alarm with it.
        assert!(alarms.remove(ids[KEEP]).is_some() && alarms.remove(ids[KEEP]).is_none());
        assert!(alarms.lines.capacity() > KEEP);
        for index in 0..KEEP {
            let (due, _) = alarms.pop(Nanos::END).expect("an alarm");
            assert_eq!(due, time(index));
        }
        assert_eq!((alarms.len(), alarms.lines.capacity()), (0, 0));
        // A few need not come back for it.
        let id = alarms.insert(time(1), line());
        alarms.remove(id).expect("an alarm");
        assert_ne!(alarms.lines.capacity(), 0);
    }
}
