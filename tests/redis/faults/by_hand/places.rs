//! What is left of a caller that leaves, and what others see of those that wait.

use std::sync::Arc;
use std::task::{Context, Waker};

use futures::future::FutureExt;
use tollgate::{Error, Limiter as _, ManualClock};

use super::{booked, joins, limiter};
use crate::faults::wakers::Woken;
use crate::faults::wires::{Hand, lone};
use crate::faults::{builder, bursty, ms};

#[test]
fn a_caller_that_leaves_in_the_midst_of_its_request_waits_no_longer() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let woken = Arc::new(Woken::default());
    let mut caller = limiter.acquire(3);
    let waker = Waker::from(Arc::clone(&woken));
    assert!(caller.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    hand.send();
    assert_eq!((limiter.queue_len(), limiter.queued_permits()), (1, 3));
    drop(caller);
    assert_eq!((limiter.queue_len(), Arc::strong_count(&woken)), (0, 1), "nor is its waker kept");
    let behind = joins(limiter.acquire(1));
    assert_eq!(limiter.queue_len(), 1);
    // Its permits go back, as the next caller asks for fewer.
    hand.answer(Ok(lone(0)));
    hand.answer(Ok(lone(0)));
    assert!(!woken.is());
    drop(behind);
}

#[test]
fn a_full_queue_says_when_its_first_caller_goes() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).horizon(ms(1_000)).clock(&clock);
    let limiter = limiter.max_waiters(1).max_queued_permits(9).build();
    let _first = joins(limiter.acquire(1));
    let refused = || {
        let error = limiter.acquire(1).now_or_never().expect("refused").expect_err("it is full");
        assert!(matches!(error, Error::QueueFull { limit: "max_waiters", .. }), "{error}");
        error.retry_after()
    };
    assert_eq!(refused(), None);
    hand.answer(Ok(lone(booked(200))));
    assert_eq!(refused(), Some(ms(200)));
    clock.advance(ms(150));
    assert_eq!(refused(), Some(ms(50)));

    let limiter = builder(bursty(10.0), Hand::default()).clock(&clock).max_queued_permits(9);
    let limiter = limiter.build();
    let _first = joins(limiter.acquire(5));
    let error = limiter.acquire(5).now_or_never().expect("refused").expect_err("it is full");
    assert!(matches!(error, Error::QueueFull { limit: "max_queued_permits", .. }), "{error}");
    let _second = joins(limiter.acquire(4));
}

/// Others than a caller that waits do not move it.
#[test]
fn a_clock_that_advances_by_itself_stands_still_while_no_caller_waits_for_it() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut place = Box::pin(limiter.acquire(1).reserve());
    assert!((&mut place).now_or_never().is_none());
    hand.answer(Ok(lone(booked(200))));
    let place = place.now_or_never().expect("a place").expect("a place");
    assert_eq!((limiter.queue_len(), place.delay()), (1, ms(200)));
    assert_eq!(clock.elapsed(), ms(0));
    let grant = place.wait().now_or_never().expect("granted").expect("granted");
    assert_eq!((grant.waited(), clock.elapsed()), (ms(200), ms(200)));
}
