//! What a limiter tells.

use tollgate::InFlight;

use super::*;

pub(crate) fn what_is_left_is_told<F: Face>() {
    let (clock, limiter) = full::<F>(10);
    drop(granted(limiter.acquire(4)));
    let quota = granted(limiter.quota());
    assert_eq!((quota.limit, quota.remaining), (10, 6));
    assert_eq!(quota.reset_after, Some(4 * TENTH));
    assert_eq!(quota.window, Some(10 * TENTH));
    clock.advance(TENTH);
    assert_eq!(granted(limiter.available()), 7);
    // Asking takes nothing.
    assert_eq!(granted(limiter.try_acquire(7)).cost(), 7);
    assert_eq!(granted(limiter.available()), 0);
}

pub(crate) fn a_wait_is_known_before_it_begins<F: Face>() {
    let (clock, limiter) = full::<F>(3);
    let wait = |n| at_once(limiter.would_wait(n)).expect("a wait").expect("a known one");
    assert_eq!((wait(0), wait(3)), (Duration::ZERO, Duration::ZERO));
    let too_much = at_once(limiter.would_wait(4));
    assert!(matches!(too_much, Err(Error::ExceedsCapacity(_))), "{too_much:?}");
    drop(granted(limiter.acquire(2)));
    assert_eq!((wait(0), wait(1), wait(3)), (Duration::ZERO, Duration::ZERO, 2 * TENTH));
    let stats = limiter.stats();
    // Asking takes nothing and joins no queue.
    assert_eq!((granted(limiter.available()), limiter.queue_len()), (1, 0));
    assert_eq!(limiter.stats(), stats);
    drop(granted(limiter.acquire(1)));
    clock.advance(ms(40));
    assert_eq!((wait(1), wait(2)), (ms(60), ms(160)));
    let mut first = limiter.acquire(2);
    waits(&mut first);
    assert_eq!((wait(1), wait(3)), (ms(260), ms(460)));
    assert_eq!(limiter.queue_len(), 1);
    let mut last = limiter.acquire(3);
    waits(&mut last);
    clock.advance(ms(160));
    assert_eq!(granted(first).waited(), ms(160));
    clock.advance(ms(300));
    assert_eq!(granted(last).waited(), ms(460));
}

pub(crate) fn the_wait_for_a_place_is_not_known<F: Face>() {
    let limiter = F::made(InFlight::new(2), clock());
    let wait = |n| at_once(limiter.would_wait(n)).expect("a wait");
    let place = granted(limiter.acquire(1));
    assert_eq!((wait(1), wait(2)), (Some(Duration::ZERO), None));
    drop(place);
    assert_eq!(wait(2), Some(Duration::ZERO));
}

pub(crate) fn those_that_wait_are_counted<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let [mut first, mut second] = [(); 2].map(|()| limiter.acquire(1));
    assert_eq!(limiter.queue_len(), 0);
    waits(&mut first);
    waits(&mut second);
    let third = at_once(limiter.reserve(1)).expect("a place");
    assert_eq!((limiter.queue_len(), limiter.queued_permits()), (3, 3));
    drop(second);
    assert_eq!((limiter.queue_len(), limiter.queued_permits()), (2, 2));
    clock.advance(TENTH);
    assert_eq!((limiter.queue_len(), limiter.queued_permits()), (1, 1));
    granted(first);
    clock.advance(TENTH);
    assert_eq!(limiter.queue_len(), 0);
    granted(third.wait());
    assert_eq!(limiter.queue_len(), 0);
}

pub(crate) fn every_call_counts_once<F: Face>() {
    let (clock, limiter) = full::<F>(1);
    granted(limiter.acquire(1));
    at_once(limiter.try_acquire(1)).expect_err("nothing is left");
    at_once(limiter.try_acquire_timeout(1, ms(50))).expect_err("too short");
    at_once(limiter.acquire(2)).expect_err("too much");
    let [mut first, mut left, mut late] = [(); 3].map(|()| limiter.try_acquire_timeout(1, ms(450)));
    waits(&mut first);
    waits(&mut left);
    waits(&mut late);
    drop(left);
    clock.advance(TENTH);
    granted(first);
    granted(limiter.pause_for(Duration::from_secs(1)));
    clock.advance(ms(350));
    at_once(late).expect_err("too late");
    let stats = limiter.stats();
    assert_eq!((stats.granted, stats.refused, stats.given_up), (2, 4, 1));
    assert_eq!(stats.waited, TENTH);
    assert_eq!(limiter.stats().waits(), 1);
    assert_eq!(limiter.clone().stats(), stats);
}

pub(crate) fn the_name_and_the_clock_are_those_of_the_builder<F: Face>() {
    let (clock, limiter) = full::<F>(1);
    assert_eq!(limiter.name(), Some("face"));
    clock.advance(TENTH);
    let now = u128::from(limiter.clock().now().get());
    assert_eq!(now, clock.elapsed().as_nanos());
}
