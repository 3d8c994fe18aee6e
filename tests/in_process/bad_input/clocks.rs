//! Clocks that go back, and clocks that have reached their end.

use std::time::Duration;

use tollgate::{
    Clock, FixedWindow, ManualClock, Nanos, Rate, RateLimiter, Rated, SmoothBursty, SmoothWarmingUp,
};

use crate::support::bucket::Bucket;
use crate::support::{bursty, busy, finishes, is_waiting, ms, outcome, secs, waited};

#[test]
fn a_clock_that_was_set_back_goes_on_from_there() {
    let clock = ManualClock::new();
    clock.set(secs(10));
    clock.set(secs(4));
    assert_eq!((clock.elapsed(), Clock::from(&clock).now()), (secs(4), Nanos::new(10_000_000_000)));
    clock.advance(secs(3));
    assert_eq!(clock.elapsed(), secs(7));
}

#[test]
fn waiters_are_granted_when_a_clock_that_was_set_back_reaches_their_time() {
    let (clock, limiter) = bursty(5.0);
    clock.set(secs(10));
    limiter.try_acquire(10).expect("stored");
    let before = limiter.reserve(1).expect("a place");
    let delay = before.delay();
    clock.set(secs(1));
    let meanwhile = limiter.reserve(1).expect("a place");
    assert_eq!(limiter.queue_len(), 2);
    assert_eq!(before.delay(), delay);
    clock.set(secs(10));
    assert_eq!(before.delay(), delay);
    clock.set(secs(20));
    assert_eq!(waited(before), delay);
    assert_eq!(waited(meanwhile), delay + ms(200));
}

#[test]
fn no_waiter_hangs_or_overtakes_while_the_clock_jumps() {
    let (clock, limiter) = busy(5.0);
    let line: Vec<_> = (0..20).map(|_| limiter.reserve(1).expect("a place")).collect();
    for step in 1..=60 {
        clock.set(ms(100 * step));
        clock.set(ms(37 * step));
        assert!(limiter.try_acquire(1).is_err() || limiter.queue_len() == 0);
    }
    assert_eq!(limiter.queue_len(), 0);
    for (place, reservation) in (1..).zip(line) {
        assert_eq!(waited(reservation), ms(200) * place);
    }
}

#[test]
fn a_deadline_is_met_when_the_clock_comes_by_it_again() {
    let (clock, limiter) = busy(5.0);
    clock.set(secs(10));
    limiter.try_acquire(50).expect("stored");
    let _ahead = limiter.reserve(1).expect("a place");
    let mut timed = limiter.try_acquire_timeout(1, secs(15));
    assert!(is_waiting(&mut timed));
    clock.set(secs(1));
    assert!(is_waiting(&mut timed));
    clock.set(secs(10));
    limiter.pause_for(secs(3600));
    clock.set(secs(25) - ms(1));
    assert!(is_waiting(&mut timed));
    clock.set(secs(60));
    assert!(outcome(&mut timed).is_err());
}

/// The waiter joined at a time that the clock has still to show again.
#[test]
fn a_refund_at_a_time_before_the_head_joined_neither_hangs_nor_panics() {
    let (clock, limiter) = bursty(5.0);
    let grant = limiter.try_acquire(10).expect("a new limiter grants at once");
    clock.set(secs(1));
    let waiting = limiter.reserve(1).expect("a place");
    clock.set(ms(500));
    grant.refund();
    assert!(limiter.try_acquire(1).is_ok());
    clock.set(secs(2));
    assert_eq!(waited(waiting), Duration::ZERO);
}

/// Where the clock stops no window ends, and none is used up twice.
#[test]
fn a_window_at_the_end_of_the_clock_holds_its_limit() {
    let clock = ManualClock::new();
    clock.advance(Duration::MAX);
    let policy = FixedWindow::new(100, secs(1));
    for policy in [policy.clone(), policy.aligned(Duration::ZERO)] {
        let limiter = RateLimiter::with_clock(policy, &clock);
        assert!(limiter.try_acquire(100).is_ok());
        assert!(limiter.try_acquire(1).is_err());
    }
}

/// At the end of the clock, ready requests are granted. Other calls get the true wait, and wait for
/// ever.
#[test]
fn at_the_end_of_the_clock_decisions_are_as_ever() {
    fn check<P: Rated<Cost = u32>>(policy: P) {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        clock.advance(Duration::MAX);
        assert!(limiter.available() >= 5);
        limiter.try_acquire(100).expect("ready");
        let wait = limiter.try_acquire(1).expect_err("owed").retry_after().expect("a time");
        assert!((secs(19)..secs(60)).contains(&wait), "{wait:?}");
        let mut waiting = limiter.acquire(1);
        assert!(is_waiting(&mut waiting));
        let mut timed = limiter.try_acquire_timeout(1, wait / 2);
        assert!(outcome(&mut timed).is_err());
        limiter.pause_for(secs(3600));
        limiter.set_rate(Rate::per_second(7.0));
        clock.advance(Duration::MAX);
        assert!(is_waiting(&mut waiting));
    }
    check(SmoothBursty::new(Rate::per_second(5.0)));
    check(SmoothWarmingUp::new(Rate::per_second(5.0), secs(1)));
}

#[test]
fn a_limiter_made_at_the_end_of_the_clock_grants_its_first() {
    let clock = ManualClock::new();
    clock.advance(Duration::MAX);
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
    assert!(limiter.try_acquire(1).is_ok());
    assert_eq!(limiter.try_acquire(1).expect_err("taken").retry_after(), Some(ms(200)));
    let limiter = RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 5 }, clock);
    assert_eq!(limiter.try_acquire(1).expect_err("empty").retry_after(), Some(ms(100)));
}

/// The clock cannot reach the end of the wait. A wait that never ends is acceptable, and so is a
/// panic that says so; a thread that spins for ever is not.
#[test]
fn a_clock_that_moves_by_itself_does_not_spin_at_its_end() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter =
            RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
        clock.advance(Duration::MAX);
        limiter.try_acquire(1).expect("ready");
        limiter.try_acquire(10).expect("stored");
        let mut future = limiter.acquire(1);
        assert!(is_waiting(&mut future));
    });
}
