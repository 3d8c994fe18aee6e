//! Alarms: limiters to call at a time, in order; and what a clock is.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slab::Slab;

use super::time_order::{TimeOrder, Timed};
use super::wakes::wake_each;
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

/// Goes off once at the time last set.
pub(crate) trait SetAlarm: Send + Sync {
    /// Sets the alarm; called under the line's lock, so nothing here may call back. Returns whether `due` has come
    /// by then: the clock has moved since the line read it, and the alarm may have missed that.
    fn set(&mut self, due: Nanos) -> bool;

    /// Callers wait, but it is unknown until when. Returns whether the alarm is unset; otherwise it goes off once
    /// for nothing.
    fn unset(&mut self) -> bool;

    /// No caller waits any more. Returns as [`unset`](Self::unset) does.
    fn rest(&mut self) -> bool {
        self.unset()
    }

    /// Whether callers move the clock when they see how long they have to wait.
    fn is_moved_by_callers(&self) -> bool {
        false
    }

    /// What to start once the line is unlocked, so that the alarm goes off where callers wait. `is_here`: one
    /// joined or was polled in the place of this call. `is_missed`: what [`set`](Self::set) has returned.
    fn timer_task(&mut self, is_here: bool, is_missed: bool) -> Option<TimerTask> {
        let _ = (is_here, is_missed);
        None
    }
}

/// An alarm by any clock.
pub(crate) type Alarm = Box<dyn SetAlarm>;

/// Not a method of each alarm, or a program would have the code that shows the clock's thread.
impl fmt::Debug for dyn SetAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}

/// A clock other than the system's: tokio's, or a manual one. Known by a pointer, so that a program that makes none has
/// no code of them.
pub(super) trait OtherClock: fmt::Debug + Send + Sync {
    fn now(&self) -> Nanos;

    fn alarm(&self, line: Weak<dyn OnAlarm>) -> Alarm;

    /// See [`Clock::since_epoch`](super::Clock::since_epoch).
    fn since_epoch(&self) -> Duration;

    /// See [`Clock::wake_others`](super::Clock::wake_others).
    fn wake_others(&self) {}

    /// See [`Clock::sounds_without_callers`](super::Clock::sounds_without_callers).
    fn sounds_without_callers(&self) -> bool {
        true
    }

    /// See [`Clock::advances_by_itself`](super::Clock::advances_by_itself).
    fn advances_by_itself(&self) -> bool {
        false
    }

    /// See [`Clock::skip_to`](super::Clock::skip_to).
    fn skip_to(&self, due: Nanos) -> bool {
        let _ = due;
        false
    }
}

/// How long after the Unix epoch a clock showed zero that shows `now`.
pub(super) fn since_epoch(now: Nanos) -> Duration {
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    unix_time.saturating_sub(now.since(Nanos::ZERO))
}

/// What an alarm needs besides the clock. Called without a lock.
pub(crate) type TimerTask = Box<dyn FnOnce() + Send>;

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
    wake_each(&mut wake.drain(..));
}

/// Names an alarm that is set: when, a number in the order in which they were set, and its place.
type AlarmId = Timed;

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    times: TimeOrder,
    lines: Slab<Weak<dyn OnAlarm>>,
    count: u32,
}

impl Alarms {
    /// Moves an alarm to another time, or adds it.
    pub(super) fn replace(
        &mut self,
        old: Option<AlarmId>,
        due: Nanos,
        line: Weak<dyn OnAlarm>,
    ) -> AlarmId {
        if let Some(old) = old {
            self.remove(old);
        }
        self.count = self.count.wrapping_add(1);
        let place = u32::try_from(self.lines.insert(line)).expect("fewer than 2^32 limiters");
        let id = AlarmId::new(due.get(), self.count, place);
        self.times.insert(id);
        id
    }

    /// Takes an alarm out, if it has not gone off.
    fn remove(&mut self, id: AlarmId) -> Option<Weak<dyn OnAlarm>> {
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

/// Keeps a list of alarms and sounds them in time.
pub(crate) trait AlarmKeeper {
    fn change<R>(&self, change: impl FnOnce(&mut Alarms) -> R) -> R;
}

/// One limiter's alarm in a list; leaves it when dropped.
pub(crate) struct TimedAlarm<K: AlarmKeeper> {
    keeper: K,
    line: Weak<dyn OnAlarm>,
    id: Option<AlarmId>,
}

impl<K: AlarmKeeper> TimedAlarm<K> {
    pub(super) fn new(keeper: K, line: Weak<dyn OnAlarm>) -> Self {
        Self { keeper, line, id: None }
    }

    pub(super) fn set(&mut self, due: Nanos) {
        let (old, line) = (self.id.take(), self.line.clone());
        self.id = Some(self.keeper.change(|alarms| alarms.replace(old, due, line)));
    }

    // Not inlined into what drops it.
    #[inline(never)]
    pub(super) fn unset(&mut self) {
        if let Some(id) = self.id.take() {
            self.keeper.change(|alarms| _ = alarms.remove(id));
        }
    }

    pub(super) fn keeper(&self) -> &K {
        &self.keeper
    }

    pub(super) fn line(&self) -> &Weak<dyn OnAlarm> {
        &self.line
    }
}

impl<K: AlarmKeeper> Drop for TimedAlarm<K> {
    fn drop(&mut self) {
        self.unset();
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
        let mut alarm = TimedAlarm::new(clock.clone(), Weak::<Silent>::new());
        alarm.set(Nanos::new(5));
        assert_eq!(clock.next_due().map(|due| due.as_nanos()), Some(5));
        drop(alarm);
        assert_eq!(clock.next_due(), None);
    }
}
