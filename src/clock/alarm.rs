//! The alarm of a limiter, by any clock.

use std::fmt;
use std::sync::Weak;

use super::alarms::{Alarms, OnAlarm, TimerTask, sound};
use super::manual::ManualClock;
use super::system::System;
use super::time_order::Timed;
#[cfg(feature = "tokio")]
use super::tokio::{TimerTasks, TokioClock};
use crate::units::Nanos;

#[derive(Clone)]
pub(super) enum Kind {
    System(&'static System),
    Manual(ManualClock),
    #[cfg(feature = "tokio")]
    Tokio(TokioClock),
    #[cfg(test)]
    ReadBy(fn() -> Nanos),
}

/// Calls a limiter once, at the time last set, or later. Leaves the list of its clock when it is dropped.
pub(crate) struct Alarm {
    clock: Kind,
    line: Weak<dyn OnAlarm>,
    id: Option<Timed>,
    /// By tokio's clock.
    #[cfg(feature = "tokio")]
    tasks: Option<TimerTasks>,
}

impl Alarm {
    pub(super) fn new(clock: Kind, line: Weak<dyn OnAlarm>) -> Self {
        Self {
            #[cfg(feature = "tokio")]
            tasks: matches!(clock, Kind::Tokio(_)).then(TimerTasks::default),
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
        matches!(&self.clock, Kind::Manual(clock) if due <= clock.now())
    }

    /// By tokio's clock, for callers where its time is the system's: sets the system's alarm. That is late by some
    /// microseconds, never early: what is due by it is due by tokio's clock.
    #[cfg(feature = "tokio")]
    fn set_elsewhere(&mut self) {
        let (Kind::Tokio(clock), Some(tasks)) = (&self.clock, &self.tasks) else { return };
        let due = *tasks.due.borrow();
        if let Some(due) = due.filter(|_| tasks.elsewhere) {
            self.enter(clock.system_time(due));
        }
    }

    /// Callers wait, but it is unknown until when. Returns whether the alarm is unset; otherwise it goes off once
    /// for nothing.
    pub(crate) fn unset(&mut self) -> bool {
        match &self.clock {
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
        matches!(&self.clock, Kind::Manual(clock) if clock.advances_by_itself())
    }

    /// What to start once the line is unlocked, so that the alarm goes off where callers wait. `is_here`: one
    /// joined or was polled in the place of this call. `is_missed`: what [`set`](Self::set) has returned.
    pub(crate) fn timer_task(&mut self, is_here: bool, is_missed: bool) -> Option<TimerTask> {
        #[cfg(feature = "tokio")]
        if let (Kind::Tokio(clock), Some(tasks)) = (&self.clock, &mut self.tasks) {
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
        match &self.clock {
            Kind::Manual(clock) => change(&mut clock.alarms()),
            #[cfg(test)]
            Kind::ReadBy(_) => change(&mut Alarms::default()),
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

#[cfg(test)]
mod tests {
    use super::super::alarms::Silent;
    use super::*;

    #[test]
    fn an_alarm_leaves_with_its_limiter() {
        let clock = ManualClock::new();
        let mut alarm = Alarm::new(Kind::Manual(clock.clone()), Weak::<Silent>::new());
        alarm.set(Nanos::new(5));
        assert_eq!(clock.next_due().map(|due| due.as_nanos()), Some(5));
        drop(alarm);
        assert_eq!(clock.next_due(), None);
    }
}
