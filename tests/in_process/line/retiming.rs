//! A change of the rate and a pause hold for all waiters: none of them has been charged yet.

use std::time::Duration;

use tollgate::{Rate, Reservation, SmoothBursty};

use crate::support::{Limiter, busy, ms, secs, waited};

fn a_hundred(limiter: &Limiter) -> Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>> {
    (0..100).map(|_| limiter.reserve(1).expect("a place")).collect()
}

fn waits(line: Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>>) -> Vec<Duration> {
    line.into_iter().map(waited).collect()
}

/// 200, 400, 600, 800 and 1000 ms at 5 per second, the next 200 ms later because it was charged for
/// at that rate, and from there on at the `interval`.
fn changed_after_a_second(interval: Duration) -> impl Iterator<Item = Duration> {
    let before = (1..=5).map(|place| ms(200) * place);
    before.chain((0..95).map(move |place| ms(1200) + interval * place))
}

/// Each change of the rate rounds the debt up to a whole unit, by less than a nanosecond.
#[track_caller]
fn assert_times(
    happened: Vec<Duration>,
    expected: impl IntoIterator<Item = Duration>,
    changes: u64,
) {
    for (happened, expected) in happened.into_iter().zip(expected) {
        let latest = expected + Duration::from_nanos(changes);
        assert!((expected..=latest).contains(&happened), "{happened:?} instead of {expected:?}");
    }
}

#[test]
fn rates_that_go_up_and_down_leave_no_trace() {
    let (clock, limiter) = busy(5.0);
    let line = a_hundred(&limiter);
    clock.advance(secs(1));
    for _ in 0..100 {
        limiter.set_rate(Rate::per_second(1000.0));
        limiter.set_rate(Rate::every(secs(86_400)));
        limiter.set_rate(Rate::per_second(5.0));
    }
    clock.advance(secs(600));
    assert_times(waits(line), changed_after_a_second(ms(200)), 300);
}
