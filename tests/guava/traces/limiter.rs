//! The limiter of this process.

use std::time::Duration;

use tollgate::{Error, ManualClock, Rate, RateLimiter, Rated};

use super::subject::{Smooth, Verbs};

pub(crate) fn make(policy: Smooth, clock: &ManualClock) -> Box<dyn Verbs> {
    let clock = clock.clone();
    match policy {
        Smooth::Bursty(policy) => Box::new(RateLimiter::with_clock(policy, clock)),
        Smooth::WarmingUp(policy) => Box::new(RateLimiter::with_clock(policy, clock)),
    }
}

impl<P: Rated<Cost = u32>> Verbs for RateLimiter<P> {
    fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        self.blocking_acquire(permits).map(|grant| grant.waited())
    }

    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error> {
        self.try_acquire_timeout(permits, timeout).blocking_wait().map(|grant| grant.waited())
    }

    fn change_rate(&self, rate: Rate) {
        self.set_rate(rate);
    }
}
