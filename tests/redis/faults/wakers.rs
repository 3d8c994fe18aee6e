//! Whom a reply wakes, and what it waits for: by the clock of the system, as callers of another clock are woken all at
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures::future::FutureExt;

use super::wires::{Hand, lone, several, told};
use super::{builder, bursty};
use crate::support::{LIMIT, until};

/// Whether its caller was woken.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Woken {
    pub(super) fn is(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Nothing else happens at the limiter afterwards: no request is due, nor any booking.
#[test]
fn the_first_of_those_that_a_reply_serves_wakes_the_others() {
    let hand = Hand::default();
    let limiter = builder(bursty(10.0), hand.clone()).deadline(LIMIT).build();
    // The two callers are in one request, because another is under way when they come.
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let woken = [(); 2].map(|()| Arc::new(Woken::default()));
    let wakers = woken.each_ref().map(|woken| Waker::from(Arc::clone(woken)));
    let mut callers = [1, 1].map(|n| limiter.acquire(n));
    for (caller, waker) in callers.iter_mut().zip(&wakers) {
        assert!(caller.poll_unpin(&mut Context::from_waker(waker)).is_pending());
    }
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    hand.answer(Ok(several(&[0, 2])));
    assert!(woken[0].is());
    let [first, second] = callers;
    assert!(first.now_or_never().expect("served").is_ok());
    assert!(woken[1].is());
    assert!(second.now_or_never().expect("served").is_ok());
}

/// The next request waits half a millisecond for callers that a reply has served: they may come back for it.
#[test]
fn a_served_caller_that_does_not_come_holds_up_no_request() {
    let hand = Hand::default();
    // With a deadline so far away no other alarm goes off meanwhile.
    let limiter = builder(bursty(10.0), hand.clone()).deadline(60 * LIMIT).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.answer(Ok(lone(0)));
    // No call comes to the limiter meanwhile.
    until("the next request is sent", || {
        hand.send();
        hand.sent() == 2
    });
    assert!(caller.now_or_never().expect("served").is_ok());
}
