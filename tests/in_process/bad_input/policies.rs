//! Policies with absurd parameters.

use std::panic::{UnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate::{ManualClock, Nanos, Policy, Rate, RateLimiter, SmoothBursty, SmoothWarmingUp};

use crate::support::{ms, secs};

fn warming_up(warm_up: Duration) -> SmoothWarmingUp {
    SmoothWarmingUp::new(Rate::per_second(5.0), warm_up)
}

#[track_caller]
fn assert_panics(make: impl FnOnce() -> SmoothWarmingUp + UnwindSafe, expected: &str) {
    let panic = catch_unwind(make).expect_err("a panic");
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    assert_eq!(message.as_deref(), Some(expected));
}

#[test]
fn a_warm_up_or_a_cold_factor_that_is_none_panics() {
    for factor in [
        0.0,
        -0.0,
        0.5,
        0.999_999,
        -3.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.1e9,
        f64::MAX,
    ] {
        let expected = format!("a cold factor must be from 1 to 1e9, not {factor}");
        assert_panics(move || warming_up(secs(1)).cold_factor(factor), &expected);
    }
    let none = "a warm-up must not be zero; use SmoothBursty for none";
    assert_panics(|| warming_up(Duration::ZERO), none);
    for long in [Nanos::HORIZON + Duration::from_nanos(1), Duration::MAX] {
        assert_panics(move || warming_up(long), "a warm-up must not exceed 146 years");
    }
}

/// The waits of six successive calls.
fn waits<P: Policy<Cost = u32>>(policy: P) -> Vec<Duration> {
    let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    (0..6).map(|_| limiter.blocking_acquire(1).expect("a grant").waited()).collect()
}

#[test]
fn a_cold_factor_of_one_is_no_slower_when_cold() {
    let steady = [0, 200, 200, 200, 200, 200].map(ms);
    assert_eq!(waits(warming_up(secs(4)).cold_factor(1.0)), steady);
}

#[test]
fn the_greatest_cold_factor_waits_long_and_then_is_warm() {
    let waits = waits(warming_up(secs(4)).cold_factor(1e9));
    // The ramp is so steep that a permit is more than all of it: the first pays the whole warm-up.
    for (place, wait) in waits.into_iter().enumerate() {
        let expected = [ms(0), ms(4200)].get(place).copied().unwrap_or(ms(200));
        assert!(wait.abs_diff(expected) < Duration::from_micros(1), "{wait:?} at {place}");
    }
}

/// Where the store is nothing, the limit is still there.
#[test]
fn a_warm_up_of_a_nanosecond_is_the_steady_rate() {
    for (place, wait) in waits(warming_up(Duration::from_nanos(1))).into_iter().enumerate() {
        let expected = if place == 0 { ms(0) } else { ms(200) };
        assert!(wait.abs_diff(expected) <= Duration::from_nanos(1), "{wait:?} at {place}");
    }
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(warming_up(Duration::from_nanos(1)), clock.clone());
    let mut granted = 0;
    for _ in 0..10_000 {
        granted += u32::from(limiter.try_acquire(1).is_ok());
        clock.advance(ms(1));
    }
    assert_eq!(granted, 50);
}

#[test]
fn the_longest_warm_up_that_is_one_is_cold_for_decades() {
    let waits = waits(warming_up(Nanos::HORIZON));
    // Three times the stable interval, as near as makes no difference.
    assert!(waits[1..].iter().all(|wait| wait.abs_diff(ms(600)) < ms(1)), "{waits:?}");
}

#[test]
fn no_burst_stores_nothing_and_loses_nothing() {
    for per_second in [3.0, 7.0, 300.0, 1e6] {
        let rate = Rate::per_second(per_second);
        let clock = ManualClock::auto_advance();
        let policy = SmoothBursty::new(rate).max_burst(Duration::ZERO);
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        for _ in 0..=3000 {
            limiter.blocking_acquire(1).expect("a grant");
        }
        let expected = Duration::from_secs_f64(3000.0 / per_second);
        assert!(clock.elapsed().abs_diff(expected) <= Duration::from_nanos(2), "{rate}");
        clock.advance(secs(3600));
        assert_eq!(limiter.available(), 0);
        assert!(limiter.try_acquire(1).is_ok());
        assert!(limiter.try_acquire(1).is_err());
    }
}

#[test]
fn the_longest_burst_stores_up_to_the_horizon() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::every(secs(86_400))).max_burst(Duration::MAX);
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    assert_eq!(limiter.available(), 0);
    clock.advance(secs(86_400) * 1000);
    assert_eq!(limiter.available(), 1000);
    clock.advance(Nanos::HORIZON + secs(86_400) * 1000);
    // 2^62 ns are 53375.99 days.
    assert_eq!(limiter.available(), 53_375);
    assert!(limiter.try_acquire(53_375).is_ok());
    assert_eq!(limiter.available(), 0);

    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1e9)).max_burst(Duration::MAX);
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    clock.advance(Nanos::HORIZON);
    // More than a cost can say, but not lost.
    assert_eq!(limiter.available(), u32::MAX);
    for _ in 0..1000 {
        assert!(limiter.try_acquire(u32::MAX).is_ok());
    }
    assert_eq!(limiter.available(), u32::MAX);
}

#[test]
fn a_catch_up_of_any_length_grants_nothing_early() {
    for catch_up in [Duration::ZERO, Duration::from_nanos(1), secs(3600), Duration::MAX] {
        let steady = [0, 200, 200, 200, 200, 200].map(ms);
        let policy = SmoothBursty::new(Rate::per_second(5.0)).max_burst(Duration::ZERO);
        assert_eq!(waits(policy.with_catch_up(catch_up)), steady);
    }
}
