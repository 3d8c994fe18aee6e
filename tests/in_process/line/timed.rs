//! Callers that wait for a limited time.

use std::time::Duration;

use tollgate::{
    Error, ManualClock, Rate, RateLimiter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use crate::support::bucket::Bucket;
use crate::support::wakers::Count;
use crate::support::{bursty, busy, finishes, is_waiting, ms, outcome, poll_with, secs, waited};

const NANOSECOND: Duration = Duration::from_nanos(1);

#[track_caller]
fn denied<T>(result: Result<T, Error>) -> Duration {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    error.retry_after().expect("a known wait")
}

#[test]
fn a_timed_call_that_cannot_succeed_fails_at_once_and_takes_nothing() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let line: Vec<_> = (1..=3).map(|n| limiter.reserve(n).expect("a place")).collect();
        clock.advance(ms(50));
        // 200 ms for the one granted and 1200 ms for six queued permits, 50 ms of which are over.
        let wait = ms(1350);
        for _ in 0..10 {
            assert_eq!(
                denied(outcome(&mut limiter.try_acquire_timeout(9, wait - NANOSECOND))),
                wait
            );
            assert_eq!(denied(limiter.blocking_try_acquire_timeout(9, wait - NANOSECOND)), wait);
            assert_eq!(denied(limiter.try_acquire(9)), wait);
        }
        assert_eq!(limiter.queue_len(), 3);
        clock.advance(secs(60));
        let waits: Vec<_> = line.into_iter().map(waited).collect();
        assert_eq!(waits, [ms(200), ms(400), ms(800)]);
        assert_eq!(limiter.available(), 5);
    });
}

#[test]
fn a_waiter_whose_turn_comes_at_its_deadline_is_granted() {
    let (clock, limiter) = busy(5.0);
    let _line: Vec<_> = (1..=3).map(|n| limiter.reserve(n).expect("a place")).collect();
    clock.advance(ms(50));
    let mut timed = limiter.try_acquire_timeout(9, ms(1350));
    assert!(is_waiting(&mut timed));
    clock.advance(ms(1350) - NANOSECOND);
    assert!(is_waiting(&mut timed));
    clock.advance(NANOSECOND);
    assert_eq!(outcome(&mut timed).expect("a grant").waited(), ms(1350));
}

#[test]
fn the_predicted_wait_is_the_wait_needed_while_warming_up() {
    let clock = ManualClock::new();
    let policy = SmoothWarmingUp::new(Rate::per_second(3.0), secs(7));
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    let _line: Vec<_> = (0..40).map(|n| limiter.reserve(1 + n % 4).expect("a place")).collect();
    clock.advance(ms(1234));
    let wait = denied(limiter.try_acquire(1));
    assert_eq!(denied(outcome(&mut limiter.try_acquire_timeout(1, wait - NANOSECOND))), wait);
    let mut timed = limiter.try_acquire_timeout(1, wait);
    assert!(is_waiting(&mut timed));
    clock.advance(wait - NANOSECOND);
    assert!(is_waiting(&mut timed));
    clock.advance(NANOSECOND);
    assert_eq!(outcome(&mut timed).expect("a grant").waited(), wait);
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
fn a_refusal_can_be_premature_but_a_second_try_gets_the_freed_permits() {
    let (clock, limiter) = busy(5.0);
    let big = limiter.reserve(50).expect("a place");
    assert_eq!(denied(outcome(&mut limiter.try_acquire_timeout(1, secs(5)))), ms(10_200));
    drop(big);
    let mut timed = limiter.try_acquire_timeout(1, secs(5));
    assert!(is_waiting(&mut timed));
    clock.advance(secs(5));
    assert_eq!(outcome(&mut timed).expect("a grant").waited(), ms(200));
}

#[test]
fn a_head_that_a_pause_makes_hopeless_is_refused_at_once() {
    let (clock, limiter) = busy(5.0);
    let (calls, waker) = Count::new();
    let mut timed = limiter.try_acquire_timeout(1, ms(500));
    assert!(poll_with(&mut timed, &waker).is_pending());
    clock.advance(ms(100));
    limiter.pause_for(secs(30));
    assert_eq!(calls.get(), 1);
    assert_eq!(denied(outcome(&mut timed)), secs(30));
    assert_eq!(limiter.queue_len(), 0);
}

/// Nothing else would change for the callers behind a head that leaves, as all ask for the same.
#[test]
fn a_waiter_for_which_it_is_too_late_is_refused_when_it_becomes_the_head() {
    let (_clock, limiter) = busy(5.0);
    let (calls, waker) = Count::new();
    let ahead = limiter.reserve(1).expect("a place");
    let mut timed = limiter.try_acquire_timeout(1, ms(500));
    assert!(poll_with(&mut timed, &waker).is_pending());
    limiter.pause_for(secs(30));
    assert_eq!(calls.get(), 0);
    drop(ahead);
    assert_eq!(calls.get(), 1);
    assert_eq!(denied(outcome(&mut timed)), secs(30));
}

#[test]
fn a_waiter_that_a_pause_makes_hopeless_is_refused_at_its_deadline() {
    let (clock, limiter) = busy(5.0);
    let (calls, waker) = Count::new();
    let ahead = limiter.reserve(10).expect("a place");
    let mut timed = limiter.try_acquire_timeout(1, ms(2500));
    assert!(poll_with(&mut timed, &waker).is_pending());
    let behind = limiter.reserve(1).expect("a place");
    limiter.pause_for(secs(30));
    clock.advance(ms(2500) - NANOSECOND);
    assert_eq!((calls.get(), limiter.queue_len()), (0, 3));
    clock.advance(NANOSECOND);
    assert_eq!((calls.get(), limiter.queue_len()), (1, 2));
    // A second request would wait behind eleven permits: 30 s + 2.2 s, 2.5 s of which are over.
    assert_eq!(denied(outcome(&mut timed)), ms(29_700));
    clock.advance(secs(60));
    assert_eq!([waited(ahead), waited(behind)], [secs(30), secs(32)]);
}

/// Only a walk through the queue shows how long callers of such a rule wait.
#[test]
fn the_wait_that_a_late_refusal_names_leaves_out_callers_that_have_left() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SlidingWindowLog::new(1, ms(100)), &clock);
    limiter.try_acquire(1).expect("a new window");
    let mut ahead: Vec<_> = (0..126).map(|_| limiter.reserve(1).expect("a place")).collect();
    let mut timed = limiter.try_acquire_timeout(1, secs(13));
    assert!(is_waiting(&mut timed));
    limiter.pause_for(secs(30));
    assert_eq!(denied(limiter.try_acquire(1)), ms(42_700));
    ahead.truncate(116);
    clock.advance(secs(13));
    assert_eq!(denied(outcome(&mut timed)), ms(28_600));
    assert_eq!(denied(limiter.try_acquire(1)), ms(28_600));
}

