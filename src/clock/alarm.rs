//! Alarms: a clock's list of limiters to call, each at a time, and an alarm of one limiter.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::task::Waker;

use slab::Slab;

use super::system::System;
use super::time_order::{TimeOrder, Timed};
#[cfg(feature = "tokio")]
use super::tokio::TimerTasks;
use super::wakes::wake_in_turn;
use super::{Clock, Kind};
use crate::units::Nanos;

/// Keep this many free entries; after a crowd has left, give the memory back.
pub(crate) const KEEP: usize = 1024;

/// A limiter with waiting callers.
pub(crate) trait OnAlarm: Send + Sync {
    /// The alarm went off.
    fn on_alarm(&self);

    /// The alarm went off with others: adds the callers to be woken to `wake` instead of waking them. Returns
    /// how many go on waiting.
    fn on_round(&self, wake: &mut Vec<Waker>) -> usize {
        let _ = wake;
        self.on_alarm();
        0
    }

    /// The alarm cannot be relied on: wakes all callers, each of which looks for itself.
    fn wake_all(&self);
}

/// What an alarm needs besides the clock. Called without a lock.
pub(crate) type TimerTask = Box<dyn FnOnce() + Send>;

/// Calls a limiter once, at the time last set, or later. Leaves the list of its clock when it is dropped.
pub(crate) struct Alarm {
    clock: Clock,
    line: Weak<dyn OnAlarm>,
    id: Option<Timed>,
    /// By tokio's clock.
    #[cfg(feature = "tokio")]
    tasks: Option<TimerTasks>,
}

impl Alarm {
    pub(super) fn new(clock: Clock, line: Weak<dyn OnAlarm>) -> Self {
        Self {
            #[cfg(feature = "tokio")]
            tasks: matches!(clock.0, Kind::Tokio(_)).then(TimerTasks::default),
            clock,
            line,
            id: None,
        }
    }

    /// Sets the alarm; called under the line's lock, so nothing here may call back. Returns whether `due` has come
    /// by then: a manual clock has moved since the line read it, and may have missed the alarm.
    pub(crate) fn set(&mut self, due: Nanos) -> bool {
        #[cfg(feature = "tokio")]
        if let Some(tasks) = &self.tasks {
            tasks.due.send_replace(Some(due));
            self.set_elsewhere();
            return false;
        }
        self.enter(due);
        // After that: a clock that is moved later finds the alarm.
        matches!(self.clock.0, Kind::Manual(_)) && due <= self.clock.now()
    }

    /// By tokio's clock, for callers where its time is the system's: sets the system's alarm. That is late by some
    /// microseconds, never early: what is due by it is due by tokio's clock.
    #[cfg(feature = "tokio")]
    fn set_elsewhere(&mut self) {
        let (Kind::Tokio(clock), Some(tasks)) = (&self.clock.0, &self.tasks) else { return };
        let due = *tasks.due.borrow();
        if let Some(due) = due.filter(|_| tasks.elsewhere) {
            self.enter(clock.system_time(due));
        }
    }

    /// Callers wait, but it is unknown until when. Returns whether the alarm is unset; otherwise it goes off once
    /// for nothing.
    pub(crate) fn unset(&mut self) -> bool {
        match &self.clock.0 {
            // The thread comes once for nothing, which costs less than a change under its lock.
            Kind::System(_) => return false,
            // A timer that went on sleeping would move paused time.
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => _ = self.tasks.as_ref().map(|tasks| tasks.due.send_replace(None)),
            _ => self.leave(),
        }
        true
    }

    /// No caller waits any more. Returns as [`unset`](Self::unset) does.
    pub(crate) fn rest(&mut self) -> bool {
        #[cfg(feature = "tokio")]
        if let Some(tasks) = &mut self.tasks {
            if !tasks.is_resting() {
                // The tasks end.
                *tasks = TimerTasks::default();
                self.leave();
            }
            return true;
        }
        self.unset()
    }

    /// Whether callers move the clock when they see how long they have to wait.
    pub(crate) fn is_moved_by_callers(&self) -> bool {
        self.clock.advances_by_itself()
    }

