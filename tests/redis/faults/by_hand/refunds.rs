//! Permits that are given back.

use futures::future::FutureExt;
use tollgate::redis::{RedisRateLimiter, Reply};
use tollgate::{ManualClock, Rate, TokenBucket};

use super::limiter;
use crate::faults::wires::Hand;
use crate::faults::{KEY, ms};

/// A permit that is given back is worth less as time passes, also while its refund is queued or
/// during an outage.
#[test]
fn a_refund_has_its_age_when_it_is_sent() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![0, 1])));
    let grant = caller.now_or_never().expect("it is there").expect("granted");
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    grant.refund();
    clock.advance(ms(400));
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    // After `R`, the permits given back, and the total.
    let (todo, ago) = (&hand.last()[1], 400_000_f64.to_le_bytes());
    assert!(todo[0] == b'R' && todo[9..17] == ago, "{todo:?}");
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
    hand.answer(Ok(Reply::Number(0)));
    let mut grant = caller.now_or_never().expect("granted").expect("granted");
    let mut set = Box::pin(limiter.set_policy((bucket(2.0), bucket(2.0))));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1])));
    assert!(set.now_or_never().expect("answered").is_ok());
    let mut settle = Box::pin(grant.settle((1, 5)));
    assert!((&mut settle).now_or_never().is_none());
    hand.send();
    let todo = &hand.last()[1];
    // `S` and the additional permits.
    assert_eq!((todo[0], todo.len()), (b'S', 9), "{todo:?}");
    hand.answer(Ok(Reply::Numbers(vec![2])));
    assert!(settle.now_or_never().expect("answered").is_ok());
}
