//! Times that were booked, and who gets them.

use futures::future::FutureExt;
use tollgate::ManualClock;

use super::{booked, later, limiter, refused};
use crate::faults::wires::{lone, several, told};
use crate::faults::{ms, store};

/// The first waiter cannot use the ticket, and waiters behind it must not be served before it.
#[test]
fn a_ticket_that_is_too_late_for_the_first_waiter_is_refunded() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(1_000.0, &clock);
    let mut leaver = Box::new(limiter.acquire(5));
    assert!((&mut leaver).now_or_never().is_none());
    hand.send();
    // The answer is 10 ms on its way: due at 400 there, at 410 here.
    clock.advance(ms(10));
    hand.answer(Ok(several(&[0, 0, booked(400)])));
    // The next two are in one request, because another is under way when they come.
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut until_408 = limiter.try_acquire_timeout(5, ms(398));
    let mut endless = limiter.acquire(5);
    assert!((&mut until_408).now_or_never().is_none() && (&mut endless).now_or_never().is_none());
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    assert!(quota.now_or_never().is_some());
    drop(leaver);
    let before = hand.sent();
    hand.answer(Ok(several(&[1, 0, later(395), later(400)])));
    assert_eq!((limiter.queue_len(), hand.sent()), (2, before + 1), "the ticket is given back");
    // Both are requested again.
    hand.answer(Ok(told(&[2])));
    hand.answer(Ok(several(&[2, 2])));
    assert!(until_408.now_or_never().expect("granted").is_ok());
    assert!(endless.now_or_never().expect("granted").is_ok());
}

/// While a waiter behind them is requested, and the one with the later ticket leaves first.
#[test]
fn tickets_of_callers_that_left_are_handed_on_in_order() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(100.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    let [mut first, mut second] = [1, 1].map(|n| Box::new(limiter.acquire(n)));
    let mut third = limiter.acquire(1);
    // The first two are in one request, because another is under way when they come.
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    assert!((&mut third).now_or_never().is_none());
    hand.answer(Ok(several(&[1, 0, booked(50), booked(60)])));
    drop(second);
    drop(first);
    hand.answer(Ok(several(&[3, 0, booked(70)])));
    clock.advance(ms(50));
    let grant = third.now_or_never().expect("it gets the earliest ticket").expect("granted");
    assert_eq!(grant.waited(), ms(50));
}

/// A caller that would wait is at the end of its wait at once.
#[test]
fn a_clock_that_advances_by_itself() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    // Later, in 300 ms.
    hand.answer(Ok(several(&[0, 0, 300_000 * 4 + 1])));
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(lone(200_000 * 4)));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert!(clock.elapsed() >= ms(200), "{:?}", clock.elapsed());
    // And while Redis cannot be reached.
    let mut caller = limiter.acquire(1);
    for _ in 0..20 {
        match (&mut caller).now_or_never() {
            Some(answer) => return drop(store(answer)),
            None => hand.answer(refused()),
        }
    }
    panic!("the call has got no error");
}

#[test]
fn a_clock_that_advances_by_itself_does_so_for_a_change_alone() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    for _ in 0..40 {
        if let Some(answer) = (&mut quota).now_or_never() {
            return drop(store(answer));
        }
        hand.answer(refused());
    }
    panic!("unanswered at {:?}", clock.elapsed());
}

/// For any kind of wait.
#[test]
fn a_clock_that_advances_by_itself_does_so_for_changes_and_places() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    let mut place = Box::pin(limiter.reserve(1));
    let (mut quota_done, mut place_done) = (false, false);
    for _ in 0..40 {
        quota_done = quota_done || (&mut quota).now_or_never().is_some();
        place_done = place_done || (&mut place).now_or_never().is_some();
        if quota_done && place_done {
            return;
        }
        hand.answer(refused());
    }
    panic!("unanswered: {quota_done} {place_done} at {:?}", clock.elapsed());
}
