//! Alarms: a clock calls a limiter at a time.
//!
//! A clock has a list of [`Alarms`] in the order of their times. The thread of the system's clock takes out what is due
//! ([`timer_thread`](super::timer_thread)), or the caller that moves a manual clock does. Tokio's clock has no list: a runtime
//! with its own time has a task for each limiter ([`tokio`](super::tokio)), and all other callers use an alarm of the system's clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::task::Waker;

use slab::Slab;

use super::time_order::{TimeOrder, Timed};
use crate::units::Nanos;
use crate::unwinding::WakerList;

/// Keep this many free entries; after a crowd has left, give the memory back.
pub(crate) const KEEP: usize = 1024;

/// What a clock calls: a limiter with waiting callers.
pub(crate) trait OnAlarm: Send + Sync {
    /// The alarm went off.
    fn on_alarm(&self);

    /// The alarm went off with others: adds the callers to be woken to `wake` instead of waking them. Returns how many
    /// continue to wait.
    fn on_round(&self, wake: &mut Vec<Waker>) -> usize {
        let _ = wake;
        self.on_alarm();
        0
    }

    /// The alarm cannot be relied on: wakes all callers, each of which looks for itself.
    fn wake_all(&self);
}

/// Starts the task of a tokio runtime that sounds an alarm there, or sounds one whose time has passed. Called without a lock.
pub(crate) type TimerTask = Box<dyn FnOnce() + Send>;

/// Calls a limiter whose alarm went off, where no caller is to get its panic. Adds the callers to be woken to
/// `wake`, and returns how many continue to wait.
pub(super) fn sound_in_round(line: &Weak<dyn OnAlarm>, wake: &mut Vec<Waker>) -> usize {
    // The last handle on a limiter may be dropped in here too, and with it values of its user.
    let sound = || line.upgrade().map_or(0, |line| line.on_round(wake));
    // The waiters of a limiter whose policy panics are woken, and meet the panic themselves.
    catch_unwind(AssertUnwindSafe(sound)).unwrap_or_else(|_| {
        let _ = catch_unwind(AssertUnwindSafe(|| line.upgrade().map(|line| line.wake_all())));
        0
    })
}

/// The same for one limiter alone.
pub(super) fn sound(line: &Weak<dyn OnAlarm>) {
    let mut wake = WakerList::default();
    sound_in_round(line, &mut wake);
    wake_each(wake);
}

/// Wakes callers in this order, all of them also if a waker panics.
// Not inlined, to keep the path of calls that wake no others short.
#[inline(never)]
pub(crate) fn wake_each(mut wakers: WakerList) {
    wakers.reverse();
    while let Some(waker) = wakers.pop() {
        wake_one(waker);
    }
}

#[inline(never)]
pub(crate) fn wake_one(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// When it goes off, and what it calls.
pub(super) type NewAlarm = (Nanos, Weak<dyn OnAlarm>);

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
        let place = u32::try_from(self.lines.insert(line)).expect("fewer than 2^32 limiters");
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
    fn on_alarm(&self) {}

    fn wake_all(&self) {}
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
