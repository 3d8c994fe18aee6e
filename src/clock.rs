//! The clock that a limiter decides and waits by, and the alarm of a limiter by any clock.

mod alarm;
mod manual;
mod system;
mod time_order;
mod timer_thread;
#[cfg(feature = "tokio")]
mod tokio;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use manual::ManualClock;

#[cfg(feature = "tokio")]
use self::tokio::{TimerTasks, TokioClock};
use crate::units::Nanos;
use alarm::ByHand;
#[cfg(feature = "tokio")]
use alarm::TimerTask;
pub(crate) use alarm::{AfterUnlock, KEEP, OnAlarm, no_waker};
use system::System;
pub(crate) use time_order::{Monotone, TimeOrder, Timed};

/// A handle on a clock: the system's, tokio's, or a manual one for tests.
///
/// One clock drives both decisions and waits. It is a value, not a type parameter: cheap to clone, and not
/// part of a limiter's type.
///
/// | clock | time | wakes waiters |
/// |---|---|---|
/// | [`Clock::system()`] | monotonic, by [`quanta`] | a thread of this crate, started at the first wait |
/// | `Clock::tokio()` (feature `tokio`) | tokio's, honours `tokio::time::pause` | on a current-thread runtime a task of that runtime; elsewhere the same thread |
/// | [`ManualClock`] | yours | [`advance`](ManualClock::advance) |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock};
///
/// let manual = ManualClock::new();
/// let clock = Clock::from(&manual);
/// manual.advance(Duration::from_millis(3));
/// assert_eq!(clock.now().get(), 3_000_000);
/// ```
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    System(&'static System),
    /// By a trait, so that a program without such a clock has no code for it.
    Manual(Arc<dyn ByHand>),
    #[cfg(feature = "tokio")]
    Tokio(TokioClock),
}

/// Shows what a function says, and has no alarms.
#[cfg(test)]
#[derive(Debug)]
struct ReadBy(fn() -> Nanos);

#[cfg(test)]
impl ByHand for ReadBy {
    fn now(&self) -> Nanos {
        self.0()
    }

    fn replace(&self, _: Option<Timed>, _: Option<alarm::NewAlarm>) -> Option<Timed> {
        None
    }
}

