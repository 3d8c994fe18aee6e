use std::time::Duration;

use super::*;
use crate::units::Nanos;
use crate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_share_is_taken_as_it_is_written() {
    for percent in 0..100 {
        let share = f64::from(percent) / 100.0;
        assert_eq!(Rest::of(share).expect("a share").0, WHOLE - percent * 10_000, "{share}");
    }
    // Its float is a little more than 123 millionths.
    assert_eq!(Rest::of(0.000_123).expect("a share").0, 999_877);
    // Beyond millionths more is left, not less.
    assert_eq!(Rest::of(1.0 / 3.0).expect("a share").0, 666_666);
    assert_eq!(Rest::of(1e-12).expect("a share").0, 999_999);
    assert_eq!(Rest::of(1.5e-6).expect("a share").0, 999_998);
    for share in [1.0, 0.999_999_9, -f64::MIN_POSITIVE, -0.05, 5.0, f64::NAN, f64::INFINITY] {
        assert!(Rest::of(share).is_err(), "{share}");
    }
    assert_eq!(Rest::of(-0.0).expect("zero").0, WHOLE);
}

#[test]
fn permits_are_rounded_down_but_not_to_zero() {
    let left = |permits, share| Rest::of(share).expect("a share").of_permits(permits);
    assert_eq!([left(100, 0.05), left(30, 0.05), left(10, 0.05), left(1, 0.05)], [95, 28, 9, 1]);
    assert_eq!([left(0, 0.05), left(2, 0.999), left(u32::MAX, 0.0)], [0, 1, u32::MAX]);
    assert_eq!(left(u32::MAX, 0.5), u32::MAX / 2);
}

#[test]
fn a_window_is_longer_and_a_round_time() {
    let hour = 60 * MINUTE;
    let nanos = Duration::from_nanos;
    for (window, longer, text) in [
        (Duration::from_secs(1), ms(1_053), "20/1053ms"),
        (MINUTE, ms(63_158), "20/63158ms"),
        (hour, Duration::from_secs(3_790), "20/3790s"),
        (24 * hour, 1_516 * MINUTE, "20/1516min"),
        (ms(1), Duration::from_micros(1_053), "20/1053us"),
        (nanos(100_000), nanos(105_264), "20/105264ns"),
        (nanos(1), nanos(2), "20/2ns"),
        (Nanos::HORIZON, Nanos::HORIZON, "20/4611686018427387904ns"),
    ] {
        let log = SlidingWindowLog::new(20, window).headroom(0.05);
        assert_eq!(log, Ok(SlidingWindowLog::new(20, longer)), "{window:?}");
        let fixed = FixedWindow::new(20, window).headroom(0.05);
        assert_eq!(fixed, Ok(FixedWindow::new(20, longer)), "{window:?}");
        let log = AnyPolicy::from(SlidingWindowLog::new(20, longer)).to_string();
        assert_eq!(log, format!("{text} sliding window"));
    }
    let twice = |policy: SlidingWindowLog| policy.headroom(0.1)?.headroom(0.1);
    let both = SlidingWindowLog::new(1, ms(74_075));
    assert_eq!(twice(SlidingWindowLog::new(1, MINUTE)), Ok(both));
    // A counter is made of its parts, however long.
    let counter = |window, buckets| SlidingWindowCounter::new(20, window, buckets);
    assert_eq!(counter(ms(60), 6).headroom(0.05), Ok(counter(6 * nanos(10_527_000), 6)));
    assert_eq!(counter(nanos(7), 3).headroom(0.5), Ok(counter(nanos(18), 3)));
    let longest = counter(Nanos::HORIZON, 3).headroom(0.5).expect("a share");
    assert_eq!(longest, counter(Nanos::HORIZON, 3));
    // Windows that a key in Redis names in whole microseconds stay that.
    for window in [ms(1), ms(7), Duration::from_secs(1), MINUTE, 24 * hour] {
        for percent in 1..100 {
            let share = f64::from(percent) / 100.0;
            let fixed = FixedWindow::new(20, window).headroom(share).expect("a share");
            assert_eq!(fixed.window % 1_000, 0, "{window:?} {share}");
            let wanted = window.as_secs_f64() * 1e9 / (1.0 - share);
            let more = Duration::from_nanos(fixed.window).as_secs_f64() * 1e9 / wanted;
            assert!((1.0 - 1e-9..1.001).contains(&more), "{window:?} {share}: {more}");
        }
    }
}

