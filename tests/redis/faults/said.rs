//! What a request says of its process, where no other sees that soon.

use futures::future::FutureExt;
use tollgate::ManualClock;

use super::by_hand::places;
use super::wires::lone;

/// Other processes leave places to one that waits.
#[test]
fn a_process_waits_while_it_has_waiters() {
    let (limiter, hand) = places(1, &ManualClock::new());
    let listens = || hand.lease()[1] > 0.0;
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    assert!(listens());
    hand.answer(Ok(lone(0)));
    assert!(caller.now_or_never().expect("answered").is_ok());
    hand.send();
    assert!(hand.sent() == 2 && !listens(), "the key hears that it came back");
}
