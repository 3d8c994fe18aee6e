//! What holds all callers back.

use tollgate::{AnyRateLimiter, InFlight};

use super::*;

pub(crate) fn a_pause_delays_those_that_wait<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut first = limiter.acquire(1);
    waits(&mut first);
    let second = at_once(limiter.reserve(1)).expect("a place");
    granted(limiter.pause_for(10 * TENTH));
    assert_eq!(second.delay(), 12 * TENTH);
    clock.advance(5 * TENTH);
    waits(&mut first);
    is_denied(at_once(limiter.try_acquire(1)), 8 * TENTH);
    clock.advance(10 * TENTH);
    // A bucket does not fill in a pause.
    assert_eq!(granted(first).waited(), 11 * TENTH);
    assert_eq!(granted(second.wait()).waited(), 12 * TENTH);
}

pub(crate) fn a_pause_is_part_of_the_wait_that_is_told<F: Face>() {
    let (_, limiter) = full::<F>(3);
    granted(limiter.pause_for(10 * TENTH));
    // A bucket does not fill in a pause.
    assert_eq!(granted(limiter.would_wait(1)), Some(11 * TENTH));
}

pub(crate) fn a_pause_that_is_ended_is_over_at_once<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut waiting = limiter.acquire(1);
    waits(&mut waiting);
    granted(limiter.pause_for(Duration::from_secs(60)));
    clock.advance(5 * TENTH);
    waits(&mut waiting);
    granted(limiter.resume());
    clock.advance(TENTH);
    let waited = granted(waiting).waited();
    assert!((5 * TENTH..=6 * TENTH).contains(&waited), "{waited:?}");
    // Without a pause it changes nothing.
    granted(limiter.resume());
    clock.advance(TENTH);
    granted(limiter.try_acquire(1));
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
}

pub(crate) fn a_limiter_that_is_reset_owes_nothing<F: Face>() {
    let (clock, limiter) = full::<F>(10);
    let mut owes = granted(limiter.acquire(10));
    granted(owes.settle(25));
    drop(owes);
    granted(limiter.pause_for(100 * TENTH));
    granted(limiter.reset());
    assert_eq!(granted(limiter.available()), 10);
    drop(granted(limiter.acquire(10)));
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
    clock.advance(3 * TENTH);
    assert_eq!(granted(limiter.available()), 3);
}

pub(crate) fn a_reset_grants_those_that_wait<F: Face>() {
    let (_, limiter) = empty::<F>(2);
    let [mut first, mut second, mut third] = [(); 3].map(|()| limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    waits(&mut third);
    granted(limiter.reset());
    granted(first);
    granted(second);
    waits(&mut third);
}

pub(crate) fn places_stay_taken_after_a_reset<F: Face>() {
    let limiter = F::made(InFlight::new(2), clock());
    let place = granted(limiter.acquire(1));
    granted(limiter.reset());
    assert_eq!(granted(limiter.available()), 1);
    drop(place);
    assert_eq!(granted(limiter.available()), 2);
}

pub(crate) fn places_beyond_the_limit_come_back<F: Face>() {
    let limiter = F::made(InFlight::new(2), clock());
    let left = || granted(limiter.available());
    let place = granted(limiter.acquire(1));
    let mut beyond = granted(limiter.acquire(1));
    granted(beyond.settle(2));
    drop(place);
    assert_eq!(left(), 0);
    drop(beyond);
    assert_eq!(left(), 2);
}

pub(crate) fn a_limiter_without_its_type_is_the_same_limiter<F: Face>() {
    let (clock, limiter) = full::<F>(2);
    let any = AnyRateLimiter::new(limiter.clone());
    drop((granted(any.acquire(1)), granted(limiter.acquire(1))));
    let (mut first, mut second) = (any.acquire(1), limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    assert_eq!((any.queue_len(), any.stats(), any.name()), (2, limiter.stats(), limiter.name()));
    clock.advance(2 * TENTH);
    assert_eq!(granted(first).waited(), TENTH);
    assert_eq!(granted(second).waited(), 2 * TENTH);
}

pub(crate) fn a_refusal_of_a_server_holds_the_limiter_back<F: Face>() {
    use tollgate::feedback::Feedback;

    let (clock, limiter) = full::<F>(10);
    let feedback = Feedback::new(limiter.clone());
    let mut call = granted(feedback.acquire(1));
    assert!(at_once(call.observe(429u16, &[("retry-after", "7")])).is_refused());
    drop(call);
    let (mut beside, mut through) = (limiter.acquire(1), feedback.acquire(1));
    waits(&mut beside);
    waits(&mut through);
    clock.advance(Duration::from_secs(7));
    waits(&mut beside);
    waits(&mut through);
    clock.advance(2 * TENTH);
    assert_eq!(granted(beside).waited(), ms(7_100));
    drop(granted(through));
}
