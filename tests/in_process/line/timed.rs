//! Callers that wait for a limited time.

use std::time::Duration;

use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};

use crate::support::bucket::Bucket;
use crate::support::{busy, finishes, is_waiting, ms, outcome, secs, waited};

#[track_caller]
fn denied<T>(result: Result<T, Error>) -> Duration {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    error.retry_after().expect("a known wait")
}

#[test]
fn the_queue_ahead_counts_in_a_custom_policy() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 50 }, clock.clone());
    let _big = limiter.reserve(50).expect("a place");
    assert_eq!(denied(limiter.try_acquire(1)), ms(5100));
    assert_eq!(denied(outcome(&mut limiter.try_acquire_timeout(5, ms(5499)))), ms(5500));
    let mut timed = limiter.try_acquire_timeout(5, ms(5500));
    assert!(is_waiting(&mut timed));
    clock.advance(ms(5500));
    assert_eq!(outcome(&mut timed).expect("a grant").waited(), ms(5500));
}

#[test]
fn a_waiter_that_is_no_longer_polled_leaves_the_queue_at_its_deadline() {
    let (clock, limiter) = busy(5.0);
    let _ahead = limiter.reserve(1).expect("a place");
    let mut timed = limiter.try_acquire_timeout(50, ms(400));
    assert!(is_waiting(&mut timed));
    std::mem::forget(timed);
    let behind = limiter.reserve(1).expect("a place");
    limiter.pause_for(secs(1));
    clock.advance(secs(60));
    // The one ahead at the end of the pause, and nothing for the fifty.
    assert_eq!(waited(behind), ms(1200));
}

#[test]
fn a_clock_that_moves_by_itself_moves_only_for_timeouts_that_can_be_met() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter =
            RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
        limiter.blocking_acquire(10).expect("a new limiter grants at once");
        assert_eq!(denied(limiter.try_acquire_timeout(1, ms(1999)).blocking_wait()), secs(2));
        assert_eq!(clock.elapsed(), ms(0));
        let grant = limiter.try_acquire_timeout(1, secs(2)).blocking_wait().expect("a grant");
        assert_eq!((grant.waited(), clock.elapsed()), (secs(2), secs(2)));
    });
}
