//! Mistakes in reckoning: overflow, intervals cut to nanoseconds, remainders thrown away, units.

use std::time::Duration;

use tollgate::{
    Error, FixedWindow, Gcra, LeakyBucket, ManualClock, Policy, Rate, RateLimiter, Rated, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::on_hold;
use crate::support::{ms, secs};

const DAY: Duration = Duration::from_secs(86_400);

/// Numbers of days that are 2^63, 2^64 and 2^65 ns, and a little more.
const WRAPPING: [u32; 6] = [106_752, 213_504, 213_505, 213_506, 427_009, u32::MAX];

#[test]
fn one_a_day_does_not_overflow_to_a_grant_of_213505() {
    /// `wait`: the wait of one permit after `all`, the most that can be granted at once.
    fn check<P: Policy<Cost = u32>>(policy: P, all: u32, wait: Duration) {
        let (clock, limiter) = on_hold(policy);
        for turn in 0..2 {
            for n in WRAPPING {
                let error = limiter.try_acquire(n).err().unwrap_or_else(|| panic!("{n} granted"));
                let Error::ExceedsCapacity(exceeds) = error else { panic!("{n}: {error}") };
                assert_eq!(exceeds.max, u64::from(all), "{n}");
            }
            // And none of them has left anything behind, before or after a grant.
            if turn == 0 {
                limiter.try_acquire(all).expect("a grant");
            }
            let error = limiter.try_acquire(1).expect_err("all of it has gone");
            assert_eq!(error.retry_after(), Some(wait));
        }
        clock.advance(wait);
        assert!(limiter.try_acquire(1).is_ok());
    }

    let rate = Rate::every(DAY);
    check(TokenBucket::new(rate, 10), 10, DAY);
    check(TokenBucket::new(rate, 10).refill_every(DAY), 10, DAY);
    check(Gcra::new(9, 1, DAY), 10, DAY);
    check(LeakyBucket::meter(rate, 10), 10, DAY);
    check(LeakyBucket::new(rate, 10), 10, DAY * 10);
    check(FixedWindow::new(10, DAY), 10, DAY);
    check(SlidingWindowLog::new(10, DAY), 10, DAY);
    check(SlidingWindowCounter::new(10, DAY, 10), 10, DAY);
    check([TokenBucket::new(rate, 10), TokenBucket::new(Rate::per_second(1e9), 20)], 10, DAY);
    check(Same((FixedWindow::new(10, DAY), SlidingWindowLog::new(10, DAY))), 10, DAY);
    // Without a smaller capacity, the most granted at once is the permits of 146 years.
    check(SmoothBursty::new(rate), 53_375, DAY * 53_375);
    check(LeakyBucket::new(rate, u32::MAX), 53_375, DAY * 53_375);
}

/// An interval of 3.33 ns cut to 3.
#[test]
fn three_hundred_million_a_second_is_not_eleven_per_cent_fast() {
    fn check<P: Policy<Cost = u32>>(policy: P, n: u32, calls: u32) {
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        for _ in 0..=calls {
            limiter.blocking_acquire(n).expect("a grant");
        }
        // The first one does not wait.
        let expected = Duration::from_nanos(u64::from(n) * u64::from(calls) * 10 / 3);
        let took = clock.elapsed();
        assert!(took.abs_diff(expected) <= Duration::from_nanos(1), "{took:?}, not {expected:?}");
    }

    let rate = Rate::per_second(3e8);
    for (n, calls) in [(1, 3000), (300_000, 1000)] {
        check(SmoothBursty::new(rate).max_burst(Duration::ZERO), n, calls);
        check(TokenBucket::new(rate, n), n, calls);
        check(Gcra::new(n - 1, 300_000_000, secs(1)), n, calls);
        check(LeakyBucket::meter(rate, n), n, calls);
        check(LeakyBucket::new(rate, 2 * n), n, calls);
        check([TokenBucket::new(rate, n), TokenBucket::new(Rate::per_second(1e9), n)], n, calls);
    }
}

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

/// 5 s of nothing at 10 per second are 50 permits, whatever the rate is afterwards; not 50,011.
#[test]
fn a_rate_change_does_not_credit_the_past_at_the_new_rate() {
    fn check<P: Rated<Cost = u32>>(policy: P) {
        let (clock, limiter) = on_hold(policy);
        limiter.try_acquire(100_000).expect("a full bucket");
        clock.advance(secs(5));
        limiter.set_rate(Rate::per_second(10_000.0));
        assert_eq!(limiter.available(), 50);
        assert!(limiter.try_acquire(51).is_err());
        clock.advance(ms(1));
        assert_eq!(limiter.available(), 60);
        // Nor does it take any of it away again, except for what rounding cuts off the last one.
        limiter.set_rate(Rate::per_second(10.0));
        assert!((59..=60).contains(&limiter.available()));
    }

    let rate = Rate::per_second(10.0);
    check(TokenBucket::new(rate, 100_000));
    check(TokenBucket::new(rate, 100_000).refill_every(ms(1)));
    check(Gcra::new(99_999, 10, secs(1)));
    check(LeakyBucket::meter(rate, 100_000));
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
