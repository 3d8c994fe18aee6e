//! "60 requests and 90,000 tokens a minute, 10 in flight", as a provider of a model says it.

use std::time::Duration;

use tollgate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, ManualClock, Policy, Rate,
    RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use super::on_hold;
use crate::support::secs;

type Quota = (SlidingWindowLog, TokenBucket, InFlight);

fn quota() -> (ManualClock, RateLimiter<Quota>) {
    let requests = SlidingWindowLog::new(60, secs(60));
    let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    on_hold((requests, tokens, InFlight::new(10)))
}

/// The limit and its window in milliseconds, of an unused limiter.
fn window<P: Policy<Cost = u32>>(policy: P) -> (u32, Option<u128>) {
    let quota = on_hold(policy).1.quota();
    (quota.limit, quota.window.map(|window| window.as_millis()))
}

#[test]
fn each_rule_tells_the_window_of_its_limit() {
    let rate = Rate::per_minute(100.0);
    let short = SmoothBursty::new(Rate::per_second(50.0)).max_burst(Duration::from_millis(20));
    assert_eq!(window(TokenBucket::new(rate, 20)), (20, Some(12_000)));
    assert_eq!(window(TokenBucket::new(rate, 20).refill_every(secs(6))), (20, Some(12_000)));
    assert_eq!(window(Gcra::new(19, 100, secs(60))), (20, Some(12_000)));
    assert_eq!(window(LeakyBucket::meter(rate, 20)), (20, Some(12_000)));
    assert_eq!(window(SmoothBursty::new(Rate::per_second(50.0))), (50, Some(1_000)));
    assert_eq!(window(short), (1, Some(20)));
    // A cold limiter has stored what it yields in six seconds, at the stable rate.
    let warming = SmoothWarmingUp::new(Rate::per_second(5.0), secs(6));
    assert_eq!(window(warming), (30, Some(6_000)));
    assert_eq!(window(FixedWindow::new(7, secs(2))), (7, Some(2_000)));
    assert_eq!(window(SlidingWindowLog::new(7, secs(2))), (7, Some(2_000)));
    assert_eq!(window(SlidingWindowCounter::new(7, secs(2), 4)), (7, Some(2_000)));
    assert_eq!(window(LockOut::new(FixedWindow::new(7, secs(2)), secs(9))), (7, Some(2_000)));
    // One permit's, if no number can be taken at once.
    assert_eq!(window(LeakyBucket::new(Rate::per_second(5.0), 3)), (0, Some(200)));
    // No window: a place comes back when its grant is dropped, and of nothing none comes.
    assert_eq!(window(InFlight::new(7)), (7, None));
    assert_eq!(window(FixedWindow::new(0, secs(2))), (0, None));
    // A bucket holds at most what its rate yields in 146 years.
    let years = secs(53_375 * 86_400).as_millis();
    assert_eq!(
        window(TokenBucket::new(Rate::every(secs(86_400)), u32::MAX)),
        (53_375, Some(years))
    );
}

#[test]
fn a_limiter_that_warms_up_has_its_whole_quota_again_when_it_is_cold() {
    let (clock, limiter) = on_hold(SmoothWarmingUp::new(Rate::per_second(5.0), secs(6)));
    let reset = || limiter.quota().reset_after.expect("a known time");
    assert_eq!(reset(), Duration::ZERO);
    limiter.try_acquire(10).expect("a grant");
    let (last, nanosecond) = (reset(), Duration::from_nanos(1));
    assert!(limiter.quota().remaining < 30 && last > secs(2), "{last:?}");
    clock.advance(last - nanosecond);
    assert_eq!((limiter.quota().remaining, reset()), (29, nanosecond));
    clock.advance(nanosecond);
    assert_eq!((limiter.quota().remaining, reset()), (30, Duration::ZERO));
}

#[test]
fn rules_together_tell_the_slowest_window() {
    let minute = TokenBucket::new(Rate::per_minute(100.0), 20);
    let hour = TokenBucket::new(Rate::per_hour(1000.0), 1000);
    let together = Same((minute.clone(), hour.clone(), InFlight::new(50)));
    assert_eq!(window(together), (20, Some(72_000)));
    assert_eq!(window(Same((minute.clone(), hour.clone()))), (20, Some(72_000)));
    let rules =
        [AnyPolicy::from(minute), AnyPolicy::from(hour), AnyPolicy::from(InFlight::new(50))];
    assert_eq!(window(AllOf::new(rules)), (20, Some(72_000)));
    let quota = quota().1.quota();
    assert_eq!((quota.limit, quota.window), ((60, 90_000, 10), Some(secs(60))));
}

/// What [`tollgate::Quota::window`] promises.
#[test]
fn a_client_that_keeps_to_limit_and_window_is_not_refused_by_buckets() {
    let minute = TokenBucket::new(Rate::per_minute(100.0), 20);
    let hour = TokenBucket::new(Rate::per_hour(1000.0), 900);
    let (clock, limiter) = on_hold(Same((minute, hour)));
    let quota = limiter.quota();
    let window = quota.window.expect("both have a rate");
    for round in 0..200 {
        assert!(limiter.try_acquire(quota.limit).is_ok(), "round {round}");
        clock.advance(window);
    }
    // Nothing is left over either: in the long run it is the rate of the hour.
    assert_eq!(window * 50, secs(3600));
}
