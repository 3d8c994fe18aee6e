//! What a request asks for where many callers wait: it is sent and answered by hand.

use futures::future::FutureExt;
use tollgate::ManualClock;

use super::by_hand::{Call, in_one_request, joins};
use super::wires::{Hand, several, told};
use super::{Limiter, builder, bursty, denied, ms};

/// Ten a second, and a horizon of a second. Nothing that Redis has said grows old.
fn limiter(clock: &ManualClock) -> (Limiter<Hand>, Hand) {
    let hand = Hand::default();
    let builder = builder(bursty(10.0), hand.clone()).horizon(ms(1_000)).refresh(ms(3_600_000));
    (builder.clock(clock).build(), hand)
}

/// A reply that says "later" to each of `callers`, and then `others`.
fn later(callers: usize, millis: i64, others: &[i64]) -> Vec<f64> {
    let later = std::iter::repeat_n(millis * 4_000 + 1, callers);
    let all: Vec<_> = [0, 0].into_iter().chain(later).chain(others.iter().copied()).collect();
    several(&all)
}

fn refused(millis: i64) -> i64 {
    millis * 4_000 + 2
}

/// Twenty callers for `n` permits that have been told to wait. A request asks for eight of them when the first is due.
fn twenty(limiter: &Limiter<Hand>, hand: &Hand, n: u32, millis: i64) -> Vec<Call> {
    let join = || (0..20).map(|_| joins(limiter.acquire(n))).collect();
    let callers = in_one_request(limiter, hand, join);
    hand.answer(Ok(later(20, millis, &[])));
    callers
}

/// The next request reaches 1,024 callers at most, so only beyond that it is unknown when one of them is granted.
#[test]
fn a_reservation_waits_for_the_answer_of_the_request_that_reaches_it() {
    for (waiting, is_reached) in [(1_023, true), (1_024, false)] {
        let (limiter, _hand) = limiter(&ManualClock::new());
        let _crowd: Vec<_> = (0..waiting).map(|_| joins(limiter.acquire(1))).collect();
        let mut place = Box::pin(limiter.reserve(1));
        assert_eq!((&mut place).now_or_never().is_none(), is_reached, "behind {waiting}");
    }
}

/// Also those that go ahead of others, and though one of them leaves.
#[test]
fn newcomers_behind_a_crowd_are_all_answered() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(&clock);
    let _crowd = twenty(&limiter, &hand, 1, 2_000);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let newcomer = || {
        clock.advance(ms(10));
        limiter.try_acquire_timeout(1, ms(1_000))
    };
    let (first, last) = (joins(newcomer()), joins(newcomer()));
    let ahead = joins(newcomer().ahead_by(ms(25)));
    let between = joins(newcomer().ahead_by(ms(25)));
    drop(joins(newcomer()));
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    let answers = [4_000, 4_100, 4_200, 4_300].map(refused);
    hand.answer(Ok(later(20, 2_000, &answers)));
    let waits = [ahead, first, between, last]
        .map(|caller| denied(caller.now_or_never().expect("an answer")).as_millis());
    assert_eq!(waits, [4_000, 4_100, 4_200, 4_300]);
}

#[test]
fn a_request_asks_for_1024_callers_at_most() {
    let (limiter, hand) = limiter(&ManualClock::new());
    let _crowd = twenty(&limiter, &hand, 1, 2_000);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let newcomer = |_| joins(limiter.try_acquire_timeout(1, ms(1_000)));
    let mut newcomers: Vec<_> = (0..1_020).map(newcomer).collect();
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    hand.answer(Ok(later(20, 2_000, &[refused(4_000); 1_004])));
    for newcomer in newcomers.drain(..1_004) {
        denied(newcomer.now_or_never().expect("an answer"));
    }
    assert!(newcomers.into_iter().all(|caller| caller.now_or_never().is_none()));
}

/// Whether the last request asks for a booking that is at most `millis` ahead.
fn reaches(hand: &Hand, millis: f64) -> bool {
    let limit = (millis * 1e3).to_le_bytes();
    hand.last().concat().windows(8).any(|bytes| bytes == limit)
}

/// The horizon yields less than it needs, so it is booked farther ahead each time.
#[test]
fn a_large_caller_that_others_pass_reaches_farther() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(&clock);
    let _crowd = twenty(&limiter, &hand, 5, 2_000);
    // When it could be booked others have been quicker.
    clock.advance(ms(1_250));
    hand.answer(Ok(later(8, 1_500, &[])));
    clock.advance(ms(100));
    hand.send();
    // Twice the horizon; those behind it three quarters and one step.
    assert!(reaches(&hand, 781.25) && reaches(&hand, 2_000.0), "{:?}", hand.last());
}
