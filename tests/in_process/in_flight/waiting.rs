//! Callers that wait for a place.

use std::task::Poll;
use std::time::Duration;

use tollgate::{Error, Grant, InFlight, ManualClock, Rate, RateLimiter, Same, TokenBucket};

use super::at_most;
use crate::support::wakers::Count;
use crate::support::{finishes, is_waiting, ms, outcome, poll, poll_with, secs};

const NANOSECOND: Duration = Duration::from_nanos(1);

#[track_caller]
fn assert_wait_is_unknown<T>(result: Result<T, Error>) {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { retry_after: None, part: None, .. }), "{error:?}");
}

/// It is unknown when a place will be free, so no call is refused before its deadline.
#[test]
fn a_timed_call_waits_until_its_deadline() {
    let (clock, limiter) = at_most(1);
    let _place = limiter.try_acquire(1).expect("free");
    let (calls, waker) = Count::new();
    let mut timed = limiter.try_acquire_timeout(1, secs(5));
    assert!(poll_with(&mut timed, &waker).is_pending());
    clock.advance(secs(5) - NANOSECOND);
    assert_eq!((calls.get(), limiter.queue_len()), (0, 1));
    clock.advance(NANOSECOND);
    assert_eq!((calls.get(), limiter.queue_len()), (1, 0));
    assert_wait_is_unknown(outcome(&mut timed));
    assert_eq!(limiter.stats().refused, 1);
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
fn a_timed_call_gets_a_place_that_comes_at_the_last_moment() {
    let (clock, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut timed = limiter.try_acquire_timeout(1, secs(5));
    assert!(is_waiting(&mut timed));
    clock.advance(secs(5) - NANOSECOND);
    drop(place);
    let grant = outcome(&mut timed).expect("just in time");
    assert_eq!(grant.waited(), secs(5) - NANOSECOND);
}

/// The grant counts from the return of the place, not from the poll that notices it.
#[test]
fn a_grant_that_is_polled_after_its_deadline_still_counts() {
    let (clock, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut timed = limiter.try_acquire_timeout(1, secs(5));
    assert!(is_waiting(&mut timed));
    clock.advance(secs(2));
    drop(place);
    clock.advance(secs(60));
    assert_eq!(outcome(&mut timed).expect("granted long ago").waited(), secs(2));
}

#[test]
fn calls_with_no_time_are_refused_at_once() {
    finishes(|| {
        let (_, limiter) = at_most(2);
        let _place = limiter.try_acquire(1).expect("free");
        assert_wait_is_unknown(limiter.try_acquire(2));
        assert_wait_is_unknown(outcome(&mut limiter.try_acquire_timeout(2, Duration::ZERO)));
        assert_wait_is_unknown(limiter.blocking_try_acquire_timeout(2, Duration::ZERO));
        let _waiting = limiter.reserve(2).expect("a place in the queue");
        // A place is free, but a waiter comes first.
        assert_wait_is_unknown(limiter.try_acquire(1));
    });
}

#[test]
fn by_a_clock_that_moves_itself_a_timed_call_ends_at_its_deadline() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(InFlight::new(1), clock.clone());
        let place = limiter.blocking_acquire(1).expect("free");
        assert_wait_is_unknown(limiter.blocking_try_acquire_timeout(1, secs(5)));
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
fn waiters_of_all_sizes_are_served_in_order() {
    let (clock, limiter) = at_most(5);
    let mut out =
        vec![limiter.try_acquire(3).expect("free"), limiter.try_acquire(2).expect("free")];
    let mut line: Vec<_> = [4, 1, 5, 2, 2, 1].into_iter().map(|n| limiter.acquire(n)).collect();
    assert!(line.iter_mut().all(is_waiting));
    let mut served = Vec::new();
    // One comes back each second, the oldest first.
    while !line.is_empty() {
        clock.advance(secs(1));
        drop(out.remove(0));
        let mut turn = Vec::new();
        while let Some(Poll::Ready(grant)) = line.first_mut().map(poll) {
            let grant = grant.expect("a grant");
            turn.push(grant.cost());
            out.push(grant);
            drop(line.remove(0));
        }
        assert!(line.iter_mut().all(is_waiting));
        assert!(out.iter().map(Grant::cost).sum::<u32>() <= 5);
        served.push(turn);
    }
    // 2 free are not enough for the 4; with all 5 free the 4 and the 1 go; the 5 need both back.
    assert_eq!(served, [vec![], vec![4, 1], vec![], vec![5], vec![2, 2, 1]]);
}

#[test]
fn a_waiter_that_leaves_frees_its_permits_for_those_behind() {
    let (_, limiter) = at_most(5);
    let _place = limiter.try_acquire(3).expect("free");
    let mut big = limiter.acquire(4);
    let mut small = limiter.acquire(2);
    assert!(is_waiting(&mut big) && is_waiting(&mut small));
    drop(big);
    assert!(outcome(&mut small).is_ok());
}

#[test]
fn a_waiter_that_times_out_frees_its_permits_for_those_behind() {
    let (clock, limiter) = at_most(5);
    let _place = limiter.try_acquire(3).expect("free");
    let mut big = limiter.try_acquire_timeout(4, secs(1));
    let mut small = limiter.try_acquire_timeout(2, secs(2));
    let mut none = limiter.acquire(1);
    assert!(is_waiting(&mut big) && is_waiting(&mut small) && is_waiting(&mut none));
    clock.advance(secs(1));
    assert_wait_is_unknown(outcome(&mut big));
    let small = outcome(&mut small).expect("a place");
    assert_eq!(small.waited(), secs(1));
    assert!(is_waiting(&mut none));
}

#[test]
fn a_free_place_is_not_granted_in_a_pause() {
    let (clock, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut waiting = limiter.acquire(1);
    assert!(is_waiting(&mut waiting));
    limiter.pause_for(secs(10));
    clock.advance(secs(3));
    drop(place);
    assert!(is_waiting(&mut waiting));
    clock.advance(secs(7));
    assert_eq!(outcome(&mut waiting).expect("a grant").waited(), secs(10));
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
