//! What a request says of its process, where no other sees that soon.

use futures::future::FutureExt;
use tollgate::ManualClock;
use tollgate::redis::Reply;

use super::by_hand::{other_policy, places};
use super::wires::Hand;
use super::{builder, bursty};

/// Other processes leave places to one that waits.
#[test]
fn a_process_waits_while_it_has_waiters() {
    let (limiter, hand) = places(1, &ManualClock::new());
    let listens = || hand.lease()[1] > 0.0;
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    assert!(listens());
    hand.answer(Ok(Reply::Number(0)));
    assert!(caller.now_or_never().expect("answered").is_ok());
    hand.send();
    assert!(hand.sent() == 2 && !listens(), "the key hears that it came back");
}

/// The policy that is in force instead is not its own.
#[test]
fn a_claim_ends_when_another_policy_is_adopted() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).version(1).clock(&clock).build();
    let claims = || hand.last().get(3).is_some_and(|claim| !claim.is_empty());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    // An earlier version gives way.
    hand.answer(other_policy(20.0, (0, 0)));
    assert!(hand.sent() == 2 && claims());
    hand.answer(other_policy(30.0, (2, 0)));
    assert_eq!(limiter.policy(), bursty(30.0));
    hand.answer(Ok(Reply::Number(0)));
    assert!(caller.now_or_never().expect("answered").is_ok());
    assert!(hand.sent() == 4 && hand.last().len() == 4 && !claims());
}
