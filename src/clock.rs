//! The clock that a limiter decides and waits by.

mod alarm;
mod manual;
mod system;
mod time_order;
mod timer_thread;
#[cfg(feature = "tokio")]
mod tokio;
mod wakes;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use manual::ManualClock;

use crate::units::Nanos;
pub(crate) use alarm::{Alarm, KEEP, OnAlarm, TimerTask};
use alarm::{OtherClock, TimedAlarm, since_epoch};
use system::{System, SystemAlarms};
pub(crate) use time_order::{Monotone, TimeOrder, Timed};
use timer_thread::Slack;
pub(crate) use wakes::wake_each;

/// A handle on a clock: the system's, tokio's, or a manual one for tests.
///
/// One clock drives both decisions and waits. It is a value, not a type parameter: cheap to clone, and not
/// part of a limiter's type.
///
/// | clock | time | wakes waiters |
/// |---|---|---|
/// | [`Clock::system()`] | monotonic, by [`quanta`] | a thread of this crate, started at the first wait or key; how precisely is set by [`timer_slack`](Clock::timer_slack) |
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
    System(&'static System, Slack),
    Other(Arc<dyn OtherClock>),
}

impl Clock {
    /// The system's monotonic clock: the default of all limiters.
    ///
    /// It works with any async runtime or none: one background thread for the whole process ends all waits, and
    /// drops idle keys. It starts at the first wait or key. Under `tokio::time::pause` it goes on in real time;
    /// use `Clock::tokio()` there. On most systems it stands still while the machine sleeps.
    ///
    /// It reads the processor's counter and sets it by the operating system's clock each millisecond. So it is
    /// late by up to some microseconds, never early. The first call calibrates the counter, which may take some
    /// milliseconds.
    ///
    /// If the thread cannot be started, because the process has too many, the next alarm that is set tries again:
    /// by another limiter, or for a wait that ends earlier. Until then only calls on a limiter wake its waiters. A
    /// process made by `fork` alone has no such thread: waiters there are never woken.
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System(System::get(), Slack::AUTO))
    }

    /// Trades wake-up precision for fewer wake-ups: a wait may end up to `slack` late, so that waits that are due
    /// at about the same time end together. The default is 0.1 ms for a few waiters and 1.2 ms for a crowd.
    ///
    /// Most of a wait's cost is waking the clock's thread and a thread of the runtime. Waits that end together
    /// share that cost. So choose:
    ///
    /// | slack | threads are woken | for |
    /// |---|---|---|
    /// | zero | for each wait | a task that is paced precisely |
    /// | not set | at most each 0.1 ms while up to 16 callers wait, each 1.2 ms while more do | everything else |
    /// | 5 ms | at most each 4 ms | a program that must be quiet: background work, a battery |
    ///
    /// No wait ends early, whatever the slack. The operating system adds the time to wake a thread, some ten
    /// microseconds on an idle machine. Late grants cost no throughput as long as they are no later than the
    /// policy's burst and its [`catch_up`](crate::state::Facts::catch_up) (2 ms for the policies with a rate). The slack
    /// is rounded down to a power of two microseconds.
    ///
    /// It belongs to this handle: limiters made with other handles are not affected. It has no effect on a
    /// [`ManualClock`], nor on `Clock::tokio()`, whose timers on a current-thread runtime have a slack of 1 ms.
    #[must_use]
    pub fn timer_slack(mut self, slack: Duration) -> Self {
        if let Kind::System(_, own) = &mut self.0 {
            *own = Slack::new(slack);
        }
        self
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
        Self(Kind::Other(Arc::new(self::tokio::TokioClock::new())))
    }

    /// The time since the clock's origin. It does not go back, even if a [`ManualClock`] is set back.
    // As `Line::decide`: the system's clock inlined, the others not.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.0 {
            Kind::System(system, _) => system.now(),
            _ => self.other_now(),
        }
    }

    /// The time by another clock than the system's.
    #[inline(never)]
    fn other_now(&self) -> Nanos {
        match &self.0 {
            Kind::System(system, _) => system.now(),
            Kind::Other(other) => other.now(),
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
        match &self.0 {
            Kind::Other(other) => other.since_epoch(),
            _ => since_epoch(self.now()),
        }
    }

    /// Whether this is the system's time, which no test holds still.
    #[cfg(feature = "redis")]
    pub(crate) fn is_real(&self) -> bool {
        matches!(&self.0, Kind::System(..))
    }

    /// An alarm by this clock for `line`.
    pub(crate) fn alarm(&self, line: Weak<dyn OnAlarm>) -> Alarm {
        match &self.0 {
            &Kind::System(system, slack) => {
                Box::new(TimedAlarm::new(SystemAlarms { system, slack }, line))
            }
            Kind::Other(other) => other.alarm(line),
        }
    }

    /// A clock for tests.
    #[cfg(test)]
    pub(crate) fn read_by(read: fn() -> Nanos) -> Self {
        Self(Kind::Other(Arc::new(read::ReadBy(read))))
    }

    /// Wakes the callers whose waits ended together with a polled caller's.
    #[inline]
    pub(crate) fn wake_others(&self) {
        match &self.0 {
            Kind::System(system, _) => system.thread.wake_others(),
            Kind::Other(other) => other.wake_others(),
        }
    }

    /// Whether an alarm goes off while no caller waits. Tokio's would need a timer, which moves paused time.
    pub(crate) fn sounds_without_callers(&self) -> bool {
        match &self.0 {
            Kind::Other(other) => other.sounds_without_callers(),
            _ => true,
        }
    }

    /// Whether a wait moves it to the next event.
    pub(crate) fn advances_by_itself(&self) -> bool {
        matches!(&self.0, Kind::Other(other) if other.advances_by_itself())
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
        match &self.0 {
            Kind::Other(other) => other.skip_to(due),
            _ => false,
        }
    }
}

/// The kind of the clock, its slack if that is set, and the time of a [`ManualClock`].
impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::System(_, slack) => {
                f.write_str("Clock::system()")?;
                slack.get().map_or(Ok(()), |slack| write!(f, ".timer_slack({slack:?})"))
            }
            Kind::Other(other) => other.fmt(f),
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
        Self(Kind::Other(Arc::new(manual)))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self::from(manual.clone())
    }
}

/// Shows what a test says at each reading, and has no alarms.
#[cfg(test)]
mod read {
    use super::alarm::SetAlarm;
    use super::*;

    #[derive(Debug)]
    pub(super) struct ReadBy(pub(super) fn() -> Nanos);

    struct Never;

    impl OtherClock for ReadBy {
        fn now(&self) -> Nanos {
            (self.0)()
        }

        fn alarm(&self, _: Weak<dyn OnAlarm>) -> Alarm {
            Box::new(Never)
        }

        fn since_epoch(&self) -> Duration {
            since_epoch(self.now())
        }
    }

    impl SetAlarm for Never {
        fn set(&mut self, _: Nanos) -> bool {
            false
        }

        fn unset(&mut self) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

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
    fn a_slack_belongs_to_the_systems_clock() {
        let slack = |clock: &Clock| match clock.0 {
            Kind::System(_, slack) => slack.get(),
            _ => None,
        };
        let clock = Clock::system();
        assert_eq!(slack(&clock), None);
        let clock = clock.timer_slack(Duration::from_micros(4096));
        assert_eq!(slack(&clock), Some(Duration::from_micros(4096)));
        let manual = ManualClock::new();
        manual.advance(Duration::from_secs(3));
        let clock = Clock::from(manual).timer_slack(Duration::ZERO);
        assert_eq!(clock.now().since(Nanos::ZERO).as_secs(), 3);
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
