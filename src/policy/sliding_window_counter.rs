//! The sliding counter.
//!
//! A window is divided into `buckets` equal parts, with a count of granted permits for each part. A request
//! is ready when the last `buckets` counts, including the current one and the request, are together at most
//! `limit`.
//!
//! So any span of `(1 - 1 / buckets) x window` holds at most `limit` permits, because it touches at most
//! `buckets` parts. A whole window can hold twice the limit, within one part at each end. Units:
//! nanoseconds; the length of a part is rounded up to whole nanoseconds.

use super::grant_log::{Log, LogReceipt, Span, logged};
use super::headroom::{Headroom, Rest, keep};
use super::rule::Facts;
use super::{Policy, Ready, check_span, shows};
use crate::error::ExceedsCapacity;
use crate::part::Kind;
use crate::units::Nanos;
use std::time::Duration;

/// At most `limit` permits in any `(1 - 1 / buckets)` of a window.
///
/// An approximation of [`SlidingWindowLog`](crate::SlidingWindowLog) that needs little memory: 12 bytes for
/// each bucket with a grant. With ten buckets the limit holds in any nine tenths of a window. With one
/// bucket the policy is an aligned [`FixedWindow`](crate::FixedWindow).
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
/// // Grants of the first ten seconds count until the seventh ten seconds begin.
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 51);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlidingWindowCounter {
    pub(crate) limit: u32,
    pub(crate) span: Span,
}

shows!(SlidingWindowCounter: |policy| limit = policy.limit, window = Duration::from_nanos(policy.span.window), buckets = policy.buckets());

impl SlidingWindowCounter {
    /// At most `limit` permits in the last `buckets` parts of `window / buckets` each, including the current
    /// part. The parts start at multiples of their length after the clock's origin.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON), or there are no buckets.
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

    /// The number of parts of a window that are counted.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        u32::try_from(self.span.window.div_ceil(self.span.part)).unwrap_or(u32::MAX)
    }

    /// The permits in any window, approximately.
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

impl Policy for SlidingWindowCounter {
    logged!(SlidingWindowCounter);
}

keep! {
    /// A counter is made of its parts.
    SlidingWindowCounter: |it, rest| {
        let buckets = u32::try_from(it.span.window / it.span.part).unwrap_or(u32::MAX);
        let part = rest.of_time(it.span.part, Nanos::HORIZON / buckets);
        Self { span: Span { part, window: part.saturating_mul(buckets.into()) }, ..it }
    };
}
