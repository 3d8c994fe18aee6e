//! Orders of events to which no real server can be brought for certain: requests are sent and answered
//! when a test says so.

use futures::future::FutureExt;
use tollgate::ManualClock;
use tollgate::redis::{Effect, Failure, Reply, State};

use super::wires::Hand;
use super::{builder, bursty, ms};

fn refused() -> Result<Reply, Failure> {
    Err(Failure::new(Effect::None, "connection refused".into()))
}

/// A runtime that is busy for so long that Redis counts as down when the task begins.
#[test]
fn a_try_that_comes_too_late_leaves_it_to_others_to_try() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    hand.answer(refused());
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 2));
    // The third is due, and does not begin before all are turned away.
    clock.advance(ms(2));
    clock.advance(ms(600));
    assert_eq!(limiter.state(), State::Down);
    hand.send();
    assert!(caller.now_or_never().expect("it is told").is_err());
    // It asks whether Redis is back instead, and it is.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!((limiter.state(), hand.sent()), (State::Up, 3));
}

/// Whoever reckons from `Counters::lost` how much may be owed for nothing is not to add up probes.
#[test]
fn a_probe_without_an_answer_owes_nothing() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock).build();
    let silence = || Err(Failure::new(Effect::Unknown, "no answer".into()));
    let caller = limiter.acquire(1);
    let mut caller = Box::pin(caller);
    assert!((&mut caller).now_or_never().is_none());
    clock.advance(ms(600));
    hand.answer(silence());
    assert!(caller.now_or_never().expect("it is told").is_err());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 1));
    for _ in 0..3 {
        clock.advance(ms(300));
        hand.answer(silence());
    }
    assert_eq!((hand.sent(), limiter.counters().lost), (4, 1));
}

/// The first in line cannot use it, and whoever is behind is not to be served before.
#[test]
fn a_ticket_that_is_too_late_for_the_first_goes_back() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(1_000.0), hand.clone()).clock(&clock).build();
    let later = |millis: i64| millis * 4_000 + 1;
    let mut leaver = Box::new(limiter.acquire(5));
    assert!((&mut leaver).now_or_never().is_none());
    hand.send();
    // The answer is 10 ms on its way: due at 400 there, at 410 here.
    clock.advance(ms(10));
    hand.answer(Ok(Reply::Numbers(vec![0, 0, 400 * 4_000])));
    // The next two are in one request, because another is under way when they come.
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut until_408 = limiter.try_acquire_timeout(5, ms(398));
    let mut endless = limiter.acquire(5);
    assert!((&mut until_408).now_or_never().is_none() && (&mut endless).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    assert!(quota.now_or_never().is_some());
    drop(leaver);
    let before = hand.sent();
    hand.answer(Ok(Reply::Numbers(vec![1, 0, later(395), later(400)])));
    assert_eq!((limiter.queue_len(), hand.sent()), (2, before + 1), "it is given back");
    // And both are asked for again.
    hand.answer(Ok(Reply::Numbers(vec![2])));
    hand.answer(Ok(Reply::Numbers(vec![2, 2])));
    assert!(until_408.now_or_never().expect("granted").is_ok());
    assert!(endless.now_or_never().expect("granted").is_ok());
}
