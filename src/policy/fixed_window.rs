//! The fixed window.
//!
//! Time is cut into windows of one length, and at most `limit` permits are granted in each. When a
//! window ends, all of them are there again. So twice the limit can be granted around an edge.
//!
//! With `s` the start of the present window and `c` what was granted in it: `n` are ready at once if
//! `c + n <= limit`, else at `s + window`. Units: nanoseconds, exact.

use super::{Policy, Ready, check_span, shows};
use crate::error::ExceedsCapacity;
use crate::units::{Nanos, saturating_nanos};
use std::time::Duration;

/// At most `limit` permits in each window, one window after the other.
///
/// For servers that count in windows. **Twice the limit can be granted across a boundary**: all of one
/// window at its end, and all of the next at its start. If the server's windows are aligned
/// differently, that exceeds its limit; use a [`SlidingWindowLog`](crate::SlidingWindowLog), which fits
/// any alignment.
///
/// A window starts with the first request after the last one's end; with [`aligned`](Self::aligned)
/// all lie on a grid. A request for more than the limit is an error at once; with a limit of zero
/// nothing is granted.
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
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    pub(crate) limit: u32,
    /// In nanoseconds.
    pub(crate) window: u64,
    /// Where a window of the grid starts, before the first nanosecond of the clock. `None`: with the
    /// first request.
    pub(crate) grid: Option<u64>,
}

shows!(FixedWindow: |policy| limit = policy.limit, window = Duration::from_nanos(policy.window), aligned = policy.grid.is_some());

impl FixedWindow {
    /// At most `limit` permits in each `window`, which starts with its first request.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{FixedWindow, ManualClock, RateLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let policy = FixedWindow::new(1, Duration::from_secs(60));
    /// let limiter = RateLimiter::with_clock(policy, clock.clone());
    /// clock.advance(Duration::from_secs(59));
    /// limiter.try_acquire(1)?;
    /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 60);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration) -> Self {
        check_span(window, "a window");
        Self { limit, window: saturating_nanos(window), grid: None }
    }

    /// Windows that start at whole multiples of their length after the epoch, as "each minute" does.
    /// `epoch` says how long before the clock's origin that was:
    /// [`Clock::since_epoch`](crate::Clock::since_epoch) for the Unix epoch, zero for the clock's own.
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

    /// Where the window starts in which a request at `now` falls: before the clock's origin, perhaps.
    #[inline]
    fn window_at(&self, state: &FixedWindowState, now: Nanos) -> i64 {
        // A clock that has gone back does not start another window.
        if now < self.end(state) {
            return state.start;
        }
        let into = self.grid.map_or(0, |grid| {
            // No more than 2^64: both remainders are below 2^62.
            (now.get() % self.window + grid) % self.window
        });
        signed(now.get()) - signed(into)
    }

    /// Out of line, because most calls find room in the present window.
    #[inline(never)]
    fn is_ready_in_the_next_window(&self, state: &FixedWindowState, now: Nanos, n: u32) -> bool {
        n <= self.limit && self.end(state) <= now
    }

    fn end(&self, state: &FixedWindowState) -> Nanos {
        let end = state.start.saturating_add(signed(self.window));
        Nanos::new(end.max(0).cast_unsigned())
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// What a [`FixedWindow`] remembers: the window of the last grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    start: i64,
    /// More than the limit after a lower one was set, or a [`settle`](crate::Grant::settle).
    granted: u64,
}

/// In which window a charge was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowReceipt {
    start: i64,
}

impl Policy for FixedWindow {
    type Cost = u32;
    type State = FixedWindowState;
    type Receipt = FixedWindowReceipt;

    fn start(&self, _: Nanos) -> FixedWindowState {
        FixedWindowState { start: i64::MIN, granted: 0 }
    }

    fn idle_at(&self, state: &FixedWindowState) -> Option<Nanos> {
        Some(self.end(state))
    }

    #[inline]
    fn ready_at(
        &self,
        state: &FixedWindowState,
        now: Nanos,
        n: u32,
    ) -> Result<Ready, ExceedsCapacity> {
        if n > self.limit {
            return Err(ExceedsCapacity::new(u64::from(self.limit)));
        }
        let fits = state.granted + u64::from(n) <= u64::from(self.limit);
        Ok(Ready::At(if fits { now } else { self.end(state) }))
    }

    #[inline(always)]
    fn ready_now(&self, state: &FixedWindowState, now: Nanos, n: u32) -> bool {
        state.granted + u64::from(n) <= u64::from(self.limit)
            || self.is_ready_in_the_next_window(state, now, n)
    }

    #[inline(always)]
    fn charge(&self, state: &mut FixedWindowState, at: Nanos, n: u32) -> FixedWindowReceipt {
        let start = self.window_at(state, at);
        if start != state.start {
            *state = FixedWindowState { start, granted: 0 };
        }
        // As in a log, it never wraps.
        state.granted += u64::from(n);
        FixedWindowReceipt { start }
    }

    /// Exact within the window, which stays begun; afterwards there is nothing to give back.
    fn refund(
        &self,
        state: &mut FixedWindowState,
        _: Nanos,
        part: u32,
        receipt: FixedWindowReceipt,
    ) -> FixedWindowReceipt {
        if state.start == receipt.start {
            state.granted = state.granted.saturating_sub(u64::from(part));
        }
        receipt
    }

    const SMALL: bool = true;

    /// What was granted in the last window counts for as long as the new one would last from there.
    fn migrate(&self, _: &Self, _: &mut FixedWindowState, _: Nanos) {}

    fn available(&self, state: &FixedWindowState, now: Nanos) -> u32 {
        let granted = if now < self.end(state) { state.granted } else { 0 };
        self.limit.saturating_sub(u32::try_from(granted).unwrap_or(u32::MAX))
    }
}
