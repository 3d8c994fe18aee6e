//! A queue with a limited number of places or permits.

use tollgate::Error;

use crate::support::{bounded, busy_bounded, finishes, is_waiting, ms, outcome, secs, waited};

#[track_caller]
fn assert_full<T>(result: Result<T, Error>, moves_in: std::time::Duration) {
    let error = result.err().expect("no place");
    assert!(matches!(error, Error::QueueFull { .. }), "{error:?}");
    assert_eq!(error.retry_after(), Some(moves_in));
}

#[test]
fn calls_to_a_full_queue_are_refused_until_the_queue_moves() {
    finishes(|| {
        let (clock, limiter) = busy_bounded(5.0, 2, u64::MAX);
        let first = limiter.reserve(10).expect("a place");
        let second = limiter.reserve(1).expect("a place");
        clock.advance(ms(50));
        // The queue moves when its head is granted at 200 ms, not when a caller at its end would
        // be.
        assert_full(limiter.reserve(1), ms(150));
        assert_full(outcome(&mut limiter.acquire(1)), ms(150));
        assert_full(outcome(&mut limiter.acquire_owned(1)), ms(150));
        assert_full(outcome(&mut limiter.try_acquire_timeout(1, secs(60))), ms(150));
        assert_full(limiter.blocking_acquire(1), ms(150));
        assert_full(limiter.try_acquire_timeout(1, secs(60)).blocking_wait(), ms(150));
        assert_eq!(limiter.queue_len(), 2);

        // The predicted wait is true.
        clock.advance(ms(150));
        let third = limiter.reserve(1).expect("a place");
        clock.advance(secs(60));
        assert_eq!([waited(first), waited(second), waited(third)], [ms(200), ms(2200), ms(2200)]);
    });
}

#[test]
fn a_call_that_would_not_wait_anyway_gets_the_wait_in_its_error() {
    let (_clock, limiter) = busy_bounded(5.0, 1, u64::MAX);
    let _waiting = limiter.reserve(10).expect("a place");
    let error = limiter.try_acquire(1).expect_err("not ready");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert_eq!(error.retry_after(), Some(ms(2200)));
}

#[test]
fn queued_permits_are_counted_and_not_callers() {
    let (clock, limiter) = busy_bounded(5.0, usize::MAX, 10);
    let first = limiter.reserve(4).expect("room");
    let second = limiter.reserve(5).expect("room");
    assert_full(limiter.reserve(2), ms(200));
    let third = limiter.reserve(1).expect("room for one more");
    assert_full(limiter.reserve(1), ms(200));
    clock.advance(ms(200));
    // The four of the head are gone.
    assert_full(limiter.reserve(5), ms(800));
    let fourth = limiter.reserve(4).expect("room");
    clock.advance(secs(60));
    let waits = [waited(first), waited(second), waited(third), waited(fourth)];
    assert_eq!(waits, [ms(200), ms(1000), ms(2000), ms(2000)]);
}

#[test]
fn more_than_the_queue_may_hold_is_still_granted_when_no_wait_is_needed() {
    let (clock, limiter) = busy_bounded(5.0, usize::MAX, 10);
    assert_full(limiter.reserve(11), ms(200));
    clock.advance(ms(200));
    assert_eq!(waited(limiter.reserve(11).expect("a grant")), ms(0));
}

#[test]
fn a_queue_of_no_places_refuses_every_call_that_must_wait() {
    finishes(|| {
        let (clock, limiter) = bounded(5.0, 0, u64::MAX);
        assert!(outcome(&mut limiter.acquire(1)).is_ok());
        assert_full(limiter.blocking_acquire(1), ms(200));
        assert!(outcome(&mut limiter.acquire(0)).is_ok());
        clock.advance(ms(200));
        assert!(limiter.blocking_acquire(1).is_ok());
    });
}

#[test]
fn leaving_frees_a_place_and_its_permits() {
    let (_clock, limiter) = busy_bounded(5.0, 2, 10);
    let head = limiter.reserve(8).expect("a place");
    let tail = limiter.reserve(1).expect("a place");
    assert_full(limiter.reserve(1), ms(200));
    drop(tail);
    assert_full(limiter.reserve(3), ms(200));
    let mut tail = limiter.acquire(2);
    assert!(is_waiting(&mut tail));
    drop(head);
    assert!(limiter.reserve(8).is_ok());
}
