//! Waiting at a key: the same queue as elsewhere, made when it is needed.

use std::time::Duration;

use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, SmoothBursty};

use crate::support::{is_waiting, ms, outcome};

type Limiter = KeyedRateLimiter<String, SmoothBursty>;

fn limiter() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    (clock.clone(), KeyedRateLimiter::with_clock(policy, clock))
}

#[test]
fn bounds_hold_for_each_key() {
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = KeyedRateLimiter::<String, _>::builder(policy).clock(ManualClock::new());
    let limiter = builder.max_waiters(1).max_queued_permits(7).build();
    for key in ["a", "b"] {
        limiter.at(key).try_acquire(1).expect("prepaid");
        assert!(matches!(limiter.at(key).reserve(8), Err(Error::QueueFull { .. })));
        let _waits = limiter.at(key).reserve(7).expect("a place");
        let full = limiter.at(key).reserve(1).expect_err("the place is taken");
        assert_eq!(full.retry_after(), Some(ms(100)));
    }
}

/// The counts of a queue are kept when the queue goes.
#[test]
fn all_calls_are_counted() {
    let (clock, limiter) = limiter();
    for key in ["a", "b", "c"] {
        limiter.at(key).try_acquire(1).expect("prepaid");
        assert!(limiter.at(key).try_acquire(1).is_err());
        let (first, second) = (limiter.at(key).reserve(1), limiter.at(key).reserve(1));
        drop(second);
        clock.advance(ms(100));
        drop(first.expect("a place").blocking_wait().expect("a grant"));
        let stats = limiter.stats();
        // The queue goes with the next call.
        clock.advance(ms(100));
        limiter.at(key).try_acquire(1).expect("prepaid");
        assert_eq!(limiter.stats().granted, stats.granted + 1);
        assert_eq!(limiter.stats().given_up, stats.given_up);
        clock.advance(ms(100));
    }
    let stats = limiter.stats();
    assert_eq!((stats.granted, stats.refused, stats.given_up), (9, 3, 3));
    assert_eq!(stats.waited, ms(300));
}

#[test]
fn an_owned_future_needs_neither_limiter_nor_key() {
    let (clock, limiter) = limiter();
    limiter.at("a").try_acquire(1).expect("prepaid");
    let mut future = Box::pin(limiter.at("a").into_owned().acquire(1));
    drop(limiter);
    assert!(is_waiting(&mut future));
    clock.advance(ms(100));
    assert_eq!(outcome(&mut future).expect("a grant").waited(), ms(100));
}
