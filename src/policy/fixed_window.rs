//! The fixed window: at most `limit` permits are granted in each of the windows that follow each other.
//!
//! Let `s` be the start of the current window and `c` the permits granted in it. `n` permits are ready at once if
//! `c + n <= limit`, else at `s + window`. Units: nanoseconds, exact.

use super::prelude::*;

/// At most `limit` permits in each window; windows do not overlap.
///
/// For servers that count in windows. **Twice the limit can be granted across a boundary**: one window's permits
/// at its end, and the next window's permits at its start. If the server's windows are aligned
/// differently, this exceeds its limit; use a [`SlidingWindowLog`](crate::SlidingWindowLog), which fits any
/// alignment.
///
/// A window starts with the first request after the end of the last window; with
/// [`aligned`](Self::aligned) all windows lie on a grid. A request for more than the limit is an error at
/// once. With a limit of zero nothing is granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FixedWindow, ManualClock, RateLimiter};
///
/// let policy = FixedWindow::new(3, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let waits: Result<Vec<_>, tollgate::Error> =
///     (0..5).map(|_| Ok(limiter.blocking_acquire(1)?.waited().as_secs())).collect();
/// assert_eq!(waits?, [0, 0, 0, 60, 0]);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(crate) limit: u32,
    /// In nanoseconds.
    pub(crate) window: u64,
    /// The time from the start of a window on the grid to the origin of the clock. `None`: a window starts with
    /// its first request.
    pub(crate) grid: Option<u64>,
}

impl FixedWindow {
    /// At most `limit` permits in each `window`, which starts with its first request.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON).
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration) -> Self {
        check_span(window, "a window");
        Self { limit, window: saturating_nanos(window), grid: None }
    }

    /// Aligns the windows: they start at whole multiples of their length after the epoch, as "each minute"
    /// does. `epoch` is the time from the epoch to the clock's origin:
    /// [`Clock::since_epoch`](crate::Clock::since_epoch) for the Unix epoch, zero for the clock's own origin.
    ///
    /// The windows keep to the clock. On most systems it stands still while the machine sleeps, and then they are
    /// behind the calendar by that time for ever: where a machine may sleep, set the policy again from time to time, by
    /// [`set_policy`](crate::RateLimiter::set_policy) with `since_epoch` of then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, FixedWindow, ManualClock, RateLimiter};
    ///
    /// let minute = Duration::from_secs(60);
    /// let clock = Clock::system();
    /// let by_the_wall_clock = FixedWindow::new(100, minute).aligned(clock.since_epoch());
    ///
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::with_clock(FixedWindow::new(1, minute).aligned(Duration::ZERO), &clock);
    /// clock.advance(Duration::from_secs(59));
    /// limiter.try_acquire(1)?;
    /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn aligned(self, epoch: Duration) -> Self {
        let into = epoch.as_nanos() % u128::from(self.window);
        Self { grid: Some(u64::try_from(into).unwrap_or_default()), ..self }
    }

    /// The start of the window that contains `now`. It may lie before the clock's origin.
    #[inline]
    fn window_at(&self, state: &FixedWindowState, now: Nanos) -> i64 {
        // A clock that is set back does not start another window.
        if now < self.end(state) {
            return state.start;
        }
        let into = self.grid.map_or(0, |grid| {
            // No more than 2^64: both remainders are below 2^62.
            (now.get() % self.window + grid) % self.window
        });
        signed(now.get()) - signed(into)
    }

    /// It may lie after the clock's end, at which a window lasts.
    fn end(&self, state: &FixedWindowState) -> Nanos {
        Nanos::new(self.window.saturating_add_signed(state.start))
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// The state of a [`FixedWindow`]: the window of the last grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    start: i64,
    /// May exceed the limit after a lower limit was set, or after a [`settle`](crate::Grant::settle).
    granted: u64,
}

impl Policy for FixedWindow {
    type Cost = u32;
    type State = FixedWindowState;
    /// The start of the window of the charge.
    type Receipt = i64;

    fn start(&self, _: Nanos) -> FixedWindowState {
        FixedWindowState { start: i64::MIN, granted: 0 }
    }

    fn idle_at(&self, state: &FixedWindowState) -> Option<Nanos> {
        Some(self.end(state))
    }

    #[inline]
    fn ready_at(&self, state: &Self::State, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
        let limit = u64::from(self.limit);
        if u64::from(n) > limit {
            return Err(ExceedsCapacity::new(n, limit));
        }
        let fits = state.granted + u64::from(n) <= limit;
        Ok(Ready::At(if fits { now } else { self.end(state) }))
    }

    #[inline(always)]
    fn charge(&self, state: &mut FixedWindowState, at: Nanos, n: u32) -> i64 {
        let start = self.window_at(state, at);
        if start != state.start {
            *state = FixedWindowState { start, granted: 0 };
        }
        // It never wraps: that would take 2^32 grants of 2^32 permits.
        state.granted += u64::from(n);
        start
    }

    /// Exact within the window, which keeps its start. After the window there is nothing to give back.
    fn refund(&self, state: &mut Self::State, _: Nanos, part: u32, start: i64) -> i64 {
        if state.start == start {
            state.granted = state.granted.saturating_sub(u64::from(part));
        }
        start
    }

    /// Permits granted in the last window count as long as a window of the new length from the same start.
    fn migrate(&self, _: &Self, _: &mut FixedWindowState, _: Nanos) {}

    fn available(&self, state: &FixedWindowState, now: Nanos) -> u32 {
        let granted = if now < self.end(state) { state.granted } else { 0 };
        self.limit.saturating_sub(u32::try_from(granted).unwrap_or(u32::MAX))
    }

    #[inline]
    fn facts(&self, _: usize) -> Facts {
        Facts {
            kind: Some(Kind::FixedWindow),
            ..Facts::window(self.limit, Duration::from_nanos(self.window))
        }
    }
}