#[test]
fn a_rate_is_exact_where_it_can_be_and_never_above() {
    let minute = |n: f64| Rate::per_minute(n);
    assert_eq!(minute(100.0).headroom(0.05), Ok(minute(95.0)));
    assert_eq!(
        Rate::new(3, Duration::from_secs(7)).headroom(0.05).map(Rate::fraction),
        Ok((57, 140_000_000_000))
    );
    // The slowest rate stays, and what would be slower becomes it.
    let day = Rate::new(1, 1440 * MINUTE);
    assert_eq!([day.headroom(0.05), day.headroom(0.999)], [Ok(day), Ok(day)]);
    // Numbers that do not fit are rounded to a slower rate.
    let wide = Rate::new(u64::MAX, Duration::from_secs(u64::MAX / 2));
    for rate in
        [wide, Rate::per_second(0.1), Rate::per_second(1.0 / 86_399.0), Rate::per_second(1e9)]
    {
        let (before, after) = (rate, rate.headroom(0.000_001).expect("a share"));
        assert!(after < before, "{before:?}");
        let lost = 1.0 - after.as_per_second() / before.as_per_second();
        assert!((lost - 1e-6).abs() < 1e-12, "{before:?} lost {lost}");
    }
}

#[test]
fn options_other_than_the_quota_stay() {
    let rate = Rate::per_minute(100.0);
    let less = Rate::per_minute(95.0);
    let second = Duration::from_secs(1);
    let bucket =
        |rate, size| TokenBucket::new(rate, size).refill_every(second).with_catch_up(second);
    let pairs: [(AnyPolicy, AnyPolicy); 9] = [
        (
            SmoothBursty::evenly_spaced(rate).with_catch_up(second).into(),
            SmoothBursty::evenly_spaced(less).with_catch_up(second).into(),
        ),
        (
            SmoothWarmingUp::new(rate, second).cold_factor(2.0).into(),
            SmoothWarmingUp::new(less, second).cold_factor(2.0).into(),
        ),
        (bucket(rate, 20).initial(3).into(), bucket(less, 19).initial(3).into()),
        (bucket(rate, 20).into(), bucket(less, 19).into()),
        (Gcra::new(19, 100, MINUTE).into(), Gcra::new(18, 95, MINUTE).into()),
        (LeakyBucket::new(rate, 20).into(), LeakyBucket::new(less, 20).into()),
        (LeakyBucket::meter(rate, 20).into(), LeakyBucket::meter(less, 19).into()),
        (
            FixedWindow::new(100, MINUTE).aligned(second).into(),
            FixedWindow::new(95, MINUTE).aligned(second).into(),
        ),
        (
            LockOut::new(SlidingWindowCounter::new(100, MINUTE, 6), second).into(),
            LockOut::new(SlidingWindowCounter::new(100, 6 * ms(10_527), 6), second).into(),
        ),
    ];
    for (quota, rest) in pairs.clone() {
        assert_eq!(quota.headroom(0.05), Ok(rest));
    }
    let parts = |pick: fn(&(AnyPolicy, AnyPolicy)) -> &AnyPolicy| {
        AllOf::new(pairs[..8].iter().map(pick).cloned())
    };
    assert_eq!(parts(|pair| &pair.0).headroom(0.05), Ok(parts(|pair| &pair.1)));
    let both = |gcra, window| (Same((gcra, InFlight::new(10))), FixedWindow::new(100, window));
    let rest = both(Gcra::new(18, 95, MINUTE), ms(63_158));
    assert_eq!(both(Gcra::new(19, 100, MINUTE), MINUTE).headroom(0.05), Ok(rest));
    assert_eq!(Gcra::new(0, 100, MINUTE).headroom(0.5), Ok(Gcra::new(0, 50, MINUTE)));
}
