//! The sliding log.
//!
//! The time of each grant is kept for one window. A request is ready when, including it, at most `limit`
//! permits lie in the window that ends now. So at most `limit` permits lie in *any* window, wherever it
//! starts.
//!
//! Let `t1 <= t2 <= ..` be the times of the permits in the last window. `n` permits are ready when all but
//! `limit - n` of them are a window old. A window is half open: a permit granted at `t` is outside it at
//! `t + window`. Units: nanoseconds, exact.

use super::grant_log::{Log, LogReceipt, Span, logged};
use super::headroom::{Headroom, Rest, keep};
use super::rule::Facts;
use super::{Policy, Ready, check_span, shows};
use crate::error::ExceedsCapacity;
use crate::part::Kind;
use crate::units::{Nanos, saturating_nanos};
use std::time::Duration;

/// At most `limit` permits in any window, wherever it starts.
///
/// The strictest policy, for a server whose windows are unknown: the limit holds in each of them, however
/// they are aligned. The log takes 12 bytes for each distinct time of a grant within the window. Its buffer grows by
/// doubling, so it may take twice that: 13 MB for a million times, 25 MB for 1.1 million. A large request at a full
/// limit visits each entry that has to leave the window.
///
/// A request for more than the limit is an error at once; with a limit of zero nothing is granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, RateLimiter, SlidingWindowLog};
///
/// let clock = ManualClock::new();
/// let policy = SlidingWindowLog::new(3, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, clock.clone());
/// limiter.try_acquire(1)?;
/// clock.advance(Duration::from_secs(50));
/// limiter.try_acquire(2)?;
/// let wait = |n| limiter.try_acquire(n).unwrap_err().retry_after().unwrap().as_secs();
/// assert_eq!((wait(1), wait(2)), (10, 60));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlidingWindowLog {
    pub(crate) limit: u32,
    pub(crate) span: Span,
}

shows!(SlidingWindowLog: |policy| limit = policy.limit, window = Duration::from_nanos(policy.span.window));

impl SlidingWindowLog {
    /// At most `limit` permits in any `window`.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON).
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration) -> Self {
        check_span(window, "a window");
        Self { limit, span: Span { part: 1, window: saturating_nanos(window) } }
    }

    /// The permits in any window.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.span.window)
    }
}

impl Policy for SlidingWindowLog {
    logged!(SlidingWindowLog);
}

keep! {
    SlidingWindowLog: |it, rest| {
        let window = rest.of_time(it.span.window, Nanos::HORIZON);
        Self { span: Span { window, ..it.span }, ..it }
    };
}
