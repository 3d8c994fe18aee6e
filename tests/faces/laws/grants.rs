//! What grants give back, and what they owe.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate::{InFlight, Part, Same};

use super::*;

pub(crate) fn what_was_used_beyond_the_estimate_is_owed<F: Face>() {
    let (clock, limiter) = full::<F>(10);
    let mut grant = granted(limiter.acquire(2));
    granted(grant.settle(5));
    assert_eq!((grant.cost(), at_once(limiter.available()).expect("a number")), (5, 5));
    // More than there is.
    let mut other = granted(limiter.acquire(5));
    granted(other.settle(8));
    is_denied(at_once(limiter.try_acquire(1)), 4 * TENTH);
    let mut waiting = limiter.acquire(1);
    waits(&mut waiting);
    // Those that wait owe it, too.
    granted(grant.settle(6));
    drop((grant, other));
    clock.advance(5 * TENTH);
    assert_eq!(granted(waiting).waited(), 5 * TENTH);
    // Also beyond an estimate of zero.
    let (_, limiter) = full::<F>(10);
    let mut grant = granted(limiter.acquire(0));
    granted(grant.settle(7));
    assert_eq!((grant.cost(), at_once(limiter.available()).expect("a number")), (7, 3));
}

pub(crate) fn what_was_not_used_comes_back_once<F: Face>() {
    let (_, limiter) = full::<F>(10);
    let left = || at_once(limiter.available()).expect("a number");
    let mut grant = granted(limiter.acquire(6));
    granted(grant.settle(2));
    assert_eq!((grant.cost(), left()), (2, 8));
    granted(grant.settle(2));
    assert_eq!(left(), 8);
    granted(grant.settle(0));
    granted(grant.settle(0));
    assert_eq!(left(), 10);
    // Up and down again is no gain, nor is a refund after it.
    granted(grant.settle(4));
    granted(grant.settle(1));
    assert!(left() <= 9, "{}", left());
    grant.refund();
    assert!(left() <= 10, "{}", left());
    let mut grant = granted(limiter.acquire(5));
    let before = left();
    granted(grant.settle(3));
    drop(grant);
    assert_eq!(left(), before + 2);
}

