//! Nothing grows for ever: waiters, and the lines of keys.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tollgate::redis::{Connection, Request, StoreError};
use tollgate::{Error, ManualClock, Rate, Rated};

use super::wires::{Hand, is_take, lone, told};
use super::{builder, bursty, ms, slow};

#[test]
fn waiters_of_a_key_are_bounded_by_default() {
    let hand = Hand::default();
    let limiter = builder(slow(), hand).clock(ManualClock::new()).build();
    let mut callers: Vec<_> = (0..=100_000).map(|_| limiter.acquire(1)).collect();
    let last = callers.pop().expect("one more");
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    assert!(matches!(last.now_or_never(), Some(Err(Error::QueueFull { .. }))));
}

/// Answers at once.
#[derive(Clone)]
struct AtOnce;

impl Connection for AtOnce {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let is_take = is_take(request);
        // A policy that is set gets a rank.
        let set =
            if request.argument[request.argument.len() - 3] == 1 { &[1, 0, 1][..] } else { &[1] };
        Ok(if is_take { lone(0) } else { told(set) })
    }

    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        while (&mut task).now_or_never().is_none() {}
    }
}

/// The line of a key counts what it has granted, until it is dropped.
#[test]
fn lines_of_keys_that_are_not_used_are_dropped_without_a_new_key() {
    let clock = ManualClock::new();
    let limiter = builder(bursty(1_000.0), AtOnce).clock(&clock).build();
    let call = |key: u32| {
        let answer = limiter.at(key.to_string()).acquire(1).now_or_never();
        answer.expect("answered").expect("granted");
    };
    let kept = |keys: std::ops::Range<u32>| {
        keys.filter(|key| limiter.at(key.to_string()).key_stats().granted > 0).count()
    };
    (0..1_000).for_each(call);
    assert_eq!(kept(0..1_000), 1_000, "those that were just used are kept");
    // The alarms that watched over the requests go off, and find nothing to do.
    clock.advance(ms(600));
    clock.advance(ms(999));
    call(0);
    clock.advance(ms(1));
    (0..1_000).for_each(|_| call(0));
    assert_eq!((kept(0..1), kept(1..1_000)), (1, 0));
}

/// The alarm of the limiter drops them, some at a time.
#[test]
fn lines_of_keys_that_are_not_used_are_dropped_without_a_call() {
    let clock = ManualClock::new();
    let limiter = builder(bursty(1_000.0), AtOnce).clock(&clock).build();
    let call = |key: u32| {
        let answer = limiter.at(key.to_string()).acquire(1).now_or_never();
        answer.expect("answered").expect("granted");
    };
    (0..5_000).for_each(call);
    clock.advance(ms(500));
    (0..10).for_each(call);
    let held = limiter.at("0");
    assert_eq!(limiter.len(), 5_001);
    clock.advance(ms(700));
    assert_eq!(limiter.len(), 11, "those that were used in the last second");
    clock.advance(ms(2_000));
    assert_eq!(limiter.len(), 2, "its own, and that of the handle");
    assert_eq!((held.key_stats().granted, limiter.stats().granted), (2, 5_010));
    // Long after, as none went meanwhile; a call is a reason to look again.
    clock.advance(ms(600_000));
    drop(held);
    call(1);
    clock.advance(ms(3_000));
    assert_eq!(limiter.len(), 1);
}

/// Such a line can restore what Redis has lost.
#[test]
fn a_policy_that_was_set_is_known_for_a_day() {
    let clock = ManualClock::new();
    let limiter = builder(bursty(10.0), AtOnce).clock(&clock).build();
    let set = Box::pin(limiter.at("set").set_rate(Rate::per_second(20.0))).now_or_never();
    set.expect("answered").expect("set");
    let rate_after = |hours: u64| {
        clock.advance(Duration::from_secs(3_600 * hours));
        for _ in 0..10 {
            limiter.at("other").acquire(1).now_or_never().expect("answered").expect("granted");
        }
        limiter.at("set").rate()
    };
    assert_eq!(rate_after(23), Rate::per_second(20.0));
    assert_eq!(rate_after(24), bursty(10.0).rate());
}
