//! The clock that a limiter decides and waits by.

mod alarm;
mod alarms;
mod manual;
mod system;
mod time_order;
mod timer_thread;
#[cfg(feature = "tokio")]
mod tokio;
mod wakes;

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use manual::ManualClock;

#[cfg(feature = "tokio")]
use self::tokio::TokioClock;
use crate::units::Nanos;
pub(crate) use alarm::Alarm;
use alarm::Kind;
pub(crate) use alarms::{KEEP, OnAlarm, TimerTask};
use system::System;
pub(crate) use time_order::{Monotone, TimeOrder, Timed};
pub(crate) use wakes::wake_each;

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

impl Clock {
    /// The system's monotonic clock: the default of all limiters.
    ///
    /// It works with any async runtime or none: one background thread for the whole process ends all waits. It starts
    /// at the first wait. Under `tokio::time::pause` it goes on in real time;
    /// use `Clock::tokio()` there. On most systems it stands still while the machine sleeps.
    ///
    /// It reads the processor's counter and sets it by the operating system's clock each millisecond. So it is
    /// late by up to some microseconds, never early. The first call calibrates the counter, which may take some
    /// milliseconds.
    ///
    /// A wait ends at most 0.1 ms late while up to 16 callers wait, and 1.2 ms while more do, so that waits that are due at
    /// about the same time end together: most of what a wait costs is to wake threads. None ends early. The operating
    /// system adds the time to wake a thread, some hundredths of a millisecond on an idle machine. Late grants cost no
    /// throughput as long as they are no later than the policy's burst and its
    /// [`catch_up`](crate::state::Facts::catch_up) (2 ms for the policies with a rate).
    ///
    /// If the thread cannot be started, because the process has too many, the next alarm that is set tries again:
    /// by another limiter, or for a wait that ends earlier. Until then only calls on a limiter wake its waiters. A
    /// process made by `fork` alone has no such thread: waiters there are never woken.
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System(System::get()))
    }

    /// Tokio's clock, by the feature `tokio`: stands still under `tokio::time::pause` and moves with
    /// `tokio::time::advance` (tokio's feature `test-util`), for decisions and waits.
    ///
    /// Time can be paused in a current-thread runtime only. There a task of the waiter's own runtime ends the
    /// wait. Each such runtime has one while callers wait in it, so a blocked or stopped runtime delays no waiter
    /// in another. The [system clock's](Self::system) thread ends all other waits: on runtimes with several
    /// threads, and outside of any.
    ///
    /// `blocking_*` calls inside `spawn_blocking` see paused time, but keep it from advancing by itself. On the
    /// own thread of a current-thread runtime they **never return**: they block the runtime, and so its clock. On
    /// a worker of a runtime with several threads they return in time.
    ///
    /// A current-thread runtime without timers (`enable_time`) works, but prints a message of tokio's once: only a
    /// panic, in a task of this crate, reveals that it has none. From then on the system clock's thread ends the
    /// waits there.
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
    // As `Line::decide`: the system's clock inlined, the others not.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.0 {
            Kind::System(system) => system.now(),
            _ => self.other_now(),
        }
    }

    /// The time by another clock than the system's.
    #[inline(never)]
    fn other_now(&self) -> Nanos {
        match &self.0 {
            Kind::System(system) => system.now(),
            Kind::Manual(clock) => clock.now(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(clock) => clock.now(),
            #[cfg(test)]
            Kind::ReadBy(read) => read(),
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
        Alarm::new(self.0.clone(), line)
    }

    /// A clock for tests that shows what `read` says at each reading.
    #[cfg(test)]
    pub(crate) fn read_by(read: fn() -> Nanos) -> Self {
        Self(Kind::ReadBy(read))
    }

    /// Wakes the callers whose waits ended together with a polled caller's.
    #[inline]
    pub(crate) fn wake_others(&self) {
        match &self.0 {
            Kind::System(system) => system.thread.wake_others(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => System::get().thread.wake_others(),
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
            Kind::System(_) => f.write_str("Clock::system()"),
            Kind::Manual(clock) => clock.fmt(f),
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => f.write_str("Clock::tokio()"),
            #[cfg(test)]
            Kind::ReadBy(_) => f.write_str("Clock::read_by()"),
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
        Self(Kind::Manual(manual))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self::from(manual.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
