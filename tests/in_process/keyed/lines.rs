//! Waiting at a key: the same queue as elsewhere, made when it is needed.

use std::time::Duration;

use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, SmoothBursty};

use crate::support::{finishes, is_waiting, ms, outcome, secs, until};

type Limiter = KeyedRateLimiter<String, SmoothBursty>;

fn limiter() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    (clock.clone(), KeyedRateLimiter::with_clock(policy, clock))
}

#[test]
fn waiters_are_served_in_order_and_leaving_makes_room() {
    let (clock, limiter) = limiter();
    limiter.try_acquire("a", 1).expect("prepaid");
    let mut first = Box::pin(limiter.acquire("a", 1));
    let mut second = Box::pin(limiter.acquire("a", 1));
    let mut third = Box::pin(limiter.acquire("a", 1));
    assert!(is_waiting(&mut first) && is_waiting(&mut second) && is_waiting(&mut third));
    assert_eq!((limiter.queue_len("a"), limiter.queue_len("b")), (3, 0));
    drop(second);
    clock.advance(ms(200));
    assert_eq!(outcome(&mut first).expect("a grant").waited(), ms(100));
    assert_eq!(outcome(&mut third).expect("a grant").waited(), ms(200));
}

#[test]
fn a_future_that_was_not_polled_was_never_there() {
    let (_, limiter) = limiter();
    drop(limiter.acquire("a", 1));
    assert!(limiter.is_empty());
}

#[test]
fn a_future_shows_where_its_caller_stands() {
    let (_, limiter) = limiter();
    let [mut first, mut second] = [1, 2].map(|n| limiter.acquire("a", n));
    assert_eq!(format!("{first:?}"), "Acquire { cost: 1, place: outside, .. }");
    assert!(outcome(&mut first).is_ok() && is_waiting(&mut second));
    assert_eq!(format!("{first:?}"), "Acquire { cost: 1, place: over, .. }");
    assert_eq!(format!("{second:?}"), "Acquire { cost: 2, place: waiting, .. }");
}

#[test]
fn try_acquire_does_not_overtake_waiters() {
    let (clock, limiter) = limiter();
    limiter.try_acquire("a", 1).expect("prepaid");
    let place = limiter.reserve("a", 5).expect("a place");
    let error = limiter.try_acquire("a", 1).expect_err("refused");
    assert_eq!(error.retry_after(), Some(ms(600)));
    clock.advance(ms(600));
    assert!(limiter.try_acquire("a", 1).is_ok());
    drop(place);
}

/// While a queue exists, and after it is gone.
#[test]
fn a_timed_call_that_cannot_be_met_fails_at_once() {
    let (clock, limiter) = limiter();
    for _ in 0..3 {
        limiter.try_acquire("a", 1).expect("prepaid");
        let wait = |millis| {
            let error =
                limiter.blocking_try_acquire_timeout("a", 1, ms(millis)).expect_err("refused");
            error.retry_after().expect("it is known")
        };
        assert_eq!((wait(0), wait(99)), (ms(100), ms(100)));
        let place = limiter.reserve("a", 1).expect("a place");
        assert_eq!((wait(0), wait(199)), (ms(200), ms(200)));
        drop(place);
        assert_eq!(wait(99), ms(100));
        clock.advance(ms(100));
    }
}

#[test]
fn blocking_and_async_callers_share_one_queue() {
    finishes(|| {
        let (clock, limiter) = limiter();
        limiter.try_acquire("a", 1).expect("prepaid");
        let mut first = Box::pin(limiter.acquire("a", 1));
        assert!(is_waiting(&mut first));
        std::thread::scope(|scope| {
            let second =
                scope.spawn(|| limiter.blocking_acquire("a", 1).map(|grant| grant.waited()));
            until(|| limiter.queue_len("a") == 2);
            clock.advance(ms(200));
            assert_eq!(second.join().expect("no panic").expect("a grant"), ms(200));
        });
        assert_eq!(outcome(&mut first).expect("a grant").waited(), ms(100));
    });
}

#[test]
fn bounds_hold_for_each_key() {
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = KeyedRateLimiter::<String, _>::builder(policy).clock(ManualClock::new());
    let limiter = builder.max_waiters(1).max_queued_permits(7).build();
    for key in ["a", "b"] {
        limiter.try_acquire(key, 1).expect("prepaid");
        assert!(matches!(limiter.reserve(key, 8), Err(Error::QueueFull { .. })));
        let _waits = limiter.reserve(key, 7).expect("a place");
        let full = limiter.reserve(key, 1).expect_err("the place is taken");
        assert_eq!(full.retry_after(), Some(ms(100)));
    }
}

#[test]
fn a_pause_holds_for_one_key() {
    let (clock, limiter) = limiter();
    let place = limiter.reserve("a", 1).expect("a place");
    let waits = limiter.reserve("a", 1).expect("a place");
    limiter.pause_for("a", secs(30)).expect("room");
    assert_eq!(waits.delay(), secs(30));
    assert!(limiter.try_acquire("b", 1).is_ok());
    clock.advance(secs(30));
    assert_eq!(waits.delay(), Duration::ZERO);
    drop(place);
}

/// The counts of a queue are kept when the queue goes.
#[test]
fn all_calls_are_counted() {
    let (clock, limiter) = limiter();
    for key in ["a", "b", "c"] {
        limiter.try_acquire(key, 1).expect("prepaid");
        assert!(limiter.try_acquire(key, 1).is_err());
        let (first, second) = (limiter.reserve(key, 1), limiter.reserve(key, 1));
        drop(second);
        clock.advance(ms(100));
        drop(first.expect("a place").blocking_wait().expect("a grant"));
        let stats = limiter.stats();
        // The queue goes with the next call.
        clock.advance(ms(100));
        limiter.try_acquire(key, 1).expect("prepaid");
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
    limiter.try_acquire("a", 1).expect("prepaid");
    let mut future = Box::pin(limiter.acquire_owned("a".to_owned(), 1));
    drop(limiter);
    assert!(is_waiting(&mut future));
    clock.advance(ms(100));
    assert_eq!(outcome(&mut future).expect("a grant").waited(), ms(100));
}