impl Clock {
    /// The system's monotonic clock: the default of all limiters.
    ///
    /// It works with any async runtime or none: one background thread for the whole process ends all waits. It starts
    /// at the first wait. Under `tokio::time::pause` it goes on in real time;
    /// use `Clock::tokio()` there. On most systems it stands still while the machine sleeps.
    ///
    /// It reads the processor's counter and sets it by the operating system's clock each millisecond: it is late by
    /// microseconds, never early. The first call calibrates the counter, which may take some milliseconds.
    ///
    /// A wait ends at most 0.1 ms late while up to 16 callers wait, and 1.2 ms while more do (twice that, if a
    /// caller is woken behind one that is slow to be polled): waits that are due at about the same time end together, as
    /// most of a wait's cost is to wake threads. None ends early. Late grants cost no throughput up to the policy's burst and
    /// its [`catch_up`](crate::state::Facts::catch_up) (2 ms for the policies with a rate).
    ///
    /// If the process has too many threads to start this one, the next alarm that is set tries again: by another limiter, or
    /// for a wait that ends earlier. Until then only calls on a limiter wake its waiters. After a `fork` without `exec` there is
    /// no such thread, and waiters are never woken.
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System(System::get()))
    }

    /// Tokio's clock, by the feature `tokio`: stands still under `tokio::time::pause` and moves with
    /// `tokio::time::advance` (tokio's feature `test-util`), for decisions and waits.
    ///
    /// Time can be paused in a current-thread runtime only. There a task of the waiter's own runtime ends the wait, so a
    /// blocked or stopped runtime delays no waiter in another. The [system clock's](Self::system) thread ends all other waits.
    ///
    /// `blocking_*` calls inside `spawn_blocking` see paused time, but keep it from advancing by itself. On the
    /// own thread of a current-thread runtime they **never return**: they block the runtime, and so its clock. On
    /// a worker of a runtime with several threads they return in time.
    ///
    /// A current-thread runtime without timers (`enable_time`) works, but prints a message of tokio's once, as a task of this
    /// crate panics. From then on the system clock's thread ends the waits there.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?
    /// #     .block_on(async {
    /// let policy = SmoothBursty::new(Rate::per_hour(1.0));
    /// let limiter = RateLimiter::with_clock(policy, Clock::tokio());
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire(1).await?;
    /// limiter.acquire(1).await?; // no real time passes in a paused runtime
    /// assert_eq!(start.elapsed().as_secs(), 3600);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio() -> Self {
        Self(Kind::Tokio(TokioClock::new()))
    }

    /// The time since the clock's origin. It does not go back, even if a [`ManualClock`] is set back.
    // As `Line::decide`: the system's clock inlined, tokio's not.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.0 {
            Kind::System(system) => system.now(),
            Kind::Manual(clock) => clock.now(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(clock) => clock.now(),
        }
    }

    /// How long after the Unix epoch this clock showed zero, by the system's calendar as it is now. For
    /// a [`ManualClock`] zero: it begins at the epoch.
    ///
    /// For rules aligned to the calendar, such as [`FixedWindow::aligned`](crate::FixedWindow::aligned). They
    /// keep this value if the calendar is set later.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    /// use tollgate::{Clock, ManualClock};
    ///
    /// let clock = Clock::system();
    /// let unix_time = clock.since_epoch() + Duration::from_nanos(clock.now().get());
    /// assert!(SystemTime::now().duration_since(UNIX_EPOCH)?.abs_diff(unix_time).as_secs() < 60);
    /// assert_eq!(Clock::from(ManualClock::new()).since_epoch(), Duration::ZERO);
    /// # Ok::<(), std::time::SystemTimeError>(())
    /// ```
    #[must_use]
    pub fn since_epoch(&self) -> Duration {
        if let Kind::Manual(_) = &self.0 {
            return Duration::ZERO;
        }
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        unix_time.saturating_sub(self.now().since(Nanos::ZERO))
    }

    /// Whether this is the system's time, which no test holds still.
    #[cfg(feature = "redis")]
    pub(crate) fn is_real(&self) -> bool {
        matches!(&self.0, Kind::System(_))
    }

    /// An alarm by this clock for `line`.
    pub(crate) fn alarm(&self, line: Weak<dyn OnAlarm>) -> Alarm {
        Alarm {
            clock: self.clone(),
            line,
            id: None,
            #[cfg(feature = "tokio")]
            tasks: matches!(self.0, Kind::Tokio(_)).then(TimerTasks::default),
        }
    }

    /// A clock for tests that shows what `read` says at each reading, and has no alarms.
    #[cfg(test)]
    pub(crate) fn read_by(read: fn() -> Nanos) -> Self {
        Self(Kind::Manual(Arc::new(ReadBy(read))))
    }

    /// Wakes the callers whose waits ended together with a polled caller's.
    #[inline]
    pub(crate) fn wake_others(&self) {
        match &self.0 {
            Kind::System(system) => system.thread.wake_relay.wake_others(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => System::get().thread.wake_relay.wake_others(),
            _ => {}
        }
    }

    /// Whether an alarm goes off while no caller waits. Tokio's would need a timer, which moves paused time.
    #[cfg(feature = "redis")]
    pub(crate) fn sounds_without_callers(&self) -> bool {
        !matches!(&self.0, Kind::Tokio(_))
    }

    /// Whether a wait moves it to the next event.
    pub(crate) fn advances_by_itself(&self) -> bool {
        matches!(&self.0, Kind::Manual(clock) if clock.advances_by_itself())
    }

    /// Asks once, or until it is `Ok`: a clock that advances by itself skips to the time at which that may be so.
    pub(crate) fn ask(&self, ask: impl Fn() -> Result<bool, Option<Nanos>>) -> bool {
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(Some(due)) if self.skip_to(due) => {}
                Err(_) => return false,
            }
        }
    }

    /// Moves a clock that advances by itself to `due`. Returns whether it did.
    pub(crate) fn skip_to(&self, due: Nanos) -> bool {
        matches!(&self.0, Kind::Manual(clock) if clock.skip_to(due))
    }
}

/// The kind of the clock, and the time of a [`ManualClock`].
impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Manual(clock) => clock.fmt(f),
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => f.write_str("Clock::tokio()"),
            _ => f.write_str("Clock::system()"),
        }
    }
}

/// The system clock.
impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<ManualClock> for Clock {
    fn from(manual: ManualClock) -> Self {
        Self(Kind::Manual(Arc::new(manual)))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self::from(manual.clone())
    }
}

/// Calls a limiter once, at the time last set, or later. Leaves the list of its clock when it is dropped.
#[derive(Debug)]
pub(crate) struct Alarm {
    pub(crate) clock: Clock,
    pub(crate) line: Weak<dyn OnAlarm>,
    /// In the list of the clock, or of the system's.
    id: Option<Timed>,
    /// By tokio's clock.
    #[cfg(feature = "tokio")]
    tasks: Option<TimerTasks>,
}

impl Alarm {
    /// Sets the alarm; called under the line's lock, so nothing here may call back. Returns whether `due` has come
    /// by then: a manual clock has moved since the line read it, and may have missed the alarm.
    pub(crate) fn set(&mut self, due: Nanos) -> bool {
        #[cfg(feature = "tokio")]
        if let Some(tasks) = &self.tasks {
            tasks.due.send_replace(Some(due));
            self.set_elsewhere();
            return false;
        }
        self.replace_in_list(Some(due));
        // After that: a clock that is moved later finds the alarm.
        self.id.is_some() && matches!(&self.clock.0, Kind::Manual(clock) if due <= clock.now())
    }

