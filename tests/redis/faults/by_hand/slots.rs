//! More requests than may be in flight.

use futures::future::FutureExt;
use tollgate::redis::State;
use tollgate::{Error, ManualClock};

use super::{Call, limiter};
use crate::faults::watchdog::PATIENCE;
use crate::faults::wires::{Hand, lone};
use crate::faults::{Limiter, ms, store};

/// One caller at each of `callers` other keys. Requests are sent until the limit is reached.
fn crowd(limiter: &Limiter<Hand>, hand: &Hand, callers: u32) -> Vec<Call> {
    let key = |number: u32| limiter.at(number.to_string()).acquire(1);
    let mut callers: Vec<_> = (0..callers).map(key).collect();
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.send();
    callers
}

/// A crowd of keys is not an outage: they would wait for each other beyond their deadline.
#[test]
fn the_number_of_requests_in_flight_is_bounded() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let callers = crowd(&limiter, &hand, 600);
    assert_eq!(hand.sent(), 512);
    clock.advance(ms(20));
    for _ in 0..512 {
        hand.answer(Ok(lone(0)));
    }
    assert_eq!(hand.sent(), 600);
    clock.advance(ms(450));
    for _ in 0..88 {
        hand.answer(Ok(lone(0)));
    }
    assert!(callers.into_iter().all(|caller| caller.now_or_never().expect("granted").is_ok()));
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Up, 0));
}

/// It gets its error when it would have given up on a reply.
#[test]
fn a_caller_without_a_request_slot_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut last = limiter.acquire(1);
    let mut leaver = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut last).now_or_never().is_none() && (&mut leaver).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    let denied = leaver.now_or_never().expect("answered");
    assert!(matches!(denied, Err(Error::Denied { retry_after: None, .. })), "{denied:?}");
    clock.advance(PATIENCE - ms(101));
    assert!((&mut last).now_or_never().is_none());
    clock.advance(ms(1));
    let error = store(last.now_or_never().expect("answered"));
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert_eq!((limiter.queue_len(), hand.sent()), (0, 512));
    clock.advance(ms(1));
    hand.answer(Ok(lone(0)));
    assert_eq!(limiter.state(), State::Up);
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    let granted = (0..2_000).find_map(|_| {
        hand.answer(Ok(lone(0)));
        (&mut next).now_or_never()
    });
    assert!(granted.expect("granted").is_ok());
}

/// The same for a change.
#[test]
fn a_change_without_a_request_slot_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    clock.advance(PATIENCE - ms(1));
    assert!((&mut quota).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(!store(quota.now_or_never().expect("answered")).may_have_charged());
}
