//! Places in the queue: reserved, ahead of others, by turns of tenants.

use tollgate::{Acquire, Queue};

use super::*;

pub(crate) fn a_reservation_has_its_place_at_once<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let first = at_once(limiter.reserve(1)).expect("a place");
    let mut behind = limiter.acquire(1);
    waits(&mut behind);
    let last = at_once(limiter.acquire(1).reserve()).expect("a place");
    assert_eq!((first.delay(), last.delay()), (TENTH, 3 * TENTH));
    assert_eq!(limiter.queue_len(), 3);
    clock.advance(ms(40));
    assert_eq!((first.delay(), last.delay()), (ms(60), ms(260)));
    clock.advance(ms(60));
    waits(&mut behind);
    assert_eq!(granted(first.wait()).waited(), TENTH);
    clock.advance(2 * TENTH);
    assert_eq!(granted(behind).waited(), 2 * TENTH);
    assert_eq!(granted(last.wait()).waited(), 3 * TENTH);
}

pub(crate) fn a_reservation_is_granted_without_being_polled<F: Face>() {
    let (clock, limiter) = full::<F>(1);
    let ready = at_once(limiter.reserve(1)).expect("a place");
    let later = at_once(limiter.reserve(1)).expect("a place");
    assert_eq!((ready.delay(), later.delay()), (Duration::ZERO, TENTH));
    is_denied(at_once(limiter.try_acquire(1)), 2 * TENTH);
    clock.advance(TENTH);
    assert_eq!((limiter.queue_len(), later.delay()), (0, Duration::ZERO));
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
    clock.advance(10 * TENTH);
    assert_eq!(granted(later.wait()).waited(), TENTH);
    assert_eq!(granted(ready.wait()).waited(), Duration::ZERO);
}

pub(crate) fn a_reservation_that_is_dropped_gives_its_place_up<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let first = at_once(limiter.reserve(1)).expect("a place");
    let second = at_once(limiter.reserve(1)).expect("a place");
    let third = at_once(limiter.reserve(1)).expect("a place");
    drop(first);
    // Its future gives it up as well.
    drop(second.wait());
    assert_eq!(limiter.queue_len(), 1);
    clock.advance(TENTH);
    assert_eq!(third.delay(), Duration::ZERO);
    // It is granted, and gives its permit back.
    drop(third);
    granted(limiter.try_acquire(1));
    assert_eq!(limiter.stats().given_up, 3);
}

pub(crate) fn a_delay_is_shorter_when_those_ahead_have_left<F: Face>() {
    let (_, limiter) = empty::<F>(1);
    let first = at_once(limiter.reserve(1)).expect("a place");
    let second = at_once(limiter.reserve(1)).expect("a place");
    let third = at_once(limiter.reserve(1)).expect("a place");
    drop(first);
    assert_eq!((second.delay(), third.delay()), (TENTH, 2 * TENTH));
    drop(second);
    assert_eq!(third.delay(), TENTH);
}

pub(crate) fn a_delay_is_longer_when_others_have_entered_ahead<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut early = limiter.acquire(1);
    waits(&mut early);
    clock.advance(ms(60));
    let batch = at_once(limiter.reserve(1)).expect("a place");
    let mut urgent = limiter.acquire(1).ahead_by(ms(50));
    waits(&mut urgent);
    assert_eq!(batch.delay(), ms(240));
}

pub(crate) fn a_reservation_with_a_timeout_keeps_it<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    is_denied(at_once(limiter.try_acquire_timeout(1, ms(99)).reserve()).map(drop), TENTH);
    let in_time = at_once(limiter.try_acquire_timeout(1, TENTH).reserve()).expect("a place");
    clock.advance(2 * TENTH);
    assert_eq!(granted(in_time.wait()).waited(), TENTH);
    granted(limiter.try_acquire(1));
    let late = at_once(limiter.try_acquire_timeout(1, TENTH).reserve()).expect("a place");
    granted(limiter.pause_for(10 * TENTH));
    clock.advance(TENTH);
    assert_eq!(limiter.queue_len(), 0);
    let outcome = at_once(late.wait());
    assert!(matches!(outcome, Err(Error::Denied { .. })), "{outcome:?}");
}

pub(crate) fn a_caller_enters_ahead_of_those_that_came_less_before<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut early = limiter.acquire(1);
    waits(&mut early);
    clock.advance(ms(60));
    let batch = at_once(limiter.reserve(1)).expect("a place");
    let mut last = limiter.acquire(1);
    waits(&mut last);
    assert_eq!(batch.delay(), ms(140));
    let mut urgent = limiter.acquire(1).ahead_by(ms(50));
    waits(&mut urgent);
    // With a timeout, and as a reservation.
    let mut timed = limiter.try_acquire_timeout(1, ms(340)).ahead_by(ms(50));
    waits(&mut timed);
    let place = at_once(limiter.acquire(1).ahead_by(ms(55)).reserve()).expect("a place");
    assert_eq!(place.delay(), ms(140));
    clock.advance(Duration::from_secs(1));
    assert_eq!(granted(early).waited(), ms(100));
    assert_eq!(granted(place.wait()).waited(), ms(140));
    assert_eq!(granted(urgent).waited(), ms(240));
    assert_eq!(granted(timed).waited(), ms(340));
    assert_eq!(granted(batch.wait()).waited(), ms(440));
    assert_eq!(granted(last).waited(), ms(540));
}

pub(crate) fn tenants_take_turns<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let batch: Vec<_> = (0..5)
        .map(|_| at_once(limiter.acquire_for("ann", 1).reserve()).expect("a place"))
        .collect();
    let mut bob = limiter.acquire_for("bob", 1);
    waits(&mut bob);
    let mut timed = limiter.try_acquire_timeout(1, 4 * TENTH).for_tenant("bob");
    waits(&mut timed);
    is_denied(at_once(limiter.try_acquire_timeout(1, 4 * TENTH).for_tenant("ann")), 8 * TENTH);
    clock.advance(Duration::from_secs(1));
    assert_eq!(granted(bob).waited(), 2 * TENTH);
    assert_eq!(granted(timed).waited(), 4 * TENTH);
    let waited: Vec<_> = batch.into_iter().map(|place| granted(place.wait()).waited()).collect();
    assert_eq!(waited, [1, 3, 5, 6, 7].map(|turn| turn * TENTH));
}

pub(crate) fn a_tenant_of_greater_weight_gets_more<F: Face>() {
    fn enter<L: Queue<Cost = u32>>(acquire: Acquire<L>) -> Acquire<L::Owned> {
        at_once(acquire.reserve()).expect("a place").wait()
    }
    let (clock, limiter) = empty::<F>(1);
    let mut of_each = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        of_each[0].push(enter(limiter.acquire_for("free", 1)));
        of_each[1].push(enter(limiter.acquire_for("paying", 1).weight(3)));
    }
    clock.advance(40 * TENTH);
    let granted = of_each.map(|mut all| {
        all.iter_mut()
            .filter_map(|one| match poll(one) {
                Poll::Ready(grant) => grant.ok(),
                Poll::Pending => None,
            })
            .count()
    });
    assert_eq!(granted, [10, 30]);
}
