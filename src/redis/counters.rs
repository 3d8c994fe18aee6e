//! Counters of the requests of a shared limiter.

/// Request counters of a limiter, all keys together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests sent to Redis.
    pub requests: u64,
    /// Calls in these requests; a call counts each time until its turn is near.
    pub asked: u64,
    /// Calls refused by a cached reply, without a request.
    pub denied_locally: u64,
    /// Requests without a reply whose permits may have been consumed. Probes do not count.
    pub lost: u64,
    /// Calls served without Redis because it was away.
    pub without_redis: u64,
    /// Requests that failed, whether they are tried again or not.
    pub failed: u64,
}
