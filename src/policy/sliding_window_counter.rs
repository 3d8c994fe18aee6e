//! The sliding counter.
//!
//! A window is cut into `buckets` equal parts, and what was granted is counted for each. A request is
//! ready when, with it, the last `buckets` counts together are no more than `limit`, the present one
//! included.
//!
//! So any span of `(1 - 1 / buckets) x window` holds no more than `limit`, because it touches no more
//! than `buckets` parts; a whole window can hold twice that, all of it within one part at each end.
//! Units: nanoseconds; a part is rounded up to whole ones.

use super::log::{Log, LogReceipt, Span, logged};
use super::{Policy, Ready, check_span, shows};
use crate::error::ExceedsCapacity;
use crate::units::Nanos;
use std::time::Duration;

/// Never more than `limit` permits in any `(1 - 1 / buckets)` of a window.
///
/// An approximation of [`SlidingWindowLog`](crate::SlidingWindowLog) in little memory: 16 bytes for
/// each of the `buckets` with a grant. With ten buckets the limit holds in any nine
/// tenths of a window. With one it is an aligned [`FixedWindow`](crate::FixedWindow).
///
/// A request for more than the limit is an error at once; with a limit of zero nothing is granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, RateLimiter, SlidingWindowCounter};
///
/// let clock = ManualClock::new();
/// let policy = SlidingWindowCounter::new(3, Duration::from_secs(60), 6);
/// let limiter = RateLimiter::with_clock(policy, clock.clone());
/// clock.advance(Duration::from_secs(9));
/// limiter.try_acquire(3)?;
/// // What was granted in the first ten seconds counts until the seventh ten seconds begin.
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 51);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlidingWindowCounter {
    pub(crate) limit: u32,
    pub(crate) span: Span,
}

shows!(SlidingWindowCounter: |policy| limit = policy.limit, window = Duration::from_nanos(policy.span.window), buckets = policy.span.window.div_ceil(policy.span.part));

impl SlidingWindowCounter {
    /// At most `limit` permits in the present one of `buckets` parts of a window and those before it.
    /// The parts lie at multiples of their length after the clock's origin.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON), or there are no buckets.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, RateLimiter, SlidingWindowCounter};
    ///
    /// let policy = SlidingWindowCounter::new(100, Duration::from_secs(60), 10);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// assert_eq!(limiter.available(), 100);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration, buckets: u32) -> Self {
        check_span(window, "a window");
        assert!(buckets > 0, "a window must have at least one bucket");
        let part = window.as_nanos().div_ceil(u128::from(buckets));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let window = part.saturating_mul(u64::from(buckets));
        Self { limit, span: Span { part, window } }
    }
}

impl Policy for SlidingWindowCounter {
    logged!();
}
