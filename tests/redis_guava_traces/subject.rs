//! The same over Redis: a clock that a wait moves forward drives the process and the server alike.

use std::time::Duration;

use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{Error, ManualClock, Rate, Rated, SmoothBursty, SmoothWarmingUp};

use crate::manual::{Manual, new_key};
use crate::trace;

pub(crate) struct Subject {
    limiter: Box<dyn Verbs>,
    clock: ManualClock,
}

impl Subject {
    pub(crate) fn new(limiter: trace::Limiter) -> Self {
        let clock = ManualClock::auto_advance();
        let rate = rate(limiter.permits_per_second);
        let limiter: Box<dyn Verbs> = match limiter.kind {
            trace::Kind::Bursty { max_burst_seconds } => {
                let burst = Duration::from_secs_f64(max_burst_seconds);
                Box::new(limiter_of(SmoothBursty::new(rate).max_burst(burst), &clock))
            }
            trace::Kind::WarmingUp { warm_up_micros, cold_factor } => {
                let policy = SmoothWarmingUp::new(rate, micros(warm_up_micros));
                Box::new(limiter_of(policy.cold_factor(cold_factor), &clock))
            }
        };
        Self { limiter, clock }
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Returns the wait.
    pub(crate) fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        self.timed(|limiter| limiter.acquire(permits))
    }

    /// Returns the wait.
    pub(crate) fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error> {
        self.timed(|limiter| limiter.try_acquire(permits, timeout))
    }

    pub(crate) fn set_rate(&self, permits_per_second: f64) {
        self.limiter.change_rate(rate(permits_per_second));
    }

    /// The wait that a grant names is the time that passes on the clock; a refusal takes none.
    fn timed(
        &self,
        call: impl FnOnce(&dyn Verbs) -> Result<Duration, Error>,
    ) -> Result<Duration, Error> {
        let before = self.clock.elapsed();
        let answer = call(&*self.limiter);
        let waited = answer.as_ref().copied().unwrap_or_default();
        assert_eq!(self.clock.elapsed(), before + waited, "{answer:?}");
        answer
    }
}

fn limiter_of<P: Scripted>(policy: P, clock: &ManualClock) -> RedisRateLimiter<P, Manual> {
    let builder = RedisRateLimiter::builder(policy.clone(), Manual::new(clock), new_key());
    let limiter = builder.clock(clock).build();
    // Guava's limiter begins when it is made, a key when it is first written: that is now.
    limiter.blocking_set_policy(policy).expect("Redis is there");
    limiter
}

fn rate(permits_per_second: f64) -> Rate {
    Rate::try_per_second(permits_per_second).expect("a rate in range")
}

/// The traces' microseconds are signed. None of those that become a duration is negative, but for
/// timeouts, where it means 0.
pub(crate) fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The two limiters behind one face.
trait Verbs {
    fn acquire(&self, permits: u32) -> Result<Duration, Error>;
    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error>;
    fn change_rate(&self, rate: Rate);
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
