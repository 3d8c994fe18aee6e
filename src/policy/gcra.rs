//! The generic cell rate algorithm: permits have theoretical arrival times, one emission interval apart, and a request
//! may arrive earlier by at most a tolerance, the time that fills a bucket of `max_burst + 1` permits.
//!
//! Let `TAT` be the theoretical arrival time. `n` permits are ready at `max(TAT, t) + n x interval - tolerance`; charging
//! them sets `TAT = max(TAT, t) + n x interval`. The [`schedule`](super::schedule) keeps `TAT - tolerance`.
//!
//! Source: ITU-T I.371 and ATM Forum TM 4.0; arguments and answers as in redis-cell's `CL.THROTTLE`.

use super::rated::*;

/// `count` permits per `period`, of which `max_burst + 1` can be granted at once.
///
/// The same limit as a [`TokenBucket`](crate::TokenBucket) of `max_burst + 1`, with the arguments of
/// redis-cell. Its five results are available as:
///
/// | redis-cell | tollgate |
/// |---|---|
/// | limited | `try_acquire(n).is_err()` |
/// | limit | [`quota().limit`](crate::Quota::limit), `max_burst + 1` |
/// | remaining | [`quota().remaining`](crate::Quota::remaining) |
/// | retry after | [`error.retry_after()`](crate::Error::retry_after) |
/// | reset after | [`quota().reset_after`](crate::Quota::reset_after) |
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, RateLimiter};
///
/// // CL.THROTTLE key 15 30 60
/// let policy = Gcra::new(15, 30, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// limiter.try_acquire(16)?;
/// let quota = limiter.quota();
/// assert_eq!((quota.limit, quota.remaining), (16, 0));
/// assert_eq!(quota.reset_after, Some(Duration::from_secs(32)));
/// let error = limiter.try_acquire(1).unwrap_err();
/// assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    pub(crate) rate: Rate,
    pub(crate) max_burst: u32,
    pub(crate) catch_up: Duration,
    pub(crate) schedule: Schedule,
}

impl Gcra {
    /// `count` permits per `period`, and up to `max_burst + 1` at once. A new limiter starts with the full
    /// burst.
    ///
    /// # Panics
    ///
    /// If `count` per `period` is not between 1 per day and 1e9 per second.
    #[must_use]
    #[track_caller]
    pub fn new(max_burst: u32, count: u32, period: Duration) -> Self {
        Self::of(Rate::new(u64::from(count), period), max_burst)
    }

    pub(crate) fn of(rate: Rate, max_burst: u32) -> Self {
        let schedule = Schedule::bucket(rate, max_burst.saturating_add(1));
        Self { rate, max_burst, catch_up: TWO_TICKS, schedule }
    }
}

scheduled! {
    Gcra,
    schedule: |it| Schedule::bucket(it.rate, it.max_burst.saturating_add(1)),
    start: |gcra, now| gcra.schedule.full(now),
    migrate: |gcra, old, state, now| gcra.schedule.migrate_number(&old.schedule, state, now)
}
