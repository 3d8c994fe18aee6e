//! The options of a limiter over Redis.

use std::time::Duration;

use crate::clock::Clock;
use crate::observe::Reports;

/// What callers get while Redis is unavailable. The choice decides whether the fleet's quota may be
/// exceeded.
///
/// ```
/// use tollgate::redis::Unavailable;
/// use tollgate::{Rate, SmoothBursty};
///
/// // Eight processes share 80 a second. Alone, each takes its share.
/// let share = SmoothBursty::new(Rate::per_second(10.0));
/// let unavailable = Unavailable::Local(share);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Unavailable<P> {
    /// An [`Error::Store`](crate::Error::Store) at once. The limit is not exceeded.
    #[default]
    Fail,
    /// A grant at once, without any limit.
    Allow,
    /// A limiter of this process with this policy for each key, usually a share of the whole.
    Local(P),
}

/// See [`RedisRateLimiterBuilder`](super::RedisRateLimiterBuilder).
pub(super) struct Options<P> {
    pub(super) reports: Reports,
    pub(super) horizon: Duration,
    pub(super) deadline: Duration,
    pub(super) lease: Duration,
    pub(super) refresh: Duration,
    pub(super) absent_is_new: bool,
    pub(super) version: u32,
    pub(super) keep: Duration,
    pub(super) unavailable: Unavailable<P>,
    pub(super) max_waiters: usize,
    pub(super) max_queued_permits: u64,
    pub(super) clock: Clock,
}
