//! Callers that go ahead of others while a request is under way, and of those whose time is booked.

use futures::future::FutureExt;
use tollgate::ManualClock;

use super::{booked, in_one_request, joins, later, limiter};
use crate::faults::ms;
use crate::faults::wires::several;

fn reply(turns: &[i64]) -> Vec<f64> {
    several(&[&[1, 0], turns].concat())
}

#[test]
fn a_caller_that_was_asked_for_is_granted_though_others_went_ahead_of_it_meanwhile() {
    let clock = ManualClock::new();
    clock.advance(ms(10_000));
    let (limiter, hand) = limiter(10.0, &clock);
    let asked = joins(limiter.acquire(1));
    hand.send();
    let _ahead = joins(limiter.acquire(1).ahead_by(ms(1_000)));
    hand.answer(Ok(reply(&[booked(100)])));
    clock.advance(ms(100));
    assert!(asked.now_or_never().expect("its time has come").is_ok());
}

#[test]
fn a_caller_goes_ahead_of_no_caller_whose_time_is_booked() {
    let clock = ManualClock::new();
    clock.advance(ms(10_000));
    let (limiter, hand) = limiter(10.0, &clock);
    let [second, first] = in_one_request(&limiter, &hand, || {
        [0, 2_000].map(|ahead| joins(limiter.acquire(1).ahead_by(ms(ahead))))
    });
    hand.answer(Ok(reply(&[booked(100), booked(200)])));
    let _waiting = joins(limiter.acquire(1));
    // After the first, but not before the second.
    let _between = joins(limiter.acquire(1).ahead_by(ms(1_000)));
    clock.advance(ms(200));
    for call in [first, second] {
        assert!(call.now_or_never().expect("its time has come").is_ok());
    }
}

/// Of two that went ahead by as much the first is booked, and the second leaves.
#[test]
fn a_booked_caller_is_no_sign_of_where_others_go_ahead() {
    let clock = ManualClock::new();
    clock.advance(ms(10_000));
    let (limiter, hand) = limiter(10.0, &clock);
    let [last, first, leaver] = in_one_request(&limiter, &hand, || {
        [0, 2_000, 2_000].map(|ahead| joins(limiter.acquire(1).ahead_by(ms(ahead))))
    });
    hand.answer(Ok(reply(&[booked(700), later(800), later(900)])));
    drop(leaver);
    clock.advance(ms(300));
    hand.answer(Ok(reply(&[booked(500)])));
    let _waiting = joins(limiter.acquire(1));
    let _between = joins(limiter.acquire(1).ahead_by(ms(1_000)));
    clock.advance(ms(500));
    for call in [first, last] {
        assert!(call.now_or_never().expect("its time has come").is_ok());
    }
}
