//! No permits at all, and more than there will ever be.

use std::time::Duration;

use tollgate::{
    Error, Gcra, KeyedRateLimiter, LeakyBucket, ManualClock, Policy, Rate, RateLimiter,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::support::{Limiter, bounded, finishes, outcome, secs};

/// Every method with a cost of nothing.
#[track_caller]
fn assert_nothing_is_free(limiter: &Limiter) {
    let waits = [
        limiter.try_acquire(0).expect("a grant").waited(),
        outcome(&mut limiter.acquire(0)).expect("a grant").waited(),
        outcome(&mut limiter.acquire_owned(0)).expect("a grant").waited(),
        outcome(&mut limiter.try_acquire_timeout(0, Duration::ZERO)).expect("a grant").waited(),
        limiter.blocking_acquire(0).expect("a grant").waited(),
        limiter.try_acquire_timeout(0, secs(1)).blocking_wait().expect("a grant").waited(),
        limiter.reserve(0).expect("a grant").delay(),
        limiter.reserve(0).expect("a grant").blocking_wait().expect("a grant").waited(),
    ];
    assert_eq!(waits, [Duration::ZERO; 8]);
    // Nor is there anything to give back.
    limiter.try_acquire(0).expect("a grant").refund();
    limiter.try_acquire(0).expect("a grant").settle(0).expect("nothing");
}

#[test]
fn a_cost_of_nothing_is_granted_at_once_behind_a_queue_and_in_a_pause() {
    finishes(|| {
        let (clock, limiter) = bounded(5.0, 1, 10);
        limiter.try_acquire(10).expect("a new limiter grants at once");
        assert_nothing_is_free(&limiter);
        let waiting = limiter.reserve(10).expect("a place");
        assert_nothing_is_free(&limiter);
        limiter.pause_for(secs(60));
        assert_nothing_is_free(&limiter);
        assert_eq!((limiter.queue_len(), waiting.delay()), (1, secs(60)));
        drop(waiting);
        assert_nothing_is_free(&limiter);
        clock.advance(secs(60));
        assert!(limiter.try_acquire(1).is_ok());
        assert!(limiter.try_acquire(1).is_err());
    });
}

#[track_caller]
fn exceeds<T>(result: Result<T, Error>) -> u64 {
    let error = result.err().expect("too many");
    assert_eq!(error.retry_after(), None);
    let Error::ExceedsCapacity(exceeds) = error else { panic!("{error:?}") };
    exceeds.max
}

/// 12 million years, of which another limiter made 0 by overflow, and granted.
#[test]
fn a_request_beyond_the_horizon_names_the_most_and_takes_nothing() {
    finishes(|| {
        let clock = ManualClock::new();
        let daily = SmoothBursty::new(Rate::every(secs(86_400)));
        let limiter = RateLimiter::with_clock(daily, clock.clone());
        for n in [u32::MAX, 213_505, 106_752, 53_376] {
            assert_eq!(exceeds(limiter.try_acquire(n)), 53_375);
            assert_eq!(exceeds(outcome(&mut limiter.acquire(n))), 53_375);
            assert_eq!(
                exceeds(outcome(&mut limiter.try_acquire_timeout(n, Duration::MAX))),
                53_375
            );
            assert_eq!(exceeds(limiter.blocking_acquire(n)), 53_375);
            assert_eq!(
                exceeds(limiter.try_acquire_timeout(n, Duration::MAX).blocking_wait()),
                53_375
            );
            assert_eq!(exceeds(limiter.reserve(n)), 53_375);
        }
        assert_eq!(limiter.queue_len(), 0);
        let mut grant = limiter.try_acquire(1).expect("nothing was taken");
        assert_eq!(exceeds(grant.settle(u32::MAX)), 53_375);
        let error = limiter.try_acquire(1).expect_err("one was taken");
        assert_eq!(error.retry_after(), Some(secs(86_400)));
        clock.advance(secs(86_400));
        assert!(limiter.try_acquire(53_375).is_ok());
    });
}

#[test]
fn a_request_beyond_the_horizon_is_refused_while_warming_up_too() {
    let clock = ManualClock::new();
    let daily = SmoothWarmingUp::new(Rate::every(secs(86_400)), secs(1));
    let limiter = RateLimiter::with_clock(daily, clock.clone());
    assert_eq!(exceeds(limiter.try_acquire(u32::MAX)), 53_375);
    assert!(limiter.try_acquire(53_375).is_ok());
    let error = limiter.try_acquire(1);
    assert!(error.is_err());
    // As many as that can wait, too.
    let limiter = RateLimiter::with_clock(
        SmoothWarmingUp::new(Rate::every(secs(86_400)), secs(1)),
        ManualClock::new(),
    );
    limiter.try_acquire(1).expect("a grant");
    assert_eq!(exceeds(limiter.reserve(53_376)), 53_375);
    drop(limiter.reserve(53_375).expect("a place"));
}

/// At a permit each 2^46 ns the horizon is 2^16 permits, to the nanosecond.
#[test]
fn what_is_owed_for_longer_than_the_horizon_cannot_grow() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy, &clock);
        let owe = |n| limiter.try_acquire(0).expect("nothing").settle(n);
        assert_eq!(exceeds(owe(65_537)), 65_536);
        owe(65_536).expect("the horizon");
        owe(65_536).expect("more, as it is paid within the horizon");
        assert_eq!(exceeds(owe(1)), 0);
        clock.advance(Duration::from_nanos((1 << 62) - 1));
        assert_eq!(exceeds(owe(1)), 0);
        clock.advance(Duration::from_nanos(1));
        owe(1).expect("half is paid");
    }
    let rate = Rate::every(Duration::from_nanos(1 << 46));
    check(SmoothBursty::new(rate));
    check(SmoothWarmingUp::new(rate, secs(1)).cold_factor(1.0));
    check(TokenBucket::new(rate, 5).initial(0));
    check(LeakyBucket::new(rate, 5));
}

