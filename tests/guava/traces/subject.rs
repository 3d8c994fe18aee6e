//! `tollgate` as the traces need it: one of the two smooth policies, made from a trace's
//! description, on a clock that a wait moves forward as Guava's fake stopwatch does. Public API
//! only. The test chooses the kind of limiter.

use std::time::Duration;

use tollgate::{Error, ManualClock, Rate, SmoothBursty, SmoothWarmingUp};

use super::trace;

pub(crate) struct Subject {
    limiter: Box<dyn Verbs>,
    clock: ManualClock,
}

impl Subject {
    pub(crate) fn new(limiter: trace::Limiter, make: Make) -> Self {
        let clock = ManualClock::auto_advance();
        let rate = rate(limiter.permits_per_second);
        let policy = match limiter.kind {
            trace::Kind::Bursty { max_burst_seconds } => {
                let burst = Duration::from_secs_f64(max_burst_seconds);
                Smooth::Bursty(SmoothBursty::new(rate).max_burst(burst))
            }
            trace::Kind::WarmingUp { warm_up_micros, cold_factor } => {
                let policy = SmoothWarmingUp::new(rate, micros(warm_up_micros));
                Smooth::WarmingUp(policy.cold_factor(cold_factor))
            }
        };
        Self { limiter: make(policy, &clock), clock }
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

fn rate(permits_per_second: f64) -> Rate {
    Rate::try_per_second(permits_per_second).expect("a rate in range")
}

/// The traces' microseconds are signed. None of those that become a duration is negative, but for
/// timeouts, where it means 0.
pub(crate) fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) enum Smooth {
    Bursty(SmoothBursty),
    WarmingUp(SmoothWarmingUp),
}

pub(crate) type Make = fn(Smooth, &ManualClock) -> Box<dyn Verbs>;

/// The two limiters behind one face.
pub(crate) trait Verbs {
    fn acquire(&self, permits: u32) -> Result<Duration, Error>;
    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error>;
    fn change_rate(&self, rate: Rate);
}
