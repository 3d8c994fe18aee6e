//! Callers that enter ahead of others of their process.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::Limiter as _;
use tollgate::redis::RedisRateLimiter;
use tollgate::{Acquire, AnyRateLimiter, Error, ManualClock, Rate, SmoothBursty, TokenBucket};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<SmoothBursty, Manual>;
type Caller = Acquire<RedisRateLimiter<SmoothBursty, Manual>>;

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten a second without a burst, its first permit taken.
fn ten_a_second(horizon: Duration) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    clock.advance(MINUTE);
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key());
    let limiter = builder.clock(&clock).horizon(horizon).build();
    assert!(limiter.try_acquire(1).now_or_never().expect("an answer").is_ok());
    (clock, limiter)
}

fn joins(mut caller: Caller) -> Caller {
    assert!((&mut caller).now_or_never().is_none());
    caller
}

fn waited(caller: Caller) -> Duration {
    caller.now_or_never().expect("an answer").expect("a grant").waited()
}

/// Those that are booked come first, and an interval.
#[test]
fn behind_200_batch_tasks_an_interactive_caller_waits_for_the_horizon_and_an_interval_at_most() {
    for (horizon, most) in [(0, 100), (250, 350)] {
        let (clock, limiter) = ten_a_second(ms(horizon));
        let batch: Vec<_> = (0..200).map(|_| joins(limiter.acquire(1))).collect();
        let mut urgent = Vec::new();
        for _ in 0..20 {
            clock.advance(ms(730));
            urgent.push(joins(limiter.acquire(1).ahead_by(MINUTE)));
        }
        clock.advance(MINUTE);
        let slowest = urgent.into_iter().map(waited).max().expect("20 of them");
        assert!(slowest <= ms(most), "{slowest:?} with a horizon of {horizon} ms");
        assert_eq!(batch.into_iter().map(waited).max(), Some(ms(22_000)));
    }
}

#[test]
fn equals_are_in_fifo_order() {
    let (clock, limiter) = ten_a_second(ms(250));
    let mut callers = Vec::new();
    for round in 0..10 {
        for ahead in [0, 1, 60] {
            let caller = limiter.acquire(1).ahead_by(Duration::from_secs(ahead));
            callers.push((ahead, round, joins(caller)));
        }
    }
    clock.advance(MINUTE);
    let grants = callers.into_iter().map(|(ahead, round, caller)| (ahead, round, waited(caller)));
    let mut grants: Vec<_> = grants.collect();
    grants.sort();
    for pair in grants.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!(pair[0].2 < pair[1].2, "{pair:?}");
    }
}

#[test]
fn the_wait_is_that_of_its_place() {
    let (clock, limiter) = ten_a_second(Duration::ZERO);
    let batch: Vec<_> = (0..100).map(|_| joins(limiter.acquire(1))).collect();
    let refused = |call: Caller| {
        let error = call.now_or_never().expect("an answer").expect_err("it does not wait");
        error.retry_after()
    };
    assert_eq!(refused(limiter.try_acquire(1)), Some(ms(10_100)));
    assert_eq!(refused(limiter.try_acquire(1).ahead_by(MINUTE)), Some(ms(100)));
    let place = limiter.acquire(3).ahead_by(MINUTE).reserve().now_or_never();
    let place = place.expect("an answer").expect("a place");
    assert_eq!(place.delay(), ms(100));
    let late = limiter.try_acquire_timeout(1, ms(399)).ahead_by(MINUTE);
    assert_eq!(refused(late), Some(ms(400)));
    let in_time = joins(limiter.try_acquire_timeout(1, ms(400)).ahead_by(MINUTE));
    let any: AnyRateLimiter = AnyRateLimiter::new(limiter);
    let mut erased = any.acquire(1).ahead_by(2 * MINUTE);
    assert!((&mut erased).now_or_never().is_none());
    clock.advance(MINUTE);
    assert_eq!(waited(place.wait()), ms(200));
    let erased = erased.now_or_never().expect("an answer").expect("a grant");
    assert_eq!(erased.waited(), ms(100));
    // It was overtaken, and cannot be granted in time any more.
    assert!(in_time.now_or_never().expect("an answer").is_err());
    drop(batch);
}

#[test]
fn callers_that_leave_while_they_are_asked_for_leave_no_trace() {
    let (clock, limiter) = ten_a_second(ms(250));
    let batch = joins(limiter.acquire(1));
    let urgent: Vec<_> = (1..5).map(|n| joins(limiter.acquire(n).ahead_by(MINUTE))).collect();
    drop(urgent);
    clock.advance(MINUTE);
    assert_eq!(waited(batch), ms(100));
    assert_eq!(limiter.queue_len(), 0);
}

/// Only the first is booked before it is due. When it leaves, a caller ahead with the same cost gets its booking, and one
/// with another cost leaves it to the server. No permit is lost or taken twice.
#[test]
fn bookings_of_callers_that_are_overtaken_stay_theirs_until_they_leave() {
    for (urgent_cost, leaves, expected) in [
        (1, false, [200, 300]),
        (1, true, [100, 200]),
        (2, false, [200, 400]),
        (2, true, [100, 300]),
    ] {
        let (clock, limiter) = ten_a_second(ms(250));
        let mut batch: Vec<_> = (0..5).map(|_| joins(limiter.acquire(1))).collect();
        clock.advance(ms(1));
        let first = joins(limiter.acquire(urgent_cost).ahead_by(MINUTE));
        let second = joins(limiter.acquire(urgent_cost).ahead_by(MINUTE));
        if leaves {
            drop(batch.remove(0));
        }
        clock.advance(MINUTE);
        let since = ms(1);
        assert_eq!([first, second].map(|caller| waited(caller) + since), expected.map(ms));
        let last = batch.into_iter().map(waited).max();
        let permits = 2 * u64::from(urgent_cost) + if leaves { 4 } else { 5 };
        assert_eq!(last, Some(ms(100 * permits)), "{urgent_cost} {leaves}");
        assert_eq!(limiter.queue_len(), 0);
    }
}

#[test]
fn a_new_policy_refuses_callers_ahead_that_ask_for_too_much_and_keeps_the_order_of_the_rest() {
    let clock = ManualClock::new();
    clock.advance(MINUTE);
    let bucket = |capacity| TokenBucket::new(Rate::per_second(10.0), capacity);
    let builder = RedisRateLimiter::builder(bucket(50), Manual::new(&clock), new_key());
    let limiter = builder.clock(&clock).horizon(Duration::ZERO).absent_is_new(false).build();
    assert!(limiter.try_acquire(50).now_or_never().expect("an answer").is_ok());
    let joins = |mut caller: Acquire<RedisRateLimiter<TokenBucket, Manual>>| {
        assert!((&mut caller).now_or_never().is_none());
        caller
    };
    let mut overtaken = joins(limiter.acquire(40));
    let small = joins(limiter.acquire(5));
    let mut huge = joins(limiter.acquire(50).ahead_by(MINUTE));
    let urgent = joins(limiter.acquire(2).ahead_by(MINUTE));
    assert!(limiter.set_policy(bucket(5)).now_or_never().expect("an answer").is_ok());
    for caller in [&mut overtaken, &mut huge] {
        let error = caller.now_or_never().expect("an answer").expect_err("too large");
        assert!(matches!(error, Error::ExceedsCapacity(_)), "{error}");
    }
    clock.advance(MINUTE);
    let waits = [urgent, small]
        .map(|caller| caller.now_or_never().expect("an answer").expect("a grant").waited());
    assert_eq!(waits, [ms(200), ms(700)]);
}
