//! A caller's wait while Redis cannot be reached, and after it.

use futures::future::FutureExt;
use tollgate::redis::{State, Unavailable};
use tollgate::{Error, ManualClock};

use super::{refused, refused_for};
use crate::faults::wires::{Hand, lone, told};
use crate::faults::{builder, bursty, ms};

/// As when one node of a cluster is down, but Redis as a whole is not.
#[test]
fn waiters_for_the_share_of_one_key_return_to_redis() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.send();
    let others = || limiter.at("other").acquire(1);
    let mut other = others();
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    // The first is refused twice, and then the other is answered.
    hand.answer(refused());
    hand.answer(refused());
    clock.advance(ms(1));
    hand.answer(Ok(lone(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    clock.advance(ms(499));
    // And its probe.
    hand.answer(refused());
    hand.answer(refused());
    let mut other = others();
    assert!((&mut other).now_or_never().is_none());
    hand.answer(Ok(lone(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.state(), State::Up);
    let [first, mut second, mut third] = callers;
    let grant = first.now_or_never().expect("the first is prepaid").expect("granted");
    assert!(!grant.is_shared());
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    // The key is tried again, and answered.
    clock.advance(ms(10));
    hand.answer(Ok(told(&[0])));
    clock.advance(ms(1_000));
    assert!((&mut second).now_or_never().is_none());
    hand.send();
    assert!((&mut third).now_or_never().is_none());
    hand.answer(Ok(lone(0)));
    hand.answer(Ok(lone(0)));
    for caller in [second, third] {
        assert!(caller.now_or_never().expect("granted").expect("granted").is_shared());
    }
}

/// With the time that they have left.
#[test]
fn timed_waiters_for_a_share_return_to_redis() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.try_acquire_timeout(n, ms(5_000)));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(refused());
    clock.advance(ms(500));
    hand.answer(refused());
    assert_eq!(limiter.state(), State::Down);
    let [first, mut second, mut third] = callers;
    let grant = first.now_or_never().expect("the first is prepaid").expect("granted");
    assert!(!grant.is_shared());
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    clock.advance(ms(300));
    hand.answer(Ok(told(&[0])));
    assert_eq!(limiter.state(), State::Up);
    // The local turn of the second brings both back. By then they have waited for 1.8 seconds.
    clock.advance(ms(1_000));
    assert!((&mut second).now_or_never().is_none());
    hand.send();
    assert!((&mut third).now_or_never().is_none());
    hand.answer(Ok(lone(100_000 * 4)));
    let patience = &hand.last()[1][hand.last()[1].len() - 23..][..8];
    assert_eq!(patience, 3_200_000_f64.to_le_bytes());
    hand.answer(Ok(lone((3_300_000 << 2) + 2)));
    clock.advance(ms(100));
    assert!(second.now_or_never().expect("granted").expect("granted").is_shared());
    assert!(matches!(third.now_or_never(), Some(Err(Error::Denied { .. }))));
}

#[test]
fn a_timed_caller_has_as_much_less_time_without_redis_as_it_has_waited_for_it() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1_000, 1_499, 1_500].map(|most| limiter.try_acquire_timeout(1, ms(most)));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(refused());
    clock.advance(ms(500));
    hand.answer(refused());
    // The second local permit comes in a second.
    let [first, second, mut third] = callers;
    assert!(first.now_or_never().expect("it is prepaid").is_ok());
    assert!(matches!(second.now_or_never(), Some(Err(Error::Denied { .. }))));
    assert!((&mut third).now_or_never().is_none());
    clock.advance(ms(1_000));
    assert!(third.now_or_never().expect("its turn").is_ok());
}

/// Also if it has waited at another limiter meanwhile.
#[test]
fn a_wait_counts_from_the_arrival_of_the_caller() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(refused());
    clock.advance(ms(500));
    hand.answer(refused());
    let mut granted = |index: usize| (&mut callers[index]).now_or_never();
    let first = granted(0).expect("it is prepaid").expect("granted");
    assert_eq!((first.is_shared(), first.waited()), (false, ms(500)));
    assert!(granted(1).is_none() && granted(2).is_none());
    clock.advance(ms(1_000));
    let second = granted(1).expect("its turn").expect("granted");
    assert_eq!((second.is_shared(), second.waited()), (false, ms(1_500)));
    // Redis is back.
    hand.answer(Ok(told(&[0])));
    clock.advance(ms(1_000));
    assert!(granted(2).is_none());
    hand.answer(Ok(lone(100_000 * 4)));
    clock.advance(ms(100));
    let third = granted(2).expect("its turn").expect("granted");
    assert_eq!((third.is_shared(), third.waited()), (true, ms(2_600)));
    let total = ms(500) + ms(1_500) + ms(2_600);
    assert_eq!((limiter.stats().granted, limiter.stats().waited), (3, total));
}

/// With `Allow`, too: the caller may have waited for the deadline.
#[test]
fn a_caller_that_is_allowed_has_waited_for_redis() {
    let (_limiter, caller) = refused_for(500, Unavailable::Allow);
    let grant = caller.now_or_never().expect("answered").expect("allowed");
    assert_eq!((grant.is_shared(), grant.waited()), (false, ms(500)));
}

/// A caller that left counts as given up, also without a request.
#[test]
fn a_caller_that_leaves_before_its_share_is_counted() {
    let (limiter, caller) = refused_for(600, Unavailable::Local(bursty(1.0)));
    assert_eq!((limiter.state(), limiter.queue_len()), (State::Down, 0), "answered");
    drop(caller);
    assert_eq!(limiter.stats().given_up, 1);
    drop(limiter.reserve(1).now_or_never().expect("answered").expect("a place"));
    assert_eq!(limiter.stats().given_up, 2);
}
