//! Permits that are given back.

use futures::future::FutureExt;
use tollgate::redis::{RedisGrant, RedisRateLimiter};
use tollgate::{Error, ManualClock, Rate, SmoothBursty, TokenBucket};

use super::{in_one_request, limiter, places};
use crate::faults::wires::{Hand, lone, several, told};
use crate::faults::{KEY, Limiter, ms};

/// The permit of a caller that does not wait.
fn granted(limiter: &Limiter<Hand>, hand: &Hand) -> RedisGrant<SmoothBursty, Hand> {
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(several(&[0, 1])));
    caller.now_or_never().expect("it is there").expect("granted")
}

/// A permit that is given back is worth less as time passes, also while its refund is queued or
/// during an outage.
#[test]
fn a_refund_has_its_age_when_it_is_sent() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let grant = granted(&limiter, &hand);
    in_one_request(&limiter, &hand, || {
        grant.refund();
        clock.advance(ms(400));
    });
    // After `R`, the permits given back, and the total.
    let (todo, ago) = (&hand.last()[1], 400_000_f64.to_le_bytes());
    assert!(todo[0] == b'R' && todo[9..17] == ago, "{todo:?}");
}

/// What was charged before a change of the policy is not paid at its price.
#[test]
fn a_refund_behind_a_new_policy_is_not_in_its_request() {
    let (limiter, hand) = limiter(10.0, &ManualClock::new());
    let grant = granted(&limiter, &hand);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(1.0)));
    in_one_request(&limiter, &hand, || {
        assert!((&mut set).now_or_never().is_none());
        grant.refund();
    });
    let todo = &hand.last()[1];
    // The letter, a hash, and one rule.
    assert!(todo[0] == b'N' && todo.len() == 1 + 8 + 32, "{todo:?}");
}

/// As before the exit of a process.
#[test]
fn a_flush_ends_when_all_refunds_are_confirmed() {
    let (limiter, hand) = places(5, &ManualClock::new());
    assert!(limiter.flush().now_or_never().expect("there is nothing to send").is_ok());
    let mut caller = limiter.acquire(1);
    let mut leaver = limiter.acquire(2);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    assert!((&mut leaver).now_or_never().is_none());
    hand.answer(Ok(lone(0)));
    let grant = caller.now_or_never().expect("granted").expect("granted");
    // The leaver has a request in flight, and its grant must be given back.
    drop((leaver, grant));
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    hand.answer(Ok(lone(1 << 20)));
    assert!((&mut flush).now_or_never().is_none());
    let before = hand.sent();
    hand.answer(Ok(told(&[2])));
    assert!((&mut flush).now_or_never().expect("answered").is_ok());
    assert_eq!(hand.sent(), before, "by the request that was in flight");
    assert!(limiter.flush().now_or_never().expect("there is nothing to send").is_ok());
}

#[test]
fn a_flush_is_for_all_keys_even_if_one_fails() {
    let (limiter, hand) = places(5, &ManualClock::new());
    let granted = |key: &str| {
        let mut caller = limiter.at(key).acquire(1);
        assert!((&mut caller).now_or_never().is_none());
        hand.answer(Ok(lone(0)));
        caller.now_or_never().expect("granted").expect("granted")
    };
    let grants = ["one", "another"].map(granted);
    drop(grants);
    hand.send();
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    // What is under way, and then what the flush asks for.
    hand.answer(Ok(told(&[1])));
    let foreign = redis::make_extension_error("WRONGTYPE".to_owned(), None);
    hand.answer(Err(foreign.into()));
    assert!((&mut flush).now_or_never().is_none(), "the other key is tried");
    for _ in 0..2 {
        hand.answer(Ok(told(&[1])));
    }
    let flushed = flush.now_or_never().expect("answered");
    assert!(matches!(flushed, Err(Error::Store(_))), "{flushed:?}");
}

/// More refunds than fit in one request.
#[test]
fn a_flush_ends_after_the_last_of_many_refunds() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut leavers: Vec<_> = (0..1024).map(|_| limiter.acquire(1)).collect();
    assert!(leavers.iter_mut().all(|leaver| leaver.now_or_never().is_none()));
    hand.answer(Ok(told(&[0, 0, 1, -1])));
    drop(leavers);
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    // All are charged, and more than half of them at once.
    let mut booked = vec![0, 16];
    booked.resize(2 + 1_024 - 16, 40_000);
    hand.answer(Ok(several(&booked)));
    let mut answered = 2;
    while (&mut flush).now_or_never().is_none() {
        hand.answer(Ok(told(&[0])));
        answered += 1;
    }
    assert_eq!(hand.sent(), answered, "no request is in flight any more");
}

/// A settlement for more of one part and less of another, after the price has changed.
#[test]
fn a_settlement_refunds_nothing_paid_at_another_price() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let bucket = |rate| TokenBucket::new(Rate::per_second(rate), 100);
    let limiter = RedisRateLimiter::builder((bucket(1.0), bucket(1.0)), hand.clone(), KEY);
    let limiter = limiter.clock(&clock).build();
    let mut caller = limiter.acquire((5, 1));
    assert!((&mut caller).now_or_never().is_none());
    // With the rule that limits.
    hand.answer(Ok(told(&[0, 0, 0])));
    let mut grant = caller.now_or_never().expect("granted").expect("granted");
    let mut set = Box::pin(limiter.set_policy((bucket(2.0), bucket(2.0))));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(told(&[1, 0, 1])));
    assert!(set.now_or_never().expect("answered").is_ok());
    let mut settle = Box::pin(grant.settle((1, 5)));
    assert!((&mut settle).now_or_never().is_none());
    hand.send();
    let todo = &hand.last()[1];
    // `S` and the additional permits.
    assert_eq!((todo[0], todo.len()), (b'S', 9), "{todo:?}");
    hand.answer(Ok(told(&[2])));
    assert!(settle.now_or_never().expect("answered").is_ok());
}
