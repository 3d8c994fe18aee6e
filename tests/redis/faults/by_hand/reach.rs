//! How many waiters a request asks for, when, and how far ahead they may be booked.

use futures::future::FutureExt;
use tollgate::ManualClock;
use tollgate::redis::State;

use super::{Call, in_one_request, joins, later, limiter, places, refused};
use crate::faults::wires::{Hand, lone, several, told};
use crate::faults::{Limiter, ms, store};

fn join(limiter: &Limiter<Hand>, count: usize) -> Vec<Call> {
    (0..count).map(|_| joins(limiter.acquire(1))).collect()
}

/// How far ahead the last caller of the request may be booked, in microseconds.
fn limit(hand: &Hand) -> f64 {
    let calls = &hand.last()[1];
    // Behind it are the cost, whether that is new, and how many calls there are.
    f64::from_le_bytes(calls[calls.len() - 15..][..8].try_into().expect("eight bytes"))
}

#[test]
fn after_all_of_a_request_were_booked_the_next_reaches_as_many() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(1_000.0, &clock);
    let first = in_one_request(&limiter, &hand, || join(&limiter, 20));
    hand.answer(Ok(several(&[0, 20])));
    assert!(first.into_iter().all(|call| call.now_or_never().expect("granted").is_ok()));
    let asked = limiter.counters().asked;
    let _second = in_one_request(&limiter, &hand, || join(&limiter, 30));
    hand.answer(Ok(several(&[20, 30])));
    assert_eq!(limiter.counters().asked - asked, 30);
}

/// From three quarters of the horizon on.
#[test]
fn a_head_that_was_passed_over_may_be_booked_further_ahead() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _head = joins(limiter.acquire(1));
    hand.send();
    assert_eq!(limit(&hand), 750_000.0);
    // It can be booked half a second from now, and is asked for then.
    hand.answer(Ok(lone(later(1_250))));
    clock.advance(ms(500));
    hand.send();
    assert_eq!((hand.sent(), limit(&hand)), (2, 750_000.0));
    hand.answer(Ok(lone(later(800))));
    clock.advance(ms(150));
    hand.send();
    assert_eq!((hand.sent(), limit(&hand)), (3, 781_250.0));
}

#[test]
fn a_head_that_came_meanwhile_is_asked_for_at_once() {
    let clock = ManualClock::new();
    clock.advance(ms(10_000));
    let (limiter, hand) = limiter(10.0, &clock);
    let _asked = joins(limiter.acquire(1));
    hand.send();
    let _head = joins(limiter.acquire(1).ahead_by(ms(1_000)));
    hand.answer(Ok(lone(later(2_000))));
    assert_eq!(hand.sent(), 2);
}

/// The permits for a smaller call may be there.
#[test]
fn a_caller_behind_one_that_leaves_is_asked_for_at_once_if_its_cost_is_another() {
    for (costs, leaves, is_asked) in
        [([5, 1], 0, true), ([5, 1], 1, false), ([1, 1], 0, false), ([1, 5], 1, false)]
    {
        let clock = ManualClock::new();
        let (limiter, hand) = limiter(10.0, &clock);
        let mut callers = costs.map(|cost| {
            let caller = joins(limiter.acquire(cost));
            hand.send();
            Some(caller)
        });
        hand.answer(Ok(lone(later(2_000))));
        let before = hand.sent();
        callers[leaves] = None;
        hand.send();
        assert_eq!(hand.sent() - before, usize::from(is_asked), "{costs:?}, {leaves} leaves");
    }
}

/// Those that wait in other processes need not leave it a place.
#[test]
fn a_process_says_that_none_of_its_callers_waits_for_a_place_any_more() {
    let clock = ManualClock::new();
    let (limiter, hand) = places(9, &clock);
    let mut callers = [limiter.acquire(1), limiter.acquire(1)];
    for caller in &mut callers {
        assert!(caller.now_or_never().is_none());
        hand.send();
    }
    // It is unknown when a place is free.
    hand.answer(Ok(lone((1 << 51) + 1)));
    let [first, second] = callers;
    let before = hand.sent();
    drop(second);
    hand.send();
    assert_eq!(hand.sent(), before, "one waits still");
    drop(first);
    hand.send();
    assert_eq!(hand.sent(), before + 1);
    assert_eq!(hand.lease(), [0.0, 0.0]);
}

/// No caller waits in the queue beside it, and the pauses between requests have grown beyond it.
#[test]
fn a_change_gets_its_error_at_its_deadline() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    for _ in 0..100 {
        assert!((&mut quota).now_or_never().is_none());
        hand.answer(refused());
        clock.advance(ms(5));
    }
    hand.send();
    assert!(!store(quota.now_or_never().expect("answered")).may_have_charged());
}

/// Its own requests did not fail: another key found out that Redis is down, and that it is back.
#[test]
fn a_key_that_holds_places_renews_its_lease_after_an_outage() {
    let clock = ManualClock::new();
    let (limiter, hand) = places(9, &clock);
    let granted = several(&[0, 1]);
    let mut caller = limiter.acquire(3);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(granted.clone()));
    let _grant = caller.now_or_never().expect("granted").expect("granted");

    let other = limiter.at("another");
    let mut caller = other.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    for millis in [500, 0] {
        hand.answer(refused());
        clock.advance(ms(millis));
    }
    assert_eq!(limiter.state(), State::Down);
    // It would renew its lease now.
    clock.advance(ms(3_000));
    hand.answer(Ok(told(&[0])));
    while limiter.state() != State::Up {
        clock.advance(ms(10));
        hand.send();
    }
    clock.advance(ms(1_500));
    hand.send();
    assert_eq!(hand.lease()[0], 3.0);
}
