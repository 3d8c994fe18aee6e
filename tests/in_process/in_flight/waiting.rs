//! Callers that wait for a place.

use std::time::Duration;

use tollgate::{Error, InFlight, ManualClock, Rate, RateLimiter, Same, TokenBucket};

use super::at_most;
use crate::support::{finishes, is_waiting, ms, outcome, secs};

const NANOSECOND: Duration = Duration::from_nanos(1);

#[track_caller]
fn assert_wait_is_unknown<T>(result: Result<T, Error>) {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { retry_after: None, part: None, .. }), "{error:?}");
}

/// The one ahead takes the next token, however late it gets its place.
#[test]
fn a_timed_call_is_refused_at_once_if_the_token_behind_the_one_that_waits_comes_too_late() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 1);
    let limiter = RateLimiter::with_clock(Same((InFlight::new(1), bucket)), &clock);
    let _place = limiter.try_acquire(1).expect("free");
    let _ahead = limiter.reserve(1).expect("a place in the queue");
    for _ in 0..3 {
        clock.advance(secs(10));
        let mut late = limiter.try_acquire_timeout(1, secs(1) - NANOSECOND);
        assert!(outcome(&mut late).is_err());
    }
    assert!(is_waiting(&mut limiter.try_acquire_timeout(1, secs(1))));
}

#[test]
fn by_a_clock_that_moves_itself_a_timed_call_ends_at_its_deadline() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(InFlight::new(1), clock.clone());
        let place = limiter.blocking_acquire(1).expect("free");
        assert_wait_is_unknown(limiter.try_acquire_timeout(1, secs(5)).blocking_wait());
        assert_eq!(clock.elapsed(), secs(5));
        assert_wait_is_unknown(outcome(&mut limiter.try_acquire_timeout(1, ms(1))));
        assert_eq!(clock.elapsed(), secs(5) + ms(1));
        // A waiter without a deadline gives the clock no time to move to.
        let mut patient = limiter.acquire(1);
        assert!(is_waiting(&mut patient));
        assert_eq!(clock.elapsed(), secs(5) + ms(1));
        drop(place);
        assert!(outcome(&mut patient).is_ok());
    });
}

#[test]
fn a_delay_is_at_least_the_known_wait() {
    let (_, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let waiting = limiter.reserve(1).expect("a place in the queue");
    assert_eq!(waiting.delay(), Duration::ZERO);
    limiter.pause_for(secs(10));
    assert_eq!(waiting.delay(), secs(10));
    drop(place);
    assert_eq!(waiting.delay(), secs(10));
}

/// Ten thousand, all waiting; each place goes to the next.
#[test]
fn a_long_queue_is_served_one_by_one() {
    finishes(|| {
        let (_, limiter) = at_most(1);
        let mut place = limiter.try_acquire(1).expect("free");
        let mut line: Vec<_> = (0..10_000).map(|_| limiter.acquire(1)).collect();
        assert!(line.iter_mut().all(is_waiting));
        for (next, future) in line.iter_mut().enumerate() {
            drop(place);
            place = outcome(future).expect("the place");
            assert_eq!(limiter.queue_len(), 9_999 - next);
        }
    });
}
