//! Times that were booked, and who gets them.

use futures::future::FutureExt;
use tollgate::redis::Reply;
use tollgate::{Error, ManualClock};

use super::{limiter, refused};
use crate::faults::{ms, store};

/// The cached refusal is from before the caller with the booking left.
#[test]
fn a_spare_booking_is_for_the_next_caller_though_a_later_time_was_refused() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(5.0, &clock);
    let mut leaver = limiter.acquire(1);
    assert!((&mut leaver).now_or_never().is_none());
    hand.answer(Ok(Reply::Number((1 << 20) + (200_000 << 2))));
    let mut refused = limiter.try_acquire(1);
    assert!((&mut refused).now_or_never().is_none());
    hand.answer(Ok(Reply::Number((400_000 << 2) + 2)));
    assert!(matches!(refused.now_or_never(), Some(Err(Error::Denied { .. }))));
    drop(leaver);
    let mut next = limiter.try_acquire_timeout(1, ms(300));
    assert!((&mut next).now_or_never().is_none(), "a booking is in time");
    clock.advance(ms(200));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!((hand.sent(), limiter.counters().denied_locally), (2, 0));
}

/// A caller that would wait is at the end of its wait at once.
#[test]
fn a_clock_that_advances_by_itself() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    // Later, in 300 ms.
    hand.answer(Ok(Reply::Numbers(vec![0, 0, 300_000 * 4 + 1])));
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(200_000 * 4)));
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
