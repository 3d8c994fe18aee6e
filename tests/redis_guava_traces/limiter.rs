//! The same over Redis: the clock that a wait moves forward drives the process and the server alike.

use std::time::Duration;

use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{Error, ManualClock, Rate, Rated};

use crate::manual::{Manual, new_key};
use crate::subject::Verbs;

pub(crate) fn limiter_of<P: Scripted>(
    policy: P,
    clock: &ManualClock,
) -> RedisRateLimiter<P, Manual> {
    let builder = RedisRateLimiter::builder(policy.clone(), Manual::new(clock), new_key());
    let limiter = builder.clock(clock).build();
    // Guava's limiter begins when it is made, a key when it is first written: that is now.
    limiter.blocking_set_policy(policy).expect("Redis is there");
    limiter
}

impl<P: Scripted + Rated<Cost = u32>> Verbs for RedisRateLimiter<P, Manual> {
    fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        self.blocking_acquire(permits).map(|grant| grant.waited())
    }

    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error> {
        self.blocking_try_acquire_timeout(permits, timeout).map(|grant| grant.waited())
    }

    fn change_rate(&self, rate: Rate) {
        self.blocking_set_rate(rate).expect("Redis is there");
    }
}