    /// What to start once the line is unlocked, so that the alarm goes off where callers wait. `is_here`: one
    /// joined or was polled in the place of this call. `is_missed`: what [`set`](Self::set) has returned.
    pub(crate) fn timer_task(&mut self, is_here: bool, is_missed: bool) -> Option<TimerTask> {
        #[cfg(feature = "tokio")]
        if let (Kind::Tokio(clock), Some(tasks)) = (&self.clock.0, &mut self.tasks) {
            let had_elsewhere = tasks.elsewhere;
            let task = tasks.start(*clock, &self.line, is_here);
            if !had_elsewhere {
                self.set_elsewhere();
            }
            return task;
        }
        let _ = is_here;
        let line = is_missed.then(|| self.line.clone())?;
        Some(Box::new(move || sound(&line)))
    }

    fn enter(&mut self, due: Nanos) {
        let (old, line) = (self.id.take(), self.line.clone());
        self.id = Some(self.change(|alarms| alarms.replace(old, due, line)));
    }

    // Not inlined into what drops it.
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(id) = self.id.take() {
            self.change(|alarms| _ = alarms.remove(id));
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Alarms) -> R) -> R {
        match &self.clock.0 {
            Kind::Manual(clock) => change(&mut clock.alarms()),
            _ => System::get().thread.change(change),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}

/// Calls a limiter whose alarm went off, where no caller is to get its panic. Adds the callers to be woken to
/// `wake`, and returns how many go on waiting.
pub(super) fn sound_in_round(line: &Weak<dyn OnAlarm>, wake: &mut Vec<Waker>) -> usize {
    // The last handle on a limiter may be dropped in here too, and with it values of its user.
    let sounded =
        catch_unwind(AssertUnwindSafe(|| line.upgrade().map_or(0, |line| line.on_round(wake))));
    // The waiters of a limiter whose policy panics are woken, and meet the panic themselves.
    sounded.unwrap_or_else(|_| {
        // A waker may panic here again; there is no caller left to get that.
        let _ = catch_unwind(AssertUnwindSafe(|| line.upgrade().map(|line| line.wake_all())));
        0
    })
}

/// The same for one limiter alone.
pub(super) fn sound(line: &Weak<dyn OnAlarm>) {
    let mut wake = Vec::new();
    sound_in_round(line, &mut wake);
    wake_in_turn(&mut wake.drain(..));
}

/// The alarms that are set. An id says when, a number in the order in which they were set, and the place.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    times: TimeOrder,
    lines: Slab<Weak<dyn OnAlarm>>,
    count: u32,
}

impl Alarms {
    /// Moves an alarm to another time, or adds it.
    pub(super) fn replace(
        &mut self,
        old: Option<Timed>,
        due: Nanos,
        line: Weak<dyn OnAlarm>,
    ) -> Timed {
        if let Some(old) = old {
            self.remove(old);
        }
        self.count = self.count.wrapping_add(1);
        let place = u32::try_from(self.lines.insert(line)).expect("fewer than 2^32 limiters");
        let id = Timed::new(due.get(), self.count, place);
        self.times.insert(id);
        id
    }

    /// Takes an alarm out, if it has not gone off.
    fn remove(&mut self, id: Timed) -> Option<Weak<dyn OnAlarm>> {
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
    use crate::clock::ManualClock;

    #[test]
    fn after_a_crowd_has_left_its_memory_is_given_back() {
        let mut alarms = Alarms::default();
        let time = |index: usize| Nanos::new(index as u64);
        let line = || Weak::<Silent>::new();
        let ids: Vec<_> =
            (0..=KEEP).map(|index| alarms.replace(None, time(index), line())).collect();
        // One that leaves takes no other one's alarm with it.
        assert!(alarms.remove(ids[KEEP]).is_some() && alarms.remove(ids[KEEP]).is_none());
        assert!(alarms.lines.capacity() > KEEP);
        for index in 0..KEEP {
            let (due, _) = alarms.pop(Nanos::END).expect("an alarm");
            assert_eq!(due, time(index));
        }
        assert_eq!((alarms.len(), alarms.lines.capacity()), (0, 0));
        // A few need not come back for it.
        let id = alarms.replace(None, time(1), line());
        alarms.remove(id).expect("an alarm");
        assert_ne!(alarms.lines.capacity(), 0);
    }

    #[test]
    fn an_alarm_leaves_with_its_limiter() {
        let clock = ManualClock::new();
        let mut alarm = Clock::from(&clock).alarm(Weak::<Silent>::new());
        alarm.set(Nanos::new(5));
        assert_eq!(clock.next_due().map(|due| due.as_nanos()), Some(5));
        drop(alarm);
        assert_eq!(clock.next_due(), None);
    }
}
