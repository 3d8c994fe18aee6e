//! Waits and pauses of no time and of all time.

use std::time::Duration;

use tollgate::{Error, Nanos, Rate};

use crate::support::{bursty, busy, finishes, is_waiting, ms, outcome, secs, waited};

#[test]
fn a_timeout_of_no_time_never_waits() {
    finishes(|| {
        let (clock, limiter) = bursty(5.0);
        for _ in 0..2 {
            let mut future = limiter.try_acquire_timeout(1, Duration::ZERO);
            assert!(outcome(&mut future).is_ok());
            let mut future = limiter.try_acquire_timeout(1, Duration::ZERO);
            assert_eq!(outcome(&mut future).expect_err("taken").retry_after(), Some(ms(200)));
            assert!(limiter.try_acquire_timeout(1, Duration::ZERO).blocking_wait().is_err());
            clock.advance(ms(200));
        }
        assert_eq!(limiter.stats().waited, Duration::ZERO);
    });
}

#[test]
fn a_timeout_of_all_time_waits_like_acquire() {
    let (clock, limiter) = busy(5.0);
    for timeout in [Duration::MAX, Duration::from_nanos(u64::MAX), Nanos::HORIZON] {
        let mut future = limiter.try_acquire_timeout(1, timeout);
        assert!(is_waiting(&mut future));
        clock.advance(ms(200));
        assert!(outcome(&mut future).is_ok());
    }
}

/// Documented: it counts as the horizon of 146 years.
#[test]
fn a_pause_of_all_time_is_one_of_146_years() {
    let (clock, limiter) = bursty(5.0);
    limiter.pause_for(Duration::MAX);
    assert_eq!(limiter.available(), 0);
    assert!(limiter.try_acquire(0).is_ok());
    clock.advance(Nanos::HORIZON - Duration::from_nanos(1));
    assert!(limiter.try_acquire(1).is_err());
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.try_acquire(1).is_ok());
    assert!(limiter.try_acquire(1).is_err());
}

#[test]
fn a_pause_of_all_time_denies_with_its_end_and_keeps_waiters() {
    let (clock, limiter) = busy(5.0);
    let before = limiter.reserve(1).expect("a place");
    limiter.pause_for(Duration::MAX);
    let error = limiter.try_acquire(1).expect_err("a pause");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert_eq!(error.retry_after(), Some(Nanos::HORIZON + ms(200)));
    assert_eq!(limiter.queue_len(), 1);
    let meanwhile = limiter.reserve(1).expect("a place");
    clock.advance(Nanos::HORIZON + secs(1));
    assert_eq!([waited(before), waited(meanwhile)], [Nanos::HORIZON, Nanos::HORIZON + ms(200)]);
}

#[test]
fn pauses_that_follow_each_other_for_all_time_stay_within_the_clock() {
    let (clock, limiter) = bursty(5.0);
    for _ in 0..5 {
        limiter.pause_for(Duration::MAX);
        assert!(limiter.try_acquire(1).is_err());
        clock.advance(Nanos::HORIZON);
    }
    assert_eq!(clock.elapsed(), Nanos::END.since(Nanos::ZERO));
}

#[test]
fn a_rate_that_changes_from_end_to_end_while_a_hundred_wait_serves_them_all() {
    let (clock, limiter) = busy(1e9);
    let line: Vec<_> = (0..100).map(|_| limiter.reserve(1).expect("a place")).collect();
    for _ in 0..10 {
        limiter.set_rate(Rate::every(secs(86_400)));
        limiter.set_rate(Rate::per_second(1e9));
        limiter.set_rate(Rate::per_second(1.0 / 3.0));
    }
    limiter.set_rate(Rate::per_second(1000.0));
    assert_eq!(limiter.queue_len(), 100);
    clock.advance(ms(99) + Duration::from_micros(1));
    assert_eq!(limiter.queue_len(), 0);
    for (place, reservation) in (0..).zip(line) {
        let late = waited(reservation) - ms(1) * place;
        assert!(late < Duration::from_micros(1), "{late:?} at {place}");
    }
}
