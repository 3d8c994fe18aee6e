//! Where `tollgate` departs from Guava on purpose: a test for each row of the table in
//! `docs/from/guava.md`. The behaviour of Guava in each case was observed by running it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{
    Error, ManualClock, Policy, Rate, RateLimiter, Rated, SmoothBursty, SmoothWarmingUp,
};

fn bursty(rate: Rate) -> SmoothBursty {
    SmoothBursty::new(rate)
}

/// The waits of successive calls for one permit.
fn waits<P: Policy<Cost = u32>>(policy: P, calls: usize) -> Vec<Duration> {
    let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    let wait = |_| limiter.blocking_acquire(1).expect("granted").waited();
    (0..calls).map(wait).collect()
}

#[test]
fn giving_up_costs_nothing() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(1.0)), clock.clone());
    limiter.try_acquire(1).expect("the first");
    let leaves = limiter.reserve(1000).expect("a place");
    let stays = limiter.reserve(1).expect("a place");
    drop(leaves);
    assert_eq!(stays.delay(), Duration::from_secs(1));
}

#[test]
fn a_rate_change_reschedules_waiters_and_keeps_the_price_of_debts() {
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(1.0)), ManualClock::new());
    limiter.try_acquire(10).expect("the first");
    let first = limiter.reserve(10).expect("a place");
    let second = limiter.reserve(1).expect("a place");
    assert_eq!(second.delay(), Duration::from_secs(20));
    limiter.set_rate(Rate::per_second(10.0));
    assert_eq!(first.delay(), Duration::from_secs(10));
    assert_eq!(second.delay(), Duration::from_secs(11));
}

#[test]
fn first_come_first_served() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(1.0)), clock.clone());
    limiter.try_acquire(1).expect("the first");
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (pin!(limiter.acquire(1)), pin!(limiter.acquire(1)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_secs(1));
    // Polled first, but it arrived second.
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

#[test]
#[should_panic(expected = "a warm-up must not be zero")]
fn a_zero_warm_up_is_refused() {
    let _ = SmoothWarmingUp::new(Rate::per_second(5.0), Duration::ZERO);
}

#[test]
fn a_warm_up_of_a_nanosecond_still_limits() {
    let policy = SmoothWarmingUp::new(Rate::per_second(5.0), Duration::from_nanos(1));
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    limiter.blocking_acquire(1).expect("granted");
    clock.advance(Duration::from_secs(60));
    for expected in [0, 200, 200, 200] {
        let waited = limiter.blocking_acquire(1).expect("granted").waited();
        assert!(waited.abs_diff(Duration::from_millis(expected)) <= Duration::from_nanos(1));
    }
}

#[test]
fn a_rate_is_a_finite_number() {
    assert!(Rate::try_per_second(f64::INFINITY).is_err());
    assert!(Rate::try_per_second(f64::NAN).is_err());
}

#[test]
fn no_burst_spaces_permits_evenly() {
    let policy = bursty(Rate::per_second(5.0)).max_burst(Duration::ZERO);
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    clock.advance(Duration::from_secs(60));
    for expected in [0, 200, 200, 200] {
        let waited = limiter.blocking_acquire(1).expect("granted").waited();
        assert_eq!(waited, Duration::from_millis(expected));
    }
}

#[test]
fn a_cost_that_does_not_fit_is_an_error_and_takes_nothing() {
    let rate = Rate::every(Duration::from_secs(86_400));
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        let error = limiter.try_acquire(u32::MAX).expect_err("11 million years");
        // 2^62 ns in days.
        assert!(matches!(error, Error::ExceedsCapacity(limit) if limit.max == 53_375));
        assert!(limiter.try_acquire(1).is_ok());
    }
    check(bursty(rate));
    check(SmoothWarmingUp::new(rate, Duration::from_secs(864_000)));
}

#[test]
fn no_ticket_lies_beyond_the_horizon_and_the_limiter_recovers() {
    let year = Duration::from_secs(365 * 86_400);
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bursty(Rate::every(year / 365)), clock.clone());
    assert!(matches!(limiter.try_acquire(53_376), Err(Error::ExceedsCapacity(_))));
    limiter.try_acquire(53_375).expect("just within");
    assert!(limiter.try_acquire(1).expect_err("owed").retry_after() > Some(145 * year));
    clock.advance(147 * year);
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn fractions_of_a_nanosecond_do_not_add_up() {
    let total: Duration = waits(bursty(Rate::per_second(3.0)), 4).iter().sum();
    assert_eq!(total, Duration::from_secs(1));
    let fast = waits(bursty(Rate::per_second(1e7)), 100_001);
    assert_eq!(fast.iter().sum::<Duration>(), Duration::from_millis(10));
}

#[test]
fn a_rate_reads_back_as_it_was_set() {
    // 1e6 / (1e6 / 7) is 6.999999999999999.
    assert_eq!(bursty(Rate::per_second(7.0)).rate().as_per_second(), 7.0);
}

#[test]
fn a_rate_change_keeps_the_store_as_time() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(10.0)), clock.clone());
    clock.advance(Duration::from_millis(500));
    assert_eq!(limiter.available(), 5);
    limiter.set_rate(Rate::per_second(1000.0));
    assert_eq!(limiter.available(), 500);
}

#[test]
fn a_cost_of_nothing_is_granted_at_once_and_takes_nothing() {
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(1.0)), ManualClock::new());
    limiter.try_acquire(1).expect("the first");
    assert!(limiter.try_acquire(0).is_ok());
}

#[test]
fn permits_go_up_to_the_greatest_u32() {
    let limiter = RateLimiter::with_clock(bursty(Rate::per_second(1e9)), ManualClock::new());
    limiter.try_acquire(u32::MAX).expect("four seconds' worth");
    let wait = limiter.try_acquire(1).expect_err("owed").retry_after();
    assert_eq!(wait, Some(Duration::from_nanos(u64::from(u32::MAX))));
}

#[test]
fn rates_are_from_one_a_day_to_a_thousand_million_a_second() {
    for (rate, ok) in [(1.0 / 86_400.0, true), (1e9, true), (1e-5, false), (2e9, false)] {
        assert_eq!(Rate::try_per_second(rate).is_ok(), ok, "{rate}");
    }
}
