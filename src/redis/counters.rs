//! Counters of the requests of a shared limiter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// Requests with a reply in time.
    pub answered: u64,
    /// The sum of the times from making a request to its reply. Divided by `answered` it is the mean.
    pub latency: Duration,
    /// Requests that failed, whether they are tried again or not.
    pub failed: u64,
    /// Requests for a key that holds something else: another kind of policy, another format, or data of another
    /// program.
    pub foreign: u64,
}

/// [`Counters`] while they are counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: Count,
    pub(super) asked: Count,
    pub(super) denied_locally: Count,
    pub(super) lost: Count,
    pub(super) without_redis: Count,
    pub(super) answered: Count,
    /// In nanoseconds.
    pub(super) latency: Count,
    pub(super) failed: Count,
    pub(super) foreign: Count,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn add_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    pub(super) fn read(&self) -> Counters {
        Counters {
            requests: self.requests.read(),
            asked: self.asked.read(),
            denied_locally: self.denied_locally.read(),
            lost: self.lost.read(),
            without_redis: self.without_redis.read(),
            answered: self.answered.read(),
            latency: Duration::from_nanos(self.latency.read()),
            failed: self.failed.read(),
            foreign: self.foreign.read(),
        }
    }
}
