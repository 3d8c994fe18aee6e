//! The peers, each as its own documentation sets it up.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota};
use throttle_net::{Hybrid, Throttle};
use tollgate::{Rate, RateLimiter, Same, SmoothBursty, TokenBucket};

pub const HOUR: Duration = Duration::from_secs(3600);
pub const PLENTY: u32 = u32::MAX / 2;

/// Fast enough that the ticket has always come.
pub fn bursty() -> RateLimiter<SmoothBursty> {
    RateLimiter::new(SmoothBursty::new(Rate::per_second(1e9)))
}

/// Refuses for as long as a bench takes.
pub fn exhausted() -> RateLimiter<TokenBucket> {
    let limiter = RateLimiter::new(TokenBucket::new(Rate::per_hour(1.0), 1));
    limiter.try_acquire(1).expect("the first is granted");
    limiter
}

/// Two limits as one, which have all that is asked for.
pub fn two() -> RateLimiter<Same<(TokenBucket, TokenBucket)>> {
    let bucket = || TokenBucket::new(Rate::per_second(1e9), PLENTY);
    RateLimiter::new(Same((bucket(), bucket())))
}

/// `burst` at once, then one each `period`.
pub fn governor(period: Duration, burst: u32) -> DefaultDirectRateLimiter {
    let quota = Quota::with_period(period).expect("not zero");
    governor::RateLimiter::direct(quota.allow_burst(NonZeroU32::new(burst).expect("not zero")))
}

pub fn governor_exhausted() -> DefaultDirectRateLimiter {
    let limiter = governor(HOUR, 1);
    limiter.check().expect("the first is granted");
    limiter
}

/// For limiters that refill in steps: what they may store, and what the others may.
pub const TICK: Duration = Duration::from_millis(10);

/// `refill` each `interval`, and `initial` at once.
pub fn leaky_bucket(
    refill: usize,
    interval: Duration,
    initial: usize,
    max: usize,
) -> leaky_bucket::RateLimiter {
    leaky_bucket::RateLimiter::builder()
        .refill(refill)
        .interval(interval)
        .initial(initial)
        .max(max)
        .build()
}

pub fn leaky_bucket_full() -> leaky_bucket::RateLimiter {
    leaky_bucket(1_000_000_000, Duration::from_secs(1), usize::MAX / 4, usize::MAX / 4)
}

pub fn leaky_bucket_exhausted() -> leaky_bucket::RateLimiter {
    leaky_bucket(1, HOUR, 0, 1)
}

pub fn ratelimit(rate: u64, period: Duration, burst: u64, initial: u64) -> ratelimit::Ratelimiter {
    let builder = ratelimit::Ratelimiter::builder(rate).period(period);
    builder.max_tokens(burst).initial_available(initial).build().expect("a limiter")
}

pub fn ratelimit_full() -> ratelimit::Ratelimiter {
    ratelimit(1_000_000_000, Duration::from_secs(1), 1 << 40, 1 << 40)
}

pub fn ratelimit_exhausted() -> ratelimit::Ratelimiter {
    ratelimit(1, HOUR, 1, 0)
}

pub fn throttle_net(period: Duration, burst: u32) -> Throttle {
    Throttle::builder().rate(1, period).burst(burst).try_build().expect("a limiter")
}

pub fn throttle_net_full() -> Throttle {
    Throttle::per_second(u32::MAX)
}

pub fn throttle_net_exhausted() -> Throttle {
    let limiter = throttle_net(HOUR, 1);
    assert!(limiter.try_acquire(), "the first is granted");
    limiter
}

pub fn throttle_net_two() -> Hybrid {
    Hybrid::builder().limiter(throttle_net_full()).limiter(throttle_net_full()).build()
}
