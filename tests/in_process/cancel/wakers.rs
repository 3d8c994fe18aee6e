//! A waker is foreign code: it may do anything when it is called or dropped. Each of these tests
//! deadlocks if wakers are called or dropped under the queue's lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use tollgate::{Acquire, Rate, SmoothBursty};

use crate::support::wakers::{Count, OnWake, Owner};
use crate::support::{Limiter, busy, finishes, is_waiting, ms, outcome, poll_with, secs};

/// A waker that owns a waiter in the queue of `limiter`, which leaves with it.
fn owner_of_a_waiter(limiter: &Limiter) -> Waker {
    let mut owned = limiter.acquire_owned(1);
    assert!(is_waiting(&mut owned));
    // `Sync` for a value that is only ever dropped.
    Owner::waker(Mutex::new(owned))
}

#[test]
fn dropping_a_waker_may_drop_another_waiter_when_its_own_leaves() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let mut future = limiter.acquire(1);
        assert!(poll_with(&mut future, &owner_of_a_waiter(&limiter)).is_pending());
        assert_eq!(limiter.queue_len(), 2);
        drop(future);
        assert_eq!(limiter.queue_len(), 0);
        clock.advance(ms(200));
        assert!(limiter.try_acquire(1).is_ok());
    });
}

#[test]
fn dropping_a_waker_may_drop_another_waiter_when_it_is_replaced() {
    finishes(|| {
        let (_clock, limiter) = busy(5.0);
        let mut future = limiter.acquire(1);
        assert!(poll_with(&mut future, &owner_of_a_waiter(&limiter)).is_pending());
        assert!(is_waiting(&mut future));
        assert_eq!(limiter.queue_len(), 1);
    });
}

#[test]
fn dropping_a_waker_may_drop_another_waiter_when_it_was_called() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let mut future = limiter.acquire(1);
        assert!(is_waiting(&mut future));
        assert!(poll_with(&mut future, &owner_of_a_waiter(&limiter)).is_pending());
        assert_eq!(limiter.queue_len(), 2);
        clock.advance(ms(200));
        assert_eq!(limiter.queue_len(), 0);
        assert_eq!(outcome(&mut future).expect("a grant").waited(), ms(200));
    });
}

#[test]
fn a_chain_of_wakers_that_own_waiters_goes_all_at_once() {
    finishes(|| {
        let (_clock, limiter) = busy(5.0);
        let mut owner = Waker::noop().clone();
        for _ in 0..100 {
            let mut future = limiter.acquire_owned(1);
            assert!(poll_with(&mut future, &owner).is_pending());
            owner = Owner::waker(Mutex::new(future));
        }
        assert_eq!(limiter.queue_len(), 100);
        drop(owner);
        assert_eq!(limiter.queue_len(), 0);
    });
}

#[test]
fn a_waker_may_call_its_limiter() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let calls = Arc::new(AtomicUsize::new(0));
        let waker = OnWake::waker({
            let (limiter, calls) = (limiter.clone(), Arc::clone(&calls));
            move || {
                assert_eq!(limiter.queue_len(), 1);
                assert_eq!(limiter.stats().granted, 2);
                assert!(limiter.try_acquire(1).is_err());
                let mut future = limiter.acquire(1);
                assert!(is_waiting(&mut future));
                limiter.set_rate(Rate::per_second(10.0));
                limiter.pause_for(ms(1));
                calls.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (mut first, mut second) = (limiter.acquire(1), limiter.acquire(1));
        assert!(poll_with(&mut first, &waker).is_pending());
        assert!(is_waiting(&mut second));
        clock.advance(ms(200));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        clock.advance(secs(1));
        assert!(outcome(&mut second).is_ok());
    });
}

#[test]
fn a_waker_may_drop_other_waiters() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let victims: Vec<Acquire<tollgate::RateLimiter<SmoothBursty>>> = (0..10)
            .map(|_| {
                let mut future = limiter.acquire_owned(1);
                assert!(is_waiting(&mut future));
                future
            })
            .collect();
        let victims = Mutex::new(victims);
        let waker = OnWake::waker(move || victims.lock().expect("no panic").clear());
        let head = limiter.reserve(1).expect("a place");
        let mut caller = head.wait();
        assert!(poll_with(&mut caller, &waker).is_pending());
        let mut behind = limiter.acquire(1);
        assert!(is_waiting(&mut behind));
        // The ten go when the caller behind them is granted, and some were granted before.
        clock.advance(secs(60));
        assert!(outcome(&mut caller).is_ok());
        assert!(outcome(&mut behind).is_ok());
        assert_eq!((limiter.queue_len(), limiter.stats().given_up), (0, 10));
    });
}

#[test]
fn a_waker_may_move_the_clock() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let waker = OnWake::waker({
            let clock = clock.clone();
            move || clock.advance(secs(1))
        });
        let ((calls, count), mut first) = (Count::new(), limiter.acquire(1));
        let mut second = limiter.acquire(1);
        assert!(poll_with(&mut first, &waker).is_pending());
        assert!(poll_with(&mut second, &count).is_pending());
        clock.advance(ms(300));
        assert_eq!((calls.get(), clock.elapsed()), (1, ms(1200)));
        assert_eq!(outcome(&mut second).expect("a grant").waited(), ms(400));
    });
}
