//! A limiter is closed in one process, and others go on.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{Acquire, Error, InFlight, ManualClock, Rate, SmoothBursty};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<SmoothBursty, Manual>;

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two processes with ten a second without a burst, the first permit taken, and a horizon of a second.
fn two_processes() -> (ManualClock, [Limiter; 2]) {
    let (clock, key) = (ManualClock::new(), new_key());
    clock.advance(MINUTE);
    let process = |_| {
        let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
        let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), key.clone());
        builder.clock(&clock).horizon(ms(1_000)).build()
    };
    let limiters = [0, 1].map(process);
    assert!(limiters[0].try_acquire(1).now_or_never().expect("an answer").is_ok());
    (clock, limiters)
}

fn joins(limiter: &Limiter) -> Acquire<Limiter> {
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    caller
}

#[track_caller]
fn closed<T>(answer: Option<Result<T, Error>>) {
    assert_eq!(answer.expect("an answer").err(), Some(Error::Closed));
}

#[test]
fn what_was_booked_for_waiters_goes_back_and_others_get_it() {
    let (clock, [limiter, other]) = two_processes();
    let waiting: Vec<_> = (0..20).map(|_| joins(&limiter)).collect();
    limiter.close();
    waiting.into_iter().for_each(|caller| closed(caller.now_or_never()));
    closed(limiter.acquire(1).now_or_never());
    closed(limiter.clone().try_acquire(0).now_or_never());
    assert!(limiter.is_closed() && !other.is_closed() && !limiter.at(new_key()).is_closed());
    // Behind seven bookings it would be the eighth. Of the first a caller that leaves gives nothing back either.
    let caller = joins(&other);
    clock.advance(MINUTE);
    let waited = caller.now_or_never().expect("an answer").expect("granted").waited();
    assert!(waited <= ms(200), "{waited:?}");
    // Its line stays as it is, however long it is not used.
    (0..9).for_each(|_| drop(limiter.at(new_key())));
    let key = limiter.key().to_owned();
    let beside = limiter.at(new_key());
    drop(limiter);
    clock.advance(1_000 * MINUTE);
    (0..9).for_each(|_| drop(beside.at(new_key())));
    closed(beside.at(key).acquire(1).now_or_never());
}

#[test]
fn a_drain_serves_those_that_are_booked_and_those_that_are_not() {
    let (clock, [limiter, _]) = two_processes();
    let waiting: Vec<_> = (0..20).map(|_| joins(&limiter)).collect();
    let mut drain = Box::pin(limiter.drain());
    assert!((&mut drain).now_or_never().is_none());
    closed(limiter.acquire(1).now_or_never());
    clock.advance(ms(1_900));
    assert!((&mut drain).now_or_never().is_none());
    clock.advance(ms(100));
    assert!(drain.now_or_never().is_some());
    let waited = waiting.into_iter().map(|caller| {
        caller.now_or_never().expect("an answer").expect("served").waited().as_millis()
    });
    assert!(waited.eq((1..=20).map(|turn| turn * 100)));
}

#[test]
fn the_places_of_this_process_count_for_a_drain() {
    let (clock, key) = (ManualClock::new(), new_key());
    let process = |_| {
        let builder = RedisRateLimiter::builder(InFlight::new(2), Manual::new(&clock), key.clone());
        builder.clock(&clock).build()
    };
    let [limiter, other] = [0, 1].map(process);
    let [held, _elsewhere] = [&limiter, &other]
        .map(|limiter| limiter.acquire(1).now_or_never().expect("an answer").expect("free"));
    let mut drain = Box::pin(limiter.drain());
    assert!((&mut drain).now_or_never().is_none());
    drop(held);
    assert!(drain.now_or_never().is_some());
    assert!(other.acquire(1).now_or_never().expect("an answer").is_ok());
}

#[test]
fn all_keys_are_closed_and_those_that_come_later() {
    let (clock, [limiter, other]) = two_processes();
    let second = limiter.at(new_key());
    drop(second.acquire(1).now_or_never().expect("an answer").expect("free"));
    let waiting = [joins(&limiter), joins(&second)];
    limiter.close_all();
    waiting.into_iter().for_each(|caller| closed(caller.now_or_never()));
    let third = limiter.at(new_key());
    for limiter in [&limiter, &second, &third] {
        assert!(limiter.is_closed());
        closed(limiter.acquire(1).now_or_never());
    }
    assert!(!other.is_closed() && !other.at(third.key()).is_closed());
    // They need no memory: a key that comes back is closed as well.
    drop((second, third));
    clock.advance(1_000 * MINUTE);
    (0..9).for_each(|_| drop(limiter.at(new_key())));
    clock.advance(1_000 * MINUTE);
    (0..9).for_each(|_| drop(limiter.at("the last")));
    assert_eq!(limiter.len(), 2);
    closed(limiter.at("the last").acquire(1).now_or_never());
}

#[test]
fn a_drain_of_all_keys_serves_each_of_them() {
    let (clock, [limiter, _]) = two_processes();
    let second = limiter.at(new_key());
    drop(second.acquire(1).now_or_never().expect("an answer").expect("free"));
    let waiting = [joins(&second), joins(&limiter), joins(&second)];
    let mut drain = Box::pin(limiter.drain_all());
    assert!((&mut drain).now_or_never().is_none());
    for key in [limiter.key(), second.key(), "a new one"] {
        closed(limiter.at(key).acquire(1).now_or_never());
    }
    clock.advance(ms(100));
    assert!((&mut drain).now_or_never().is_none());
    clock.advance(ms(100));
    assert!(drain.now_or_never().is_some());
    for caller in waiting {
        assert!(caller.now_or_never().expect("an answer").is_ok());
    }
}
