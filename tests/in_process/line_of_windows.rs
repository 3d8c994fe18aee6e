//! A queue before a policy without a steady rate. When a waiter is ready depends on the sizes of
//! the requests ahead, so the queue is walked to find whether a timeout can be met.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tollgate::{
    Error, FixedWindow, InFlight, ManualClock, Policy, Rate, RateLimiter, Same, SlidingWindowLog,
    TokenBucket,
};

use crate::support::wakers::Count;
use crate::support::{finishes, is_waiting, ms, outcome, poll_with, secs, waited};

const NANOSECOND: Duration = Duration::from_nanos(1);

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

#[track_caller]
fn denied<T>(result: Result<T, Error>) -> Duration {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    error.retry_after().expect("a known wait")
}

/// Tokio's clock does not stop at due times when it is moved by hand, so alarms go off late.
fn late<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    finishes(|| crate::support::paused().block_on(work()))
}

/// A window starts when its first request is granted: 3 s late, and so is all that comes after it.
/// `asked_before`: whether the queue was walked before.
async fn predicts_after_a_late_alarm(asked_before: bool) {
    let policy = FixedWindow::new(10, secs(10));
    let limiter = RateLimiter::with_clock(policy, tollgate::Clock::tokio());
    limiter.try_acquire(10).expect("a window");
    let line: Vec<_> = [4, 7, 3].map(|n| limiter.reserve(n).expect("a place")).into();
    if asked_before {
        assert_eq!(denied(limiter.try_acquire(5)), secs(30));
    }
    // The 4 should have had their turn at 10 s.
    tokio::time::advance(secs(13)).await;
    assert_eq!(limiter.queue_len(), 2);
    // Their window is from 13 s on; the 7 and the 3 at 23 s; five more at 33 s.
    let start = tokio::time::Instant::now();
    let timed = limiter.try_acquire_timeout(5, secs(20) - NANOSECOND).await;
    assert_eq!((denied(timed), start.elapsed()), (secs(20), Duration::ZERO));
    assert_eq!(denied(limiter.try_acquire(5)), secs(20));
    let timed = limiter.try_acquire_timeout(5, secs(20)).await.expect("just enough");
    assert_eq!((timed.waited(), start.elapsed()), (secs(20), secs(20)));
    let waits: Vec<_> = line.into_iter().map(waited).collect();
    assert_eq!(waits, [13, 23, 23].map(secs));
}

#[test]
fn after_a_late_alarm() {
    late(async || predicts_after_a_late_alarm(false).await);
}

/// The prediction made before the alarm is no longer valid.
#[test]
fn after_a_late_alarm_of_a_queue_that_was_walked_before() {
    late(async || predicts_after_a_late_alarm(true).await);
}

/// With a place in flight ahead the wait is unknown, and all callers wait until their deadlines.
#[test]
fn behind_a_place_in_flight_the_wait_is_unknown() {
    let (clock, limiter) = on_hold((InFlight::new(1), FixedWindow::new(3, secs(10))));
    let place = limiter.try_acquire((1, 1)).expect("free");
    let (calls, waker) = Count::new();
    let mut first = limiter.try_acquire_timeout((1, 1), secs(5));
    let mut second = limiter.try_acquire_timeout((1, 1), secs(2));
    assert!(poll_with(&mut first, &waker).is_pending());
    assert!(poll_with(&mut second, &waker).is_pending());
    let error = limiter.try_acquire((0, 1)).expect_err("a waiter is first");
    assert_eq!(error.retry_after(), None);
    // The window has no room for four more before it ends.
    let error = outcome(&mut limiter.try_acquire_timeout((0, 3), secs(9))).expect_err("too short");
    assert_eq!(error.retry_after(), None);
    clock.advance(secs(2));
    let error = outcome(&mut second).expect_err("no time left");
    assert_eq!((calls.get(), error.retry_after()), (1, None));
    clock.advance(secs(1));
    drop(place);
    assert_eq!(outcome(&mut first).expect("the place").waited(), secs(3));
}

