//! Mistakes in waiting: big requests that starve, lines that freeze, timeouts that are slept out.

use std::time::Duration;

use tollgate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, ManualClock, Policy, Rate,
    RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use super::on_hold;
use crate::support::wakers::Count;
use crate::support::{is_waiting, ms, outcome, poll_with, secs};

const NANOSECOND: Duration = Duration::from_nanos(1);

/// A request for fifty waits behind all permits in use, and one more call comes every 50 ms, twice
/// as often as the rate allows; some callers do not wait, and some do.
#[test]
fn fifty_at_once_are_not_starved_by_small_ones() {
    fn check<P: Policy<Cost = u32>>(policy: P, due: Duration) {
        let (clock, limiter) = on_hold(policy);
        limiter.try_acquire(50).expect("a new limiter grants fifty");
        let big = limiter.reserve(50).expect("a place");
        let mut small = Vec::new();
        let mut passed = 0;
        while clock.elapsed() < secs(7) {
            passed += u32::from(clock.elapsed() < due && limiter.try_acquire(1).is_ok());
            small.push(limiter.reserve(1).expect("a place"));
            clock.advance(ms(50));
        }
        let big = outcome(&mut big.wait()).expect("a grant");
        assert_eq!((passed, big.waited()), (0, due));
    }

    let rate = Rate::per_second(10.0);
    check(SmoothBursty::new(rate), secs(5));
    check(TokenBucket::new(rate, 50), secs(5));
    check(TokenBucket::new(rate, 50).refill_every(secs(1)), secs(5));
    check(Gcra::new(49, 10, secs(1)), secs(5));
    check(LeakyBucket::meter(rate, 50), secs(5));
    check(LeakyBucket::new(rate, 1000), secs(5));
    check(FixedWindow::new(50, secs(5)), secs(5));
    check(SlidingWindowLog::new(50, secs(5)), secs(5));
    check(SlidingWindowCounter::new(50, secs(5), 10), secs(5));
    check([FixedWindow::new(50, secs(5)), FixedWindow::new(60, secs(6))], secs(6));
    check(Same((TokenBucket::new(rate, 50), SlidingWindowLog::new(100, secs(60)))), secs(5));
}

/// Fifty of fifty in flight: they need all that is out to come back at one time.
#[test]
fn fifty_in_flight_are_not_starved_by_small_ones() {
    let (_, limiter) = on_hold(InFlight::new(50));
    let mut out: Vec<_> = (0..50).map(|_| limiter.try_acquire(1).expect("free")).collect();
    let mut big = limiter.acquire(50);
    assert!(is_waiting(&mut big));
    let mut small = Vec::new();
    while let Some(done) = out.pop() {
        assert!(is_waiting(&mut big));
        drop(done);
        assert!(limiter.try_acquire(1).is_err());
        let mut one = limiter.acquire(1);
        assert!(is_waiting(&mut one));
        small.push(one);
    }
    drop(outcome(&mut big).expect("all have come back"));
    assert!(small.iter_mut().all(|one| outcome(one).is_ok()));
}

#[test]
fn the_queue_does_not_freeze_when_the_first_waiter_is_not_polled() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let (clock, limiter) = on_hold(policy);
        while limiter.try_acquire(1).is_ok() {}
        let mut first = limiter.acquire(1);
        assert!(is_waiting(&mut first));
        let (calls, waker) = Count::new();
        let mut second = limiter.acquire(1);
        assert!(poll_with(&mut second, &waker).is_pending());
        // The first future is not polled any more, and no other call touches the limiter.
        clock.advance(secs(60));
        assert_eq!(calls.get(), 1);
        assert!(outcome(&mut second).is_ok());
        std::mem::forget(first);
    }

    let rate = Rate::per_second(10.0);
    check(SmoothBursty::new(rate));
    check(SmoothWarmingUp::new(rate, secs(10)));
    check(TokenBucket::new(rate, 1));
    check(TokenBucket::new(rate, 1).refill_every(secs(3)));
    check(Gcra::new(0, 10, secs(1)));
    check(LeakyBucket::meter(rate, 1));
    check(LeakyBucket::new(rate, 10).with_catch_up(Duration::ZERO));
    check(FixedWindow::new(1, secs(20)));
    check(FixedWindow::new(1, secs(20)).aligned(secs(7)));
    check(SlidingWindowLog::new(1, secs(20)));
    check(SlidingWindowCounter::new(1, secs(20), 10));
    check(LockOut::new(FixedWindow::new(1, secs(5)), secs(30)));
    check([FixedWindow::new(1, secs(5)), FixedWindow::new(1, secs(20))]);
    check(Same((TokenBucket::new(rate, 1), SlidingWindowLog::new(1, secs(20)))));
}

/// The first waiter has its place but is not polled: with two places the second one has the other.
#[test]
fn the_queue_in_flight_does_not_freeze_when_the_first_waiter_is_not_polled() {
    let (_, limiter) = on_hold(InFlight::new(2));
    let out = limiter.try_acquire(2).expect("free");
    let mut first = limiter.acquire(1);
    assert!(is_waiting(&mut first));
    let (calls, waker) = Count::new();
    let mut second = limiter.acquire(1);
    assert!(poll_with(&mut second, &waker).is_pending());
    drop(out);
    assert_eq!(calls.get(), 1);
    assert!(outcome(&mut second).is_ok());
    drop(first);
    assert_eq!(limiter.available(), 2);
}

#[test]
fn a_timeout_that_cannot_be_met_fails_at_once() {
    fn check<P: Policy<Cost = u32>>(policy: P, wait: Duration) {
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        limiter.try_acquire(10).expect("a new limiter grants ten");
        for timeout in [Duration::ZERO, wait / 2, wait - NANOSECOND] {
            let error = outcome(&mut limiter.try_acquire_timeout(4, timeout)).expect_err("no time");
            assert!(matches!(error, Error::Denied { .. }), "{error:?}");
            assert_eq!(error.retry_after(), Some(wait));
            let error = limiter.blocking_try_acquire_timeout(4, timeout).expect_err("no time");
            assert_eq!(error.retry_after(), Some(wait));
        }
        // It was not slept out.
        assert_eq!(clock.elapsed(), Duration::ZERO);
        let grant = limiter.blocking_try_acquire_timeout(4, wait).expect("just enough");
        assert_eq!((grant.waited(), clock.elapsed()), (wait, wait));
    }

    let rate = Rate::per_second(10.0);
    check(SmoothBursty::new(rate), secs(1));
    check(TokenBucket::new(rate, 10), ms(400));
    check(TokenBucket::new(rate, 10).refill_every(ms(300)), ms(600));
    check(Gcra::new(9, 10, secs(1)), ms(400));
    check(LeakyBucket::meter(rate, 10), ms(400));
    check(LeakyBucket::new(rate, 20), secs(1));
    check(FixedWindow::new(10, secs(1)), secs(1));
    check(SlidingWindowLog::new(10, secs(1)), secs(1));
    check(SlidingWindowCounter::new(10, secs(1), 10), secs(1));
    check([TokenBucket::new(rate, 10), TokenBucket::new(Rate::per_second(5.0), 10)], ms(800));
    check(Same((TokenBucket::new(rate, 10), FixedWindow::new(10, ms(300)))), ms(400));
}
