//! A settlement that failed can be tried again.

use futures::future::FutureExt;
use tollgate::redis::{RedisGrant, RedisRateLimiter, State};
use tollgate::{ManualClock, Rate, TokenBucket};

use super::by_hand::{places, refused, silence};
use super::wires::{Hand, lone, several, told};
use super::{KEY, ms, store};

fn bucket() -> (ManualClock, RedisRateLimiter<TokenBucket, Hand>, Hand) {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let bucket = TokenBucket::new(Rate::per_second(1.0), 100);
    let limiter = RedisRateLimiter::builder(bucket, hand.clone(), KEY).clock(&clock).build();
    (clock, limiter, hand)
}

/// A grant of five permits.
fn five(
    limiter: &RedisRateLimiter<TokenBucket, Hand>,
    hand: &Hand,
) -> RedisGrant<TokenBucket, Hand> {
    let mut caller = limiter.acquire(5);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(lone(0)));
    caller.now_or_never().expect("granted").expect("granted")
}

/// What the request in flight is to do: for `S` and `R` with the number of permits.
fn todo(hand: &Hand) -> Option<(u8, u8)> {
    hand.last()[1].first_chunk().map(|&[what, permits]| (what, permits))
}

/// The settlement had no effect: it is as if it had never been asked for, and a retry charges.
#[test]
fn a_settlement_that_failed_is_made_by_the_next() {
    for (actual, expected) in [(8, (b'S', 3)), (1, (b'R', 4))] {
        let (clock, limiter, hand) = bucket();
        let mut grant = five(&limiter, &hand);
        let mut settle = Box::pin(grant.settle(actual));
        assert!((&mut settle).now_or_never().is_none());
        hand.answer(refused());
        clock.advance(ms(500));
        hand.answer(refused());
        assert!(!store((&mut settle).now_or_never().expect("answered")).may_have_charged());
        drop(settle);
        assert_eq!(grant.cost(), 5);
        clock.advance(ms(300));
        hand.answer(Ok(told(&[0])));
        assert_eq!(limiter.state(), State::Up);
        let mut settle = Box::pin(grant.settle(actual));
        assert!((&mut settle).now_or_never().is_none(), "it is sent again");
        hand.send();
        assert_eq!(todo(&hand), Some(expected));
        hand.answer(Ok(told(&[1])));
        assert!(settle.now_or_never().expect("answered").is_ok());
        assert_eq!(grant.cost(), actual);
    }
}

/// A retry charges the difference, perhaps again; it gives nothing back a second time.
#[test]
fn a_settlement_without_a_reply_is_charged_again_and_refunded_once() {
    for (actual, cost, expected) in [(8, 5, Some((b'S', 3))), (1, 1, None)] {
        let (_, limiter, hand) = bucket();
        let mut grant = five(&limiter, &hand);
        let mut settle = Box::pin(grant.settle(actual));
        assert!((&mut settle).now_or_never().is_none());
        hand.answer(silence());
        assert!(store((&mut settle).now_or_never().expect("answered")).may_have_charged());
        drop(settle);
        assert_eq!(grant.cost(), cost);
        hand.answer(Ok(told(&[0])));
        assert_eq!(limiter.state(), State::Up);
        let mut settle = Box::pin(grant.settle(actual));
        match expected {
            Some(_) => {
                assert!((&mut settle).now_or_never().is_none(), "it is sent again");
                hand.send();
                assert_eq!(todo(&hand), expected);
                hand.answer(Ok(told(&[1])));
                assert!(settle.now_or_never().expect("answered").is_ok());
            }
            None => assert!(settle.now_or_never().expect("nothing to send").is_ok()),
        }
        assert_eq!(grant.cost(), actual);
    }
}

/// The future is dropped before the reply, and the grant learns of the outcome by the next settlement.
#[test]
fn a_settlement_that_was_cancelled_half_way_is_made_by_the_next() {
    for fails in [false, true] {
        let (clock, limiter, hand) = bucket();
        let mut grant = five(&limiter, &hand);
        assert!(Box::pin(grant.settle(8)).now_or_never().is_none());
        let mut settle = Box::pin(grant.settle(9));
        assert!((&mut settle).now_or_never().is_none());
        if fails {
            hand.answer(refused());
            clock.advance(ms(500));
            hand.answer(refused());
            clock.advance(ms(300));
            hand.answer(Ok(told(&[0])));
        } else {
            hand.answer(Ok(told(&[1])));
        }
        assert!((&mut settle).now_or_never().is_none(), "the rest is sent now");
        hand.send();
        assert_eq!(todo(&hand), Some((b'S', if fails { 4 } else { 1 })));
        hand.answer(Ok(told(&[2])));
        assert!(settle.now_or_never().expect("answered").is_ok());
        assert_eq!(grant.cost(), 9);
    }
}

/// Permits in flight: a request says how many the process holds.
#[test]
fn a_settlement_that_failed_holds_what_it_held() {
    for actual in [1, 4] {
        for leaves in [false, true] {
            let clock = ManualClock::new();
            let (limiter, hand) = places(9, &clock);
            let mut caller = limiter.acquire(3);
            assert!((&mut caller).now_or_never().is_none());
            hand.answer(Ok(several(&[0, 1])));
            let mut grant = caller.now_or_never().expect("granted").expect("granted");
            let mut settle = Box::pin(grant.settle(actual));
            assert!((&mut settle).now_or_never().is_none());
            hand.answer(refused());
            if leaves {
                drop(settle);
                clock.advance(ms(500));
                hand.answer(refused());
            } else {
                clock.advance(ms(500));
                hand.answer(refused());
                store(settle.now_or_never().expect("answered"));
                clock.advance(ms(300));
                hand.send();
                assert_eq!((grant.cost(), hand.lease()[0]), (3, 3.0));
            }
            drop(grant);
            clock.advance(ms(300));
            hand.answer(Ok(told(&[0])));
            hand.send();
            assert_eq!(hand.lease()[0], 0.0, "all is let go, and no more than that");
        }
    }
}
