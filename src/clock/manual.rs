//! A clock that tests move.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::real::Mutex;

use super::alarm::{AfterUnlock, Alarms, ByHand, NewAlarm};
use super::time_order::Timed;
use crate::units::Nanos;

/// A clock that moves only by [`advance`](ManualClock::advance), for tests and examples.
///
/// Clones share one time. `advance` goes through all due times in order, and grants and wakes waiters there.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
/// limiter.try_acquire(1)?;
/// assert!(limiter.try_acquire(1).is_err());
/// clock.advance(Duration::from_millis(200));
/// limiter.try_acquire(1)?;
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// Let tasks reach their wait before the clock moves:
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let clock = ManualClock::new();
/// # let policy = SmoothBursty::new(Rate::per_second(5.0));
/// # let limiter = RateLimiter::with_clock(policy, clock.clone());
/// limiter.acquire(1).await?;
/// let task = tokio::spawn(limiter.acquire_owned(1));
/// tokio::task::yield_now().await;
/// assert_eq!(limiter.queue_len(), 1);
/// clock.advance(Duration::from_millis(200));
/// assert_eq!(task.await??.waited().as_millis(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If the code also sleeps, use `Clock::tokio()` in a paused runtime: this clock moves no timers but a limiter's. The [system
/// clock](crate::Clock::system), which limiters have by default, does not stand still there.
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What it shows.
    shown: AtomicU64,
    /// The latest time that it has shown: the time of limiters.
    latest: AtomicU64,
    /// Whether callers that would wait move it.
    by_itself: bool,
    alarms: Mutex<Alarms>,
}

/// The time that it shows.
impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.elapsed()).finish()
    }
}

impl ManualClock {
    /// A clock at its origin that stands still until [`advance`](ManualClock::advance).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that skips waits: a caller that would wait moves it to the end of its wait.
    ///
    /// Waits then take no time, and the clock shows how long they would have been. It is meant for
    /// one caller at a time; if several wait, each moves the clock for all. A caller that waits for a place
    /// [in flight](crate::InFlight) moves it when the place has come back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    ///
    /// let clock = ManualClock::auto_advance();
    /// let policy = SmoothBursty::new(Rate::per_minute(1.0));
    /// let limiter = RateLimiter::with_clock(policy, clock.clone());
    /// limiter.blocking_acquire(1)?;
    /// limiter.blocking_acquire(1)?;
    /// assert_eq!(clock.elapsed(), Duration::from_secs(60));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn auto_advance() -> Self {
        Self { shared: Arc::new(Shared { by_itself: true, ..Shared::default() }) }
    }

    /// Moves the clock forward. It stops at each due time on the way, in order, and there grants permits and wakes
    /// their waiters. A caller that joins a queue meanwhile, on another thread, is granted by the time to which
    /// the clock is moved. The clock ends at [`Nanos::END`], 292 years on. One thread at a time may move it.
    ///
    /// Woken tasks run when their executor gets to them, after this call, and see the time to which the clock was moved.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::from_secs(3));
    /// clock.clone().advance(Duration::from_secs(4));
    /// assert_eq!(clock.elapsed(), Duration::from_secs(7));
    /// ```
    pub fn advance(&self, duration: Duration) {
        self.advance_to(self.shown().saturating_add(duration));
    }

    /// Sets the clock to a time since its origin: forward, as [`advance`](Self::advance) does, or **back**, as a
    /// faulty clock would. After a step back no time passes for limiters until the clock shows a later time than
    /// ever before: they keep what they had stored, and add nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// let clock = ManualClock::new();
    /// let policy = TokenBucket::new(Rate::per_second(1.0), 10).initial(0);
    /// let limiter = RateLimiter::with_clock(policy, &clock);
    /// clock.set(Duration::from_secs(3));
    /// clock.set(Duration::from_secs(1));
    /// assert_eq!(clock.elapsed(), Duration::from_secs(1));
    /// assert_eq!(limiter.available(), 3);
    /// clock.set(Duration::from_secs(4));
    /// assert_eq!(limiter.available(), 4);
    /// ```
    pub fn set(&self, elapsed: Duration) {
        let time = Nanos::ZERO.saturating_add(elapsed);
        if time < self.shown() {
            self.shared.shown.store(time.get(), Ordering::SeqCst);
        } else {
            self.advance_to(time);
        }
    }

    /// When the next waiter is due, as a time since the clock's origin. `None` if no caller waits, or
    /// none knows until when, as for a place in flight.
    ///
    /// A simulation moves the clock from one event to the next by it. Nothing may be due there after all, as a
    /// caller may have left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::new();
    /// let policy = TokenBucket::new(Rate::per_second(4.0), 1);
    /// let limiter = RateLimiter::with_clock(policy, &clock);
    /// limiter.acquire(1).await?;
    /// assert_eq!(clock.next_due(), None);
    /// let task = tokio::spawn(limiter.acquire_owned(1));
    /// tokio::task::yield_now().await;
    /// assert_eq!(clock.next_due(), Some(Duration::from_millis(250)));
    /// clock.set(Duration::from_millis(250));
    /// assert_eq!(task.await??.waited().as_millis(), 250);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.shared.alarms.lock().first().map(|due| due.since(Nanos::ZERO))
    }

    /// The time since the clock's origin.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shown().since(Nanos::ZERO)
    }

    fn shown(&self) -> Nanos {
        Nanos::new(self.shared.shown.load(Ordering::SeqCst))
    }

    fn advance_to(&self, time: Nanos) {
        let time = time.min(Nanos::END);
        loop {
            let next = self.shared.alarms.lock().pop(time);
            if let Some((due, line)) = next {
                self.reach(due);
                let mut after = AfterUnlock::default();
                line.upgrade().map(|line| line.on_alarm(&mut after));
                after.run();
            } else if self.reach(time) >= time {
                // Only now: another thread may have set an alarm before it saw this time.
                break;
            }
        }
    }

    /// Moves forward, and returns the time of limiters before.
    fn reach(&self, time: Nanos) -> Nanos {
        self.shared.shown.fetch_max(time.get(), Ordering::SeqCst);
        Nanos::new(self.shared.latest.fetch_max(time.get(), Ordering::SeqCst))
    }
}

impl ByHand for ManualClock {
    fn now(&self) -> Nanos {
        Nanos::new(self.shared.latest.load(Ordering::SeqCst))
    }

    fn replace(&self, old: Option<Timed>, new: Option<NewAlarm>) -> Option<Timed> {
        self.shared.alarms.lock().replace(old, new)
    }

    fn advances_by_itself(&self) -> bool {
        self.shared.by_itself
    }

    fn skip_to(&self, due: Nanos) -> bool {
        let skips = self.shared.by_itself && due <= Nanos::END;
        if skips {
            self.advance_to(due);
        }
        skips
    }
}