#[test]
fn of_callers_ahead_of_others_whose_time_is_up_together_each_is_told_its_own_wait() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 10), &clock);
    limiter.try_acquire(10).expect("full");
    let _batch: Vec<_> = (0..20).map(|_| limiter.reserve(1).expect("a place")).collect();
    limiter.pause_for(secs(1));
    clock.advance(ms(500));
    let ask = |n, timeout| limiter.try_acquire_timeout(n, timeout).ahead_by(ms(100));
    let mut timed: Vec<_> = [1, 4, 4].map(|n| ask(n, secs(5))).into();
    assert!(timed.iter_mut().all(is_waiting));
    limiter.pause_for(secs(10));
    clock.advance(secs(5));
    let told: Vec<_> = timed.iter_mut().map(|timed| denied(outcome(timed))).collect();
    let asked = [1, 4, 4].map(|n| denied(outcome(&mut ask(n, Duration::ZERO))));
    assert_eq!(told, asked);
    assert_eq!(told, [ms(7_100), ms(7_400), ms(7_400)]);
}

#[test]
fn a_lower_rate_makes_the_hopeless_give_up_in_time_and_the_others_move_up() {
    let (clock, limiter) = busy(5.0);
    let mut line: Vec<_> = (0..100).map(|_| limiter.try_acquire_timeout(1, ms(20_000))).collect();
    assert!(line.iter_mut().all(is_waiting));
    let patient = limiter.reserve(1).expect("a place");
    limiter.set_rate(Rate::per_second(1.0));
    clock.advance(secs(20));
    let granted: Vec<_> = line
        .iter_mut()
        .map(outcome)
        .filter_map(|result| result.map(|grant| grant.waited()).ok())
        .collect();
    assert_eq!(granted.len(), 20);
    for (place, waited) in (0..).zip(granted) {
        // Permits taken before the change are paid for at the old price, rounded up to a
        // nanosecond.
        let expected = ms(200) + secs(1) * place;
        assert!(waited == expected || waited == expected + NANOSECOND, "{waited:?} {expected:?}");
    }
    assert_eq!(limiter.stats().refused, 80);
    clock.advance(secs(60));
    assert_eq!(waited(patient).as_millis(), 20_200);
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
fn no_time_at_all_means_now_or_never() {
    finishes(|| {
        let (clock, limiter) = bursty(5.0);
        assert!(outcome(&mut limiter.try_acquire_timeout(1, Duration::ZERO)).is_ok());
        assert_eq!(denied(outcome(&mut limiter.try_acquire_timeout(1, Duration::ZERO))), ms(200));
        assert_eq!(denied(limiter.blocking_try_acquire_timeout(1, Duration::ZERO)), ms(200));
        let waiting = limiter.reserve(1).expect("a place");
        assert_eq!(denied(outcome(&mut limiter.try_acquire_timeout(1, Duration::ZERO))), ms(400));
        clock.advance(ms(400));
        assert!(limiter.blocking_try_acquire_timeout(1, Duration::ZERO).is_ok());
        assert_eq!(waited(waiting), ms(200));
    });
}

#[test]
fn the_longest_time_means_for_ever() {
    let clock = ManualClock::new();
    let daily = SmoothBursty::new(Rate::every(secs(86_400)));
    let limiter = RateLimiter::with_clock(daily, clock.clone());
    limiter.try_acquire(10_000).expect("a new limiter grants at once");
    let mut patient = limiter.try_acquire_timeout(1, Duration::MAX);
    assert!(is_waiting(&mut patient));
    limiter.pause_for(secs(86_400) * 20_000);
    clock.advance(secs(86_400) * 20_000 - NANOSECOND);
    assert!(is_waiting(&mut patient));
    clock.advance(NANOSECOND);
    assert_eq!(outcome(&mut patient).expect("a grant").waited(), secs(86_400) * 20_000);
}

#[test]
fn a_clock_that_moves_by_itself_moves_only_for_timeouts_that_can_be_met() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter =
            RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
        limiter.blocking_acquire(10).expect("a new limiter grants at once");
        assert_eq!(denied(limiter.blocking_try_acquire_timeout(1, ms(1999))), secs(2));
        assert_eq!(clock.elapsed(), ms(0));
        let grant = limiter.blocking_try_acquire_timeout(1, secs(2)).expect("a grant");
        assert_eq!((grant.waited(), clock.elapsed()), (secs(2), secs(2)));
    });
}