/// No more, by a word or under a lock, though there the unit of time is a permit.
#[test]
fn at_the_highest_rate_a_store_holds_what_it_should() {
    fn check<P: Policy<Cost = u32>>(policy: impl Fn(u32) -> P, name: &str) {
        for capacity in [1, 2, 100] {
            for idle in [0, 1, capacity, capacity + 1, capacity + 2, 3 * capacity] {
                let clock = ManualClock::new();
                clock.advance(secs(1));
                let limiter = RateLimiter::with_clock(policy(capacity), &clock);
                let keyed = KeyedRateLimiter::<u32, _>::builder(policy(capacity)).clock(&clock);
                let keyed = keyed.build();
                limiter.try_acquire(capacity).expect(name);
                keyed.at(&7).try_acquire(capacity).expect(name);
                clock.advance(Duration::from_nanos(u64::from(idle)));
                let of = |ask: &dyn Fn() -> bool| (0..1000).filter(|_| ask()).count();
                let all = [
                    of(&|| limiter.try_acquire(1).is_ok()),
                    of(&|| keyed.at(&7).try_acquire(1).is_ok()),
                ];
                let there = capacity.min(idle) as usize;
                assert_eq!(all, [there; 2], "{name} of {capacity} after {idle} ns");
            }
        }
    }
    let rate = Rate::per_second(1e9);
    let strict = Duration::ZERO;
    check(|n| TokenBucket::new(rate, n).with_catch_up(strict), "TokenBucket");
    check(|n| LeakyBucket::meter(rate, n).with_catch_up(strict), "LeakyBucket::meter");
    check(|n| Gcra::new(n - 1, 1_000_000_000, secs(1)).with_catch_up(strict), "Gcra");
}

#[test]
fn a_queue_of_the_greatest_costs_does_not_overflow() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1e9)), clock.clone());
    let line: Vec<_> = (0..1000).map(|_| limiter.reserve(u32::MAX).expect("a place")).collect();
    let span = Duration::from_nanos(u64::from(u32::MAX));
    assert_eq!(line[999].delay(), span * 999);
    let error = limiter.try_acquire(u32::MAX).expect_err("a line");
    assert_eq!(error.retry_after(), Some(span * 1000));
}

/// Each request is within the horizon, and all together are not. Waiters with a place keep it.
#[test]
fn a_queue_beyond_the_horizon_is_served_in_its_time() {
    let clock = ManualClock::new();
    let daily = SmoothBursty::new(Rate::every(secs(86_400)));
    let limiter = RateLimiter::with_clock(daily, clock.clone());
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let line: Vec<_> = (0..100).map(|_| limiter.reserve(53_000).expect("a place")).collect();
    assert_eq!(line[1].delay(), secs(86_400) * 53_001);
    assert!(line[99].delay() > secs(86_400) * 100_000);
    let mut timed = limiter.try_acquire_timeout(1, secs(86_400) * 100_000);
    assert!(outcome(&mut timed).is_err());
    clock.advance(secs(86_400) * 60_000);
    assert_eq!(limiter.queue_len(), 98);
}
