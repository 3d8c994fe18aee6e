use super::AnyRateLimiter;
use crate::park::block_on;
use crate::{InFlight, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};

#[test]
fn a_limiter_with_several_costs_has_a_dyn_form_too() {
    let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    let limiter = RateLimiter::with_clock((tokens, InFlight::new(1)), ManualClock::new());
    let limiter: AnyRateLimiter<(u32, u32)> = AnyRateLimiter::new(limiter);
    let grant = block_on(limiter.try_acquire((800, 1))).expect("unused");
    assert_eq!(grant.cost(), (800, 1));
    assert_eq!(
        block_on(limiter.try_acquire((1, 1)))
            .expect_err("in flight")
            .part()
            .map(crate::Part::index),
        Some(1)
    );
    grant.refund();
    assert_eq!(block_on(limiter.quota()).expect("in process").remaining, (90_000, 1));
}
