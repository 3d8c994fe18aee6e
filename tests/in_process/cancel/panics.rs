//! Wakers and listeners that panic: other callers are not affected, and the thread of the system's clock survives.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate::{Event, ManualClock, Rate, RateLimiter, SmoothBursty, TokenBucket};

use crate::support::wakers::{Count, OnWake};
use crate::support::{block_on, bursty, finishes, ms, outcome, poll_with, secs, until};

fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// Another limiter by the same clock still ends its waits.
#[track_caller]
fn assert_the_clock_still_runs() {
    let start = Instant::now();
    let other = RateLimiter::new(SmoothBursty::new(Rate::every(ms(10))));
    for _ in 0..3 {
        other.blocking_acquire(1).expect("a grant");
    }
    assert!(start.elapsed() >= ms(20));
}

/// It hears of a grant before the caller has it.
#[test]
fn a_listener_that_panics_costs_a_caller_that_blocks_or_waits_no_permits() {
    let refusing = |event: &Event| panic!("a listener that panics, on purpose: {event:?}");
    let policy = TokenBucket::new(Rate::per_second(10.0), 10).initial(0);
    let builder = RateLimiter::builder(policy).clock(ManualClock::auto_advance());
    let limiter = builder.slow_wait(Duration::ZERO).on_event(refusing).build();
    assert!(panics(|| drop(limiter.blocking_acquire(5))));
    assert_eq!(limiter.available(), 5);
    assert!(panics(|| _ = outcome(&mut limiter.acquire(9))));
    assert_eq!(limiter.available(), 9);
    assert!(limiter.try_acquire(9).is_ok());
}

#[test]
fn a_waker_that_panics_on_the_clocks_thread_leaves_other_limiters_working() {
    finishes(|| {
        let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(ms(20))));
        limiter.try_acquire(5).expect("a new limiter grants at once");
        let mut future = limiter.acquire(1);
        let called = Arc::new(AtomicBool::new(false));
        let waker = OnWake::waker({
            let called = Arc::clone(&called);
            move || {
                called.store(true, Ordering::SeqCst);
                panic!("a waker that panics, on purpose");
            }
        });
        assert!(poll_with(&mut future, &waker).is_pending());
        // Not by asking the limiter, which would grant and wake on this thread.
        until(|| called.load(Ordering::SeqCst));
        assert_the_clock_still_runs();
        assert!(block_on(future).is_ok());
    });
}

/// The value of a panic.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("a value that panics, on purpose");
    }
}

/// All three are granted in one go when the fifty come back.
#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    let (clock, limiter) = bursty(5.0);
    clock.advance(secs(1));
    let big = limiter.reserve(50).expect("a grant");
    let (calls, waker) = Count::new();
    let panics = OnWake::waker(|| panic_any(PanicsAgain));
    let mut line: Vec<_> = (0..3).map(|_| limiter.acquire(1)).collect();
    for (future, waker) in line.iter_mut().zip([&waker, &panics, &waker]) {
        assert!(poll_with(future, waker).is_pending());
    }
    drop(big);
    assert_eq!((limiter.queue_len(), calls.get()), (0, 2));
}