/// How long `work` takes on this machine.
#[track_caller]
fn assert_quick(work: impl FnOnce() + Send + 'static) {
    let took = finishes(move || {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    assert!(took < secs(10), "{took:?}");
}

/// 120 with as much time as they need, and not a nanosecond more, behind each other.
fn as_many_as_are_counted_join<P: Policy<Cost = u32>>(policy: P) {
    let (clock, limiter) = on_hold(policy);
    while limiter.try_acquire(1).is_ok() {}
    let mut line = Vec::new();
    for _ in 0..120 {
        let wait = limiter.try_acquire(1).err().and_then(|error| error.retry_after());
        let mut timed = limiter.try_acquire_timeout(1, wait.expect("a known wait"));
        assert!(is_waiting(&mut timed));
        line.push(timed);
    }
    clock.advance(secs(1_000_000));
    let granted = line.iter_mut().map(outcome).filter(Result::is_ok).count();
    assert_eq!(granted, 120);
}

/// A call counts the first 128 waiters: with less time than these take it is refused, and with less than it needs at its
/// deadline.
#[test]
fn behind_a_crowd_a_timeout_is_judged_by_the_first_waiters() {
    let (clock, limiter) = on_hold(FixedWindow::new(1, secs(1)));
    limiter.try_acquire(1).expect("free");
    let mut line: Vec<_> = (0..300).map(|_| limiter.acquire(1)).collect();
    assert!(line.iter_mut().all(is_waiting));
    let mut timed = limiter.try_acquire_timeout(1, secs(129) - NANOSECOND);
    assert_eq!(denied(outcome(&mut timed)), secs(129));
    let mut timed = limiter.try_acquire_timeout(1, secs(129));
    assert!(is_waiting(&mut timed));
    clock.advance(secs(129));
    assert_eq!(denied(outcome(&mut timed)), secs(129));
    assert_eq!(limiter.queue_len(), 171);
}

#[test]
fn as_many_as_are_counted_join_quickly() {
    assert_quick(|| as_many_as_are_counted_join(FixedWindow::new(10, secs(10))));
    assert_quick(|| as_many_as_are_counted_join(SlidingWindowLog::new(10, secs(10))));
    assert_quick(|| {
        let log = SlidingWindowLog::new(100, secs(100));
        as_many_as_are_counted_join(Same((TokenBucket::new(Rate::per_second(1.0), 5), log)));
    });
}

/// 5,000 callers that time out in succession, in the order of their places or against it.
fn time_runs_out<P: Policy<Cost = u32>>(policy: P, backwards: bool) {
    let (clock, limiter) = on_hold(policy);
    limiter.try_acquire(10).expect("free");
    // A pause that makes the head hopeless would refuse it at once, and then the next.
    let ahead = limiter.reserve(1).expect("a place");
    let mut line: Vec<_> = (1..=5000)
        .map(|place| {
            let after = if backwards { 5001 - place } else { place };
            limiter.try_acquire_timeout(1, secs(4000) + ms(after))
        })
        .collect();
    // All timeouts can be met when the callers join, and none after the pause.
    assert!(line.iter_mut().all(is_waiting));
    limiter.pause_for(secs(10_000));
    clock.advance(secs(4000));
    for left in (0..5000).rev() {
        clock.advance(ms(1));
        assert_eq!(limiter.queue_len(), left + 1);
    }
    assert!(line.iter_mut().all(|one| outcome(one).is_err()));
    clock.advance(secs(10_000));
    assert_eq!(waited(ahead), secs(10_000));
    assert_eq!(limiter.available(), 10);
}

#[test]
fn five_thousand_run_out_of_time_quickly() {
    for backwards in [false, true] {
        assert_quick(move || time_runs_out(FixedWindow::new(10, secs(1)), backwards));
    }
    assert_quick(|| time_runs_out(SlidingWindowLog::new(10, secs(1)), true));
    assert_quick(|| {
        let policy = Same((FixedWindow::new(10, secs(1)), SlidingWindowLog::new(100, secs(10))));
        time_runs_out(policy, true);
    });
}

/// A queue of 10,000 in which one waiter leaves for each that joins; all have more than enough
/// time.
fn ten_thousand_come_and_go<P: Policy<Cost = u32>>(policy: P) {
    let (_, limiter) = on_hold(policy);
    limiter.try_acquire(10).expect("free");
    let mut line: VecDeque<_> =
        (0..10_000).map(|_| limiter.try_acquire_timeout(1, secs(1_000_000))).collect();
    assert!(line.iter_mut().all(is_waiting));
    for _ in 0..10_000 {
        drop(line.pop_front());
        let mut timed = limiter.try_acquire_timeout(1, secs(1_000_000));
        assert!(is_waiting(&mut timed));
        line.push_back(timed);
    }
    assert_eq!(limiter.queue_len(), 10_000);
}

#[test]
fn ten_thousand_come_and_go_quickly() {
    assert_quick(|| ten_thousand_come_and_go(FixedWindow::new(10, secs(1))));
    assert_quick(|| ten_thousand_come_and_go(SlidingWindowLog::new(10, secs(1))));
}

/// The wait for a place in flight is unknown: each new caller goes to the end of the queue.
#[test]
fn ten_thousand_wait_for_a_place_in_flight_and_run_out_of_time_quickly() {
    assert_quick(|| {
        let (clock, limiter) = on_hold((InFlight::new(1), FixedWindow::new(20_000, secs(1))));
        let place = limiter.try_acquire((1, 1)).expect("free");
        let mut line: Vec<_> =
            (1..=10_000).map(|n| limiter.try_acquire_timeout((1, 1), ms(n))).collect();
        assert!(line.iter_mut().all(is_waiting));
        clock.advance(secs(11));
        assert!(line.iter_mut().all(|one| outcome(one).is_err()));
        drop(place);
        assert_eq!(limiter.available(), (1, 20_000));
    });
}
