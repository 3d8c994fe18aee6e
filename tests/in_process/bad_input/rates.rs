//! Rates that are none.

use std::panic::{UnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate::{Gcra, LeakyBucket, ManualClock, Policy, Rate, RateLimiter, TokenBucket};

const NOT_RATES: [f64; 12] = [
    0.0,
    -0.0,
    -1.0,
    -1e300,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE,
    f64::MAX,
    // Below one per day and above one per nanosecond.
    1.0 / 86_401.0,
    1_000_000_001.0,
    1e-300,
];

const MESSAGE: &str = "a rate must be from 1 per day to 1e9 per second";

#[track_caller]
fn assert_panics(make: impl FnOnce() -> Rate + UnwindSafe) {
    let panic = catch_unwind(make).expect_err("no such rate");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.starts_with(MESSAGE), "{message}");
}

#[test]
fn a_number_that_is_no_rate_is_an_error() {
    for n in NOT_RATES {
        let error = Rate::try_per_second(n).expect_err("no such rate");
        assert_eq!(error.reason(), format!("{MESSAGE}, not {n:?} per second"));
        assert_eq!(error.word(), format!("{n:?}/s"));
    }
}

#[test]
fn a_constructor_panics_with_the_same_bounds() {
    for n in NOT_RATES {
        assert_panics(move || Rate::per_second(n));
        assert_panics(move || Rate::per_minute(n * 60.0));
        assert_panics(move || Rate::per_hour(n * 3600.0));
    }
}

#[test]
fn whole_numbers_that_are_no_rate_panic() {
    const SECOND: Duration = Duration::from_secs(1);
    for (n, per) in [
        (0, SECOND),
        (1, Duration::ZERO),
        (0, Duration::ZERO),
        (1_000_000_001, SECOND),
        (u64::MAX, SECOND),
        (1, Duration::MAX),
        (u64::MAX, Duration::ZERO),
        (1, Duration::new(86_400, 1)),
        (1_000, Duration::from_nanos(999)),
    ] {
        assert_panics(move || Rate::new(n, per));
    }
    assert_panics(|| Rate::every(Duration::ZERO));
    assert_panics(|| Rate::every(Duration::MAX));
    // Where the ends are.
    assert_eq!(Rate::new(u64::MAX, Duration::from_nanos(u64::MAX)), Rate::per_second(1e9));
    assert_eq!(Rate::every(Duration::from_nanos(1)), Rate::per_second(1e9));
    assert_eq!(Rate::every(Duration::from_secs(86_400)).to_string(), "1/day");
}

#[test]
fn text_that_is_out_of_range_and_text_that_is_no_rate_give_different_errors() {
    for text in ["0/s", "-0/s", "-5/s", "10000000000/s", "0.5/day"] {
        let error = text.parse::<Rate>().expect_err(text);
        assert!(error.reason().starts_with(MESSAGE), "{text}: {error}");
    }
    for text in [
        "", " ", "/", "5", "5/", "/s", "5 s", "5//s", "5/s/s", "5/X", "5/ks", "five/s", "5,0/s",
        "0x5/s", "5/-s", "5%/s", "∞/s", "\0/s", "5/秒", "NaN/s", "inf/s", "-inf/day", "1e-9/day",
        "1e10/s",
    ] {
        let error = text.parse::<Rate>().expect_err(text);
        let reason = error.reason();
        let is_known =
            ["expected ", "a time must not"].iter().any(|begin| reason.starts_with(begin));
        assert!(is_known && text.contains(error.word()), "{text}: {error}");
    }
    // Capitals mean the same, but for `M`, a month.
    assert_eq!("5/S".parse::<Rate>(), "5/s".parse::<Rate>());
    assert!("5/M".parse::<Rate>().is_err());
}

/// A permit a nanosecond, from the first nanosecond of the clock on, and after it.
#[test]
fn a_bucket_at_the_greatest_rate_is_exact_from_the_origin_of_the_clock() {
    fn exact<P: Policy<Cost = u32>>(policy: &P, origin: u64) {
        let nanos = Duration::from_nanos;
        let clock = ManualClock::new();
        clock.advance(nanos(origin));
        let limiter = RateLimiter::with_clock(policy.clone(), &clock);
        limiter.try_acquire(5).expect("full");
        let wait = |n| limiter.would_wait(n).expect("a wait").expect("a known one");
        assert_eq!([1, 2, 5].map(wait), [1, 2, 5].map(nanos));
        for _ in 0..3 {
            assert!(limiter.try_acquire(1).is_err());
            clock.advance(nanos(1));
            limiter.try_acquire(1).expect("one a nanosecond");
        }
        clock.advance(nanos(9));
        limiter.try_acquire(5).expect("full");
        assert!(limiter.try_acquire(1).is_err(), "no more than that");
    }
    let rate = Rate::per_second(1e9);
    for origin in [0, 1, 2, 1_000] {
        exact(&TokenBucket::new(rate, 5), origin);
        exact(&Gcra::new(4, 1, Duration::from_nanos(1)), origin);
        exact(&LeakyBucket::meter(rate, 5), origin);
    }
    // Also if the rate becomes that great there.
    let slow = TokenBucket::new(Rate::per_second(1.0), 5).initial(0);
    let limiter = RateLimiter::with_clock(slow, ManualClock::new());
    limiter.set_rate(rate);
    assert_eq!(limiter.would_wait(1), Ok(Some(Duration::from_nanos(1))));
}
