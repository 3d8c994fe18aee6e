//! Callers that enter ahead of others.

use std::task::Poll;
use std::time::{Duration, Instant};

use tollgate::{Error, ManualClock, Nanos, Rate, RateLimiter, SmoothBursty, TokenBucket, block_on};

use crate::support::{Limiter, busy, busy_bounded, is_waiting, ms, outcome, poll, secs};

const MINUTE: Duration = Duration::from_secs(60);

/// Ten a second without a burst, its first permit taken.
fn ten_a_second() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let limiter = RateLimiter::with_clock(policy, &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}

#[test]
fn behind_200_batch_tasks_an_interactive_caller_waits_one_interval_at_most() {
    // Callers that come each 730 ms, by how much they enter ahead, and how long the slowest of them waits.
    let slowest = |ahead: Duration| {
        let (clock, limiter) = ten_a_second();
        let mut batch: Vec<_> = (0..200).map(|_| limiter.acquire(1)).collect();
        assert!(batch.iter_mut().all(is_waiting));
        let mut callers = Vec::new();
        for _ in 0..20 {
            clock.advance(ms(730));
            let mut caller = limiter.acquire_owned(1).ahead_by(ahead);
            let _ = poll(&mut caller);
            callers.push(caller);
        }
        clock.advance(MINUTE);
        assert!(batch.iter_mut().all(|task| outcome(task).is_ok()));
        let waits = callers.iter_mut().map(|caller| outcome(caller).expect("a grant").waited());
        waits.max().expect("20 of them")
    };
    assert_eq!(slowest(MINUTE), ms(100));
    assert_eq!(slowest(Duration::ZERO), ms(19_370));
}

#[test]
fn no_waiter_starves() {
    // How long a batch waiter waits, if `callers` come each 100 ms, five seconds ahead.
    let waits_beside = |callers: usize| {
        let (clock, limiter) = ten_a_second();
        let mut batch = limiter.acquire(1);
        let mut urgent = Vec::new();
        loop {
            if let Poll::Ready(granted) = poll(&mut batch) {
                return granted.expect("a grant").waited();
            }
            assert!(clock.elapsed() < MINUTE, "it starves");
            for _ in 0..callers {
                urgent.push(
                    block_on(limiter.acquire(1).ahead_by(secs(5)).reserve()).expect("a place"),
                );
            }
            clock.advance(ms(100));
        }
    };
    // In FIFO order, and beside as many callers as the rate allows: 5 s longer.
    assert_eq!((waits_beside(0), waits_beside(1)), (ms(100), ms(5_100)));
    // Beside more: it waits for those of five seconds, and for none that comes later.
    assert_eq!(waits_beside(3), ms(100) * (1 + 3 * 50));
}

#[test]
fn the_bounds_of_the_queue_count_them() {
    let (_clock, limiter) = busy_bounded(10.0, 2, 100);
    let _batch = (limiter.reserve(1), limiter.reserve(1));
    let error = outcome(&mut limiter.acquire(1).ahead_by(MINUTE)).expect_err("a full queue");
    assert!(matches!(error, Error::QueueFull { .. }), "{error}");
}

#[test]
fn ahead_by_any_time_at_any_time() {
    let (clock, limiter) = busy(10.0);
    let mut batch = limiter.acquire(1);
    assert!(is_waiting(&mut batch));
    // No effect once it has joined.
    let mut urgent = limiter.acquire(1).ahead_by(Duration::MAX);
    let mut late = limiter.acquire(1);
    assert!(is_waiting(&mut urgent) && is_waiting(&mut late));
    late = late.ahead_by(Duration::MAX);
    assert!(is_waiting(&mut late));
    // More than the horizon is the horizon: one arrival.
    let mut second = limiter.acquire(1).ahead_by(Nanos::HORIZON);
    assert!(is_waiting(&mut second));
    // A clock that goes back makes the newcomer the earliest, but keeps FIFO order.
    clock.set(Duration::ZERO);
    let mut third = limiter.acquire(1);
    assert!(is_waiting(&mut third));
    for due in [&mut urgent, &mut second, &mut batch, &mut late, &mut third] {
        clock.advance(ms(100));
        assert!(matches!(poll(due), Poll::Ready(Ok(_))));
    }
    // Nothing to overtake, and nothing to wait for.
    assert!(outcome(&mut limiter.acquire(0).ahead_by(MINUTE)).is_ok());
    clock.advance(ms(100));
    assert!(outcome(&mut limiter.acquire(1).ahead_by(MINUTE)).is_ok());
}

/// A hundred thousand wait, half of them for longer than the callers enter ahead. To look for the place of each
/// from the front would take a minute.
#[test]
fn a_crowd_of_interactive_callers_finds_its_places_quickly() {
    for ahead in [secs(1), secs(100)] {
        let (clock, limiter) = busy(1.0);
        let mut batch = Vec::new();
        for half in 0..2 {
            clock.advance(ms(900) * half);
            batch.extend((0..50_000).map(|_| limiter.reserve(1).expect("a place")));
        }
        clock.advance(ms(90));
        let started = Instant::now();
        let mut urgent = Vec::new();
        for _ in 0..20_000 {
            clock.advance(Duration::from_nanos(100));
            let mut caller = limiter.acquire(1).ahead_by(ahead);
            assert!(is_waiting(&mut caller));
            urgent.push(caller);
        }
        let timed =
            block_on(limiter.try_acquire_timeout(1, secs(100_000)).ahead_by(ahead).reserve());
        assert!(timed.is_ok());
        drop(urgent);
        assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
        assert_eq!(limiter.queue_len(), 100_001);
    }
}

#[test]
fn a_caller_that_goes_ahead_at_once_has_not_waited() {
    let policy = TokenBucket::new(Rate::per_second(10.0), 5);
    let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    limiter.try_acquire(2).expect("five are there");
    let mut waiter = limiter.acquire(5);
    assert!(is_waiting(&mut waiter));
    let mut urgent = limiter.acquire_owned(1).ahead_by(secs(1));
    assert_eq!(outcome(&mut urgent).expect("three are there").waited(), ms(0));
    assert_eq!(limiter.stats().waits(), 0);
}
