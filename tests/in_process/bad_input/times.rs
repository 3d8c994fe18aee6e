//! Waits and pauses of no time and of all time.

use std::time::Duration;

use tollgate::{Error, Nanos, Rate};

use crate::support::{busy, ms, secs, waited};

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