pub(crate) fn what_comes_back_is_for_those_that_wait<F: Face>() {
    let (clock, limiter) = full::<F>(4);
    let mut grant = granted(limiter.acquire(4));
    let (mut first, mut second) = (limiter.acquire(2), limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    granted(grant.settle(2));
    assert_eq!(granted(first).waited(), Duration::ZERO);
    waits(&mut second);
    clock.advance(ms(50));
    grant.refund();
    assert_eq!(granted(second).waited(), ms(50));
}

pub(crate) fn what_runs_is_charged_and_settled_by_its_output<F: Face>() {
    let (clock, limiter) = full::<F>(10);
    let left = || at_once(limiter.available()).expect("a number");
    assert_eq!((granted(limiter.run(4, async { left() })), left()), (6, 6));
    assert_eq!(granted(limiter.run_metered(6, async { left() }, |left| left + 1)), 0);
    assert_eq!(left(), 5);
    assert_eq!(granted(limiter.run_metered(5, async { left() }, |_| 4)), 0);
    assert_eq!(left(), 1);
    // What is refused does not run, and what waits runs when it is granted.
    let error: Result<(), _> = at_once(limiter.run(11, async { panic!("too much") }));
    assert!(matches!(error, Err(Error::ExceedsCapacity(_))), "{error:?}");
    let mut waiting = Box::pin(limiter.run(2, async { clock.elapsed() }));
    waits(&mut waiting);
    clock.advance(TENTH);
    assert_eq!(at_once(waiting), Ok(clock.elapsed()));
}

pub(crate) fn what_runs_and_is_cancelled_or_panics_stays_charged<F: Face>() {
    let (_, limiter) = full::<F>(10);
    let left = || at_once(limiter.available()).expect("a number");
    let mut running = Box::pin(limiter.run(3, std::future::pending::<()>()));
    waits(&mut running);
    drop(running);
    assert_eq!(left(), 7);
    let mut running = Box::pin(limiter.run_metered(2, std::future::pending(), |()| 0));
    waits(&mut running);
    drop(running);
    assert_eq!(left(), 5);
    let panics = || at_once(limiter.run_metered(5, async { panic!("as it should") }, |()| 0));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!((left(), limiter.queue_len()), (0, 0));
    // One that waits takes nothing.
    let mut waiting = Box::pin(limiter.run(1, async {}));
    waits(&mut waiting);
    assert_eq!(limiter.queue_len(), 1);
    drop(waiting);
    assert_eq!(limiter.queue_len(), 0);
}

pub(crate) fn a_refund_gives_back_what_was_taken<F: Face>() {
    let (_, limiter) = full::<F>(10);
    let left = || at_once(limiter.available()).expect("a number");
    let (one, other) = (granted(limiter.acquire(4)), granted(limiter.acquire(6)));
    one.refund();
    assert_eq!(left(), 4);
    let mut waiting = limiter.acquire(10);
    waits(&mut waiting);
    other.refund();
    assert_eq!(granted(waiting).cost(), 10);
}

pub(crate) fn a_grant_that_is_dropped_stays_charged<F: Face>() {
    let (clock, limiter) = full::<F>(10);
    drop(granted(limiter.acquire(10)));
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
    clock.advance(3 * TENTH);
    assert_eq!(at_once(limiter.available()).expect("a number"), 3);
}

pub(crate) fn a_metered_grant_settles_when_it_is_dropped<F: Face>() {
    let (_, limiter) = full::<F>(10);
    let left = || at_once(limiter.available()).expect("a number");
    let mut call = granted(limiter.acquire(5)).metered();
    call.add(1);
    call.add(2);
    assert_eq!((call.cost(), left()), (3, 5));
    drop(call);
    assert_eq!(left(), 7);
    // Nothing is reported: the estimate, or another default.
    drop(granted(limiter.acquire(2)).metered());
    assert_eq!(left(), 5);
    drop(granted(limiter.acquire(5)).metered().or(0));
    assert_eq!(left(), 5);
    let mut call = granted(limiter.acquire(1)).metered();
    call.add(1);
    // It is known already.
    drop(call.or(3));
    assert_eq!(left(), 4);
    let mut call = granted(limiter.acquire(1)).metered();
    call.set(4);
    drop(call);
    assert_eq!(left(), 0);
}

pub(crate) fn a_grant_and_a_refusal_name_their_rule<F: Face>() {
    let clock = clock();
    let slow = TokenBucket::new(Rate::per_second(1.0), 2);
    let limiter = F::made(Same((ten_a_second(1), slow)), clock.clone());
    let at_once_granted = granted(limiter.acquire(1));
    assert_eq!(at_once_granted.limited_by(), None);
    let (mut first, mut second) = (limiter.acquire(1), limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    clock.advance(Duration::from_secs(2));
    let (first, second) = (granted(first), granted(second));
    let name = |part: Option<Part>| part.expect("a limit").to_string();
    let [quick, slow] = ["limit 1 of 2, token-bucket", "limit 2 of 2, token-bucket"];
    assert_eq!((first.waited(), name(first.limited_by())), (TENTH, quick.to_owned()));
    let second = (second.waited(), name(second.limited_by()));
    assert_eq!(second, (Duration::from_secs(1), slow.to_owned()));
    granted(limiter.try_acquire(1));
    let error = at_once(limiter.try_acquire(1)).expect_err("nothing is left");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(name(error.part()), slow);
}

pub(crate) fn places_come_back_when_their_grants_are_dropped<F: Face>() {
    let clock = clock();
    let limiter = F::made(InFlight::new(2), clock.clone());
    let (one, other) = (granted(limiter.acquire(1)), granted(limiter.acquire(1)));
    assert!(one.holds_places());
    let error = at_once(limiter.try_acquire(1)).expect_err("both are taken");
    assert!(matches!(error, Error::Denied { retry_after: None, .. }), "{error:?}");
    let [mut first, mut second] = [(); 2].map(|()| limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    clock.advance(TENTH);
    waits(&mut first);
    drop(one);
    let first = granted(first);
    assert_eq!(first.waited(), TENTH);
    waits(&mut second);
    // One that leaves holds none.
    drop(second);
    drop(other);
    assert_eq!(at_once(limiter.available()).expect("a number"), 1);
    let reserved = at_once(limiter.reserve(1)).expect("a place");
    assert_eq!(at_once(limiter.available()).expect("a number"), 0);
    drop(reserved);
    drop(first);
    assert_eq!(at_once(limiter.available()).expect("a number"), 2);
}

pub(crate) fn a_place_comes_back_once<F: Face>() {
    let limiter = F::made(InFlight::new(4), clock());
    let left = || at_once(limiter.available()).expect("a number");
    let all = granted(limiter.acquire(1));
    let mut settled = granted(limiter.acquire(3));
    all.refund();
    assert_eq!(left(), 1);
    granted(settled.settle(1));
    assert_eq!(left(), 3);
    granted(settled.settle(2));
    assert_eq!(left(), 2);
    let mut metered = granted(limiter.acquire(1)).metered();
    metered.set(2);
    drop(metered);
    assert_eq!(left(), 2);
    drop(settled);
    assert_eq!(left(), 4);
    assert_eq!((granted(limiter.run(3, async { left() })), left()), (1, 4));
    let mut running = Box::pin(limiter.run(2, std::future::pending::<()>()));
    waits(&mut running);
    assert_eq!(left(), 2);
    drop(running);
    let panics = || at_once(limiter.run(1, async { panic!("as it should") }));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err_and(|_| left() == 4));
}
