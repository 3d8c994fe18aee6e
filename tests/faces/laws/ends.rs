//! The end of a limiter.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use tollgate::{AnyRateLimiter, InFlight};

use super::callers::Count;
use super::*;

#[track_caller]
fn closed<T>(outcome: Result<T, Error>) {
    assert_eq!(outcome.err(), Some(Error::Closed));
}

/// All calls, also of a clone and of the form without a type.
#[track_caller]
fn is_closed(limiter: &(impl Limiter<Cost = u32> + 'static)) {
    let (clone, any) = (limiter.clone(), AnyRateLimiter::new(limiter.clone()));
    assert!(limiter.is_closed() && clone.is_closed() && any.is_closed());
    for n in [0, 1] {
        closed(at_once(limiter.acquire(n)));
        closed(at_once(limiter.acquire(n).ahead_by(TENTH)));
        closed(at_once(limiter.acquire_for("ann", n)));
        closed(at_once(clone.try_acquire(n)));
        closed(at_once(clone.try_acquire_timeout(n, TENTH)));
        closed(at_once(any.try_acquire(n)));
        closed(at_once(any.reserve(n)));
        closed(limiter.blocking_acquire(n));
        closed(limiter.try_acquire_timeout(n, TENTH).blocking_wait());
    }
    let before = limiter.stats();
    closed(at_once(limiter.try_acquire(1)));
    assert!(limiter.stats().refused > before.refused && limiter.stats().granted == before.granted);
}

pub(crate) fn those_that_wait_are_refused_when_it_closes<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut waiting = limiter.acquire(1);
    assert!(waiting.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    let due = at_once(limiter.reserve(1)).expect("a place");
    let mut timed = limiter.try_acquire_timeout(1, 10 * TENTH);
    waits(&mut timed);
    let last = at_once(limiter.reserve(1)).expect("a place");
    assert!(!limiter.is_closed());
    clock.advance(TENTH);
    let granted_before = granted(waiting);
    let mut waiting = limiter.acquire(1);
    assert!(waiting.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    clock.advance(TENTH);
    let before = count.0.load(Ordering::SeqCst);
    limiter.close();
    // Not the one that was granted, though it was not polled.
    assert_eq!(granted(due.wait()).waited(), 2 * TENTH);
    assert!(count.0.load(Ordering::SeqCst) > before);
    assert_eq!(limiter.queue_len(), 0);
    closed(at_once(waiting));
    closed(at_once(timed));
    closed(at_once(last.wait()));
    granted_before.refund();
    is_closed(&limiter);
    limiter.close();
    clock.advance(Duration::from_secs(3_600));
    is_closed(&limiter);
    at_once(limiter.drain());
}

pub(crate) fn a_blocked_thread_is_refused_when_it_closes<F: Face>() {
    let (_clock, limiter) = empty::<F>(1);
    let place = at_once(limiter.reserve(1)).expect("a place");
    let (begin, has_begun) = mpsc::channel();
    let thread = thread::spawn(move || {
        begin.send(()).expect("it listens");
        place.blocking_wait().map(drop)
    });
    has_begun.recv().expect("it begins");
    thread::sleep(ms(2));
    limiter.close();
    assert_eq!(limiter.queue_len(), 0);
    let start = Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not woken");
        thread::yield_now();
    }
    closed(thread.join().expect("no panic"));
}

pub(crate) fn a_pause_and_its_end_open_nothing<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut waiting = limiter.acquire(1);
    waits(&mut waiting);
    granted(limiter.pause_for(10 * TENTH));
    limiter.close();
    closed(at_once(waiting));
    is_closed(&limiter);
    let _ = at_once(limiter.resume());
    is_closed(&limiter);
    let _ = at_once(limiter.pause_for(TENTH));
    clock.advance(20 * TENTH);
    is_closed(&limiter);
}

pub(crate) fn a_drained_limiter_serves_its_queue<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let (mut first, mut leaves) = (limiter.acquire(1), limiter.acquire(1));
    waits(&mut first);
    waits(&mut leaves);
    let last = at_once(limiter.reserve(1)).expect("a place");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut drain = Box::pin(limiter.drain());
    // Nothing is closed before it is polled.
    assert!(!limiter.is_closed());
    assert!(drain.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    is_closed(&limiter);
    waits(&mut first);
    clock.advance(TENTH);
    assert_eq!(granted(first).waited(), TENTH);
    drop(leaves);
    assert_eq!(limiter.queue_len(), 1);
    waits(&mut drain);
    let before = count.0.load(Ordering::SeqCst);
    clock.advance(TENTH);
    // A `Feedback` hears the end of its calls, and waits for it.
    assert_eq!(granted(last.wait()).waited(), 2 * TENTH);
    assert!(count.0.load(Ordering::SeqCst) > before, "it is not woken");
    at_once(drain);
    is_closed(&limiter);
    at_once(limiter.drain());
}

pub(crate) fn a_drain_that_is_dropped_goes_on_until_it_is_closed<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let (mut first, mut second) = (limiter.acquire(1), limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    let mut drain = Box::pin(limiter.drain());
    waits(&mut drain);
    drop(drain);
    is_closed(&limiter);
    clock.advance(TENTH);
    assert_eq!(granted(first).waited(), TENTH);
    waits(&mut second);
    let mut drain = Box::pin(limiter.drain());
    waits(&mut drain);
    limiter.close();
    closed(at_once(second));
    at_once(drain);
}

pub(crate) fn a_limiter_is_drained_when_its_places_are_back<F: Face>() {
    let clock = clock();
    let limiter = F::made(InFlight::new(1), clock.clone());
    let held = granted(limiter.try_acquire(1));
    let mut waiting = limiter.acquire(1);
    waits(&mut waiting);
    let mut drain = Box::pin(limiter.drain());
    waits(&mut drain);
    drop(held);
    clock.advance(TENTH);
    let held = granted(waiting);
    waits(&mut drain);
    drop(held);
    at_once(drain);
}

pub(crate) fn a_place_comes_back_to_a_closed_limiter<F: Face>() {
    let clock = clock();
    let limiter = F::made(InFlight::new(1), clock);
    let mut held = granted(limiter.try_acquire(1));
    let mut waiting = limiter.acquire(1);
    waits(&mut waiting);
    limiter.close();
    closed(at_once(waiting));
    let mut drain = Box::pin(limiter.drain());
    waits(&mut drain);
    held.settle_on_drop(1);
    held.refund();
    at_once(drain);
}
