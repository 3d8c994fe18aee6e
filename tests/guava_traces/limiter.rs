//! The limiter of this process.

use std::time::Duration;

use tollgate::{Error, ManualClock, Rate, RateLimiter, Rated};

use crate::subject::Verbs;

pub(crate) fn limiter_of<P: Rated>(policy: P, clock: &ManualClock) -> RateLimiter<P> {
    RateLimiter::with_clock(policy, clock.clone())
}

impl<P: Rated<Cost = u32>> Verbs for RateLimiter<P> {
    fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        self.blocking_acquire(permits).map(|grant| grant.waited())
    }

    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error> {
        self.blocking_try_acquire_timeout(permits, timeout).map(|grant| grant.waited())
    }

    fn change_rate(&self, rate: Rate) {
        self.set_rate(rate);
    }
}
