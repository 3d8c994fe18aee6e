//! Mistakes in reckoning: overflow, intervals cut to nanoseconds, remainders thrown away, units.

use std::time::Duration;

use tollgate::{
    Error, FixedWindow, Gcra, LeakyBucket, Policy, Rate, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::on_hold;
use crate::support::{ms, secs};

/// Elapsed time cut to whole microseconds at each refusal: 52 in 100 s instead of 100. Here a hundred
/// times as fast, to be done in time; the cut would be the same.
#[test]
fn polling_each_1_9_us_loses_no_remainder() {
    fn granted<P: Policy<Cost = u32>>(policy: P) -> u32 {
        let (clock, limiter) = on_hold(policy);
        let mut granted = 0;
        while clock.elapsed() < secs(1) {
            clock.advance(Duration::from_nanos(1900));
            granted += u32::from(limiter.try_acquire(1).is_ok());
        }
        granted
    }

    let rate = Rate::per_second(100.0);
    // The first grant of a limiter, and a hundred more.
    assert_eq!(granted(SmoothBursty::new(rate)), 101);
    assert_eq!(granted(TokenBucket::new(rate, 10).initial(0)), 100);
    let steps = Duration::from_nanos(700);
    assert_eq!(granted(TokenBucket::new(rate, 10).initial(0).refill_every(steps)), 100);
    // Full until the first poll: what the first 1.9 us bring has no room, and misses in the end.
    assert_eq!(granted(Gcra::new(9, 100, secs(1))), 109);
    assert_eq!(granted(LeakyBucket::meter(rate, 10)), 109);
    // These count from the grant, which is late by up to one poll.
    for granted in [
        granted(FixedWindow::new(1, ms(10))),
        granted(SlidingWindowLog::new(1, ms(10))),
        granted(LeakyBucket::new(rate, 2).with_catch_up(Duration::ZERO)),
        granted(SmoothBursty::new(rate).max_burst(Duration::ZERO)),
    ] {
        assert_eq!(granted, 100);
    }
}

#[test]
fn a_huge_request_does_not_wrap_the_ticket() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let (clock, limiter) = on_hold(policy);
        let mut grant = limiter.try_acquire(1).expect("a grant");
        // More and more is owed, as far as the clock can say; from there on it is refused.
        let mut owed = Duration::ZERO;
        for _ in 0..5000 {
            match grant.settle(u32::MAX) {
                Ok(()) => {}
                Err(Error::ExceedsCapacity(_)) => break,
                Err(error) => panic!("{error}"),
            }
            let error = limiter.try_acquire(1).expect_err("owed");
            let wait = error.retry_after().expect("a time");
            assert!(wait >= owed, "{wait:?} after {owed:?}");
            assert_eq!(limiter.available(), 0);
            owed = wait;
            // The debt that a call has added is kept, so that the next call adds the same.
            grant.settle(1).expect("less");
        }
        assert!(owed > secs(1));
        clock.advance(secs(1));
        assert!(limiter.try_acquire(1).is_err());
    }

    for per_second in [1.0, 1e9] {
        let rate = Rate::per_second(per_second);
        check(SmoothBursty::new(rate));
        check(SmoothWarmingUp::new(rate, secs(1)));
        check(TokenBucket::new(rate, u32::MAX));
        check(TokenBucket::new(rate, 1));
        check(LeakyBucket::meter(rate, 5));
        check(LeakyBucket::new(rate, 5));
    }
    check(Gcra::new(u32::MAX, 1, secs(1)));
    check(Gcra::new(0, 1_000_000_000, secs(1)));
    for limit in [1, u32::MAX] {
        check(FixedWindow::new(limit, secs(2)));
        check(SlidingWindowLog::new(limit, secs(2)));
        check(SlidingWindowCounter::new(limit, secs(2), 10));
    }
}