    /// By tokio's clock, for callers where its time is the system's: sets the system's alarm.
    #[cfg(feature = "tokio")]
    fn set_elsewhere(&mut self) {
        let (Kind::Tokio(clock), Some(tasks)) = (&self.clock.0, &self.tasks) else { return };
        let due = *tasks.due.borrow();
        if let Some(due) = due.filter(|_| tasks.elsewhere) {
            self.replace_in_list(Some(clock.system_time(due)));
        }
    }

    /// Nothing is due at a known time; `is_empty`: no caller waits, `is_set`: it has not gone off. Returns whether the alarm is
    /// unset; otherwise it goes off once for nothing.
    pub(crate) fn unset(&mut self, is_empty: bool, is_set: bool) -> bool {
        #[cfg(feature = "tokio")]
        if let Some(tasks) = &mut self.tasks {
            // A timer that sleeps on would move paused time.
            tasks.due.send_replace(None);
            if is_empty && !tasks.is_resting() {
                // The tasks end with their sender.
                *tasks = TimerTasks::default();
                self.leave();
            }
            return true;
        }
        let _ = is_empty;
        // The system's thread comes once for nothing, which costs less than a change under its lock.
        let is_unset = !matches!(self.clock.0, Kind::System(_));
        if is_unset && is_set {
            self.leave();
        }
        is_unset
    }

    /// What to start once the line is unlocked, so that the alarm goes off where callers wait. `is_here`: one
    /// joined or was polled in the place of this call.
    #[cfg(feature = "tokio")]
    pub(crate) fn timer_task(&mut self, is_here: bool) -> Option<TimerTask> {
        let (Kind::Tokio(clock), Some(tasks)) = (&self.clock.0, &mut self.tasks) else {
            return None;
        };
        let had_elsewhere = tasks.elsewhere;
        let task = tasks.start(*clock, &self.line, is_here);
        if !had_elsewhere {
            self.set_elsewhere();
        }
        task
    }

    fn leave(&mut self) {
        if self.id.is_some() {
            self.replace_in_list(None);
        }
    }

    /// In place of what is set in the list.
    #[inline(never)]
    fn replace_in_list(&mut self, due: Option<Nanos>) {
        let (old, new) = (self.id.take(), due.map(|due| (due, self.line.clone())));
        self.id = match &self.clock.0 {
            Kind::Manual(clock) => clock.replace(old, new),
            _ => System::get().thread.replace(old, new),
        };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::alarm::Silent;
    use super::*;

    #[test]
    fn an_alarm_leaves_with_its_limiter() {
        let clock = ManualClock::new();
        let mut alarm = Clock::from(&clock).alarm(Weak::<Silent>::new());
        alarm.set(Nanos::new(5));
        assert_eq!(clock.next_due().map(|due| due.as_nanos()), Some(5));
        drop(alarm);
        assert_eq!(clock.next_due(), None);
    }

    /// Within an hour, as a calendar may be set meanwhile.
    #[test]
    fn a_clock_knows_the_calendar_but_one_for_tests_begins_at_the_epoch() {
        let calendar = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let manual = ManualClock::new();
        manual.advance(Duration::from_secs(3));
        let clocks = [
            Clock::system(),
            #[cfg(feature = "tokio")]
            Clock::tokio(),
        ];
        for clock in clocks {
            let shown = clock.since_epoch() + clock.now().since(Nanos::ZERO);
            assert!(shown.abs_diff(calendar).as_secs() < 3600, "{shown:?}");
        }
        assert_eq!(Clock::from(manual).since_epoch(), Duration::ZERO);
    }

    /// There is as much time again behind its end, for what is booked ahead.
    #[test]
    fn a_manual_clock_ends_in_292_years() {
        let clock = ManualClock::new();
        for step in [Duration::MAX, Duration::from_secs(1)] {
            clock.advance(step);
            assert_eq!(clock.elapsed(), Duration::from_nanos(u64::MAX / 2));
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn only_the_systems_time_goes_on_whatever_a_test_does() {
        let is_real = |clock: Clock| clock.is_real();
        assert!(is_real(Clock::system()));
        assert!(!is_real(ManualClock::new().into()) && !is_real(Clock::read_by(|| Nanos::ZERO)));
    }

    #[test]
    fn debug_shows_the_kind_and_no_internals() {
        let manual = ManualClock::new();
        manual.advance(Duration::from_millis(3));
        let shown = [Clock::system(), Clock::from(&manual)].map(|clock| format!("{clock:?}"));
        assert_eq!(shown, ["Clock::system()", "ManualClock(3ms)"]);
        #[cfg(feature = "tokio")]
        assert_eq!(format!("{:?}", Clock::tokio()), "Clock::tokio()");
    }
}
