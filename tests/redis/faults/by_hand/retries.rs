//! Requests that fail, and what is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, FutureExt};
use tollgate::redis::{
    Connection, RedisRateLimiter, Request, Scripted, State, StoreError, Unavailable,
};
use tollgate::{Error, InFlight, ManualClock, Rate, TokenBucket};

use super::{limiter, refused, silence};
use crate::faults::wires::{is_take, lone, told};
use crate::faults::{KEY, builder, bursty, ms, store};

/// The runtime is busy for so long that Redis counts as down when the task begins.
#[test]
fn a_retry_that_starts_too_late_becomes_a_probe() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    hand.answer(refused());
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 2));
    // The third request is due, but does not start before all callers are refused.
    clock.advance(ms(2));
    clock.advance(ms(600));
    assert_eq!(limiter.state(), State::Down);
    hand.send();
    assert!(caller.now_or_never().expect("answered").is_err());
    // It probes Redis instead, which is back.
    hand.answer(Ok(told(&[0])));
    assert_eq!((limiter.state(), hand.sent()), (State::Up, 3));
}

/// At first it fails alone, as another key was answered later than it was sent, and then Redis is gone for all.
#[test]
fn a_key_that_fails_in_an_outage_of_all_has_the_pauses_of_that() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let [mut other, mut caller] = ["other", "key"].map(|key| limiter.at(key).acquire(1));
    assert!((&mut other).now_or_never().is_none() && (&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(5));
    hand.answer(Ok(lone(0)));
    clock.advance(ms(5));
    for _ in 0..20 {
        hand.answer(refused());
    }
    assert!(hand.sent() < 6, "{} requests at one time", hand.sent());
    assert!(caller.now_or_never().is_none());
}

/// `Counters::lost` bounds the permits charged for nothing, so probes must not count.
#[test]
fn a_probe_without_an_answer_owes_nothing() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(500));
    hand.answer(silence());
    assert!(caller.now_or_never().expect("answered").is_err());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 1));
    for _ in 0..3 {
        clock.advance(ms(400));
        hand.answer(silence());
    }
    assert_eq!((hand.sent(), limiter.counters().lost), (4, 1));
}

/// Answers at once, but for keys that begin with `dead`.
#[derive(Clone)]
struct SomeAreDead {
    tries: Arc<AtomicUsize>,
    failure: StoreError,
}

impl SomeAreDead {
    fn new(failure: StoreError) -> Self {
        Self { tries: Arc::default(), failure }
    }
}

impl Connection for SomeAreDead {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        if request.key.starts_with("dead") {
            self.tries.fetch_add(1, Ordering::SeqCst);
            return Err(self.failure.clone());
        }
        let is_change = !is_take(request);
        Ok(told(match request.argument[request.argument.len() - 1] {
            _ if is_change => &[0],
            1 => &[0, 0],
            // With the rule that limits.
            _ => &[0, 0, 0],
        }))
    }

    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        while (&mut task).now_or_never().is_none() {}
    }
}

/// There may be thousands of such keys on a node that is down.
#[test]
fn an_unused_key_is_not_retried_for_ever() {
    let (clock, connection) =
        (ManualClock::new(), SomeAreDead::new(StoreError::refused("not permitted")));
    let limiter = builder(bursty(10.0), connection.clone()).clock(&clock).build();
    let dead = limiter.at("dead");
    let tries = || connection.tries.load(Ordering::SeqCst);
    let go_on = |times: u32| {
        for _ in 0..times {
            clock.advance(ms(300));
            // This key does not pay for the other.
            let answer = limiter.acquire(1).now_or_never();
            assert!(answer.expect("it is there").is_ok());
        }
    };
    let mut caller = dead.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    go_on(3);
    store(caller.now_or_never().expect("answered"));
    go_on(10);
    store(dead.acquire(1).now_or_never().expect("it is known"));
    go_on(12);
    store(dead.acquire(1).now_or_never().expect("it is known, because it was used"));
    go_on(50);
    let before = tries();
    go_on(50);
    assert_eq!(tries(), before);
    assert!((&mut dead.acquire(1)).now_or_never().is_none(), "the key is tried again");
}

/// Each key is used once, and its handle is dropped.
fn dead_keys_are_forgotten<P: Scripted>(policy: P, cost: P::Cost, failure: &StoreError) {
    let (clock, connection) = (ManualClock::new(), SomeAreDead::new(failure.clone()));
    let tries = || connection.tries.load(Ordering::SeqCst);
    let limiter = RedisRateLimiter::builder(policy, connection.clone(), KEY);
    let limiter = limiter.lease(ms(3_000)).clock(&clock).build();
    let go_on = |times: u32| {
        for _ in 0..times {
            clock.advance(ms(300));
            assert!(limiter.at("well").acquire(cost).now_or_never().expect("there").is_ok());
        }
    };
    go_on(1);
    for key in 0..20 {
        let dead = limiter.at(format!("dead{key}"));
        let mut caller = dead.acquire(cost);
        let at_once = (&mut caller).now_or_never();
        go_on(3);
        store(at_once.or_else(|| caller.now_or_never()).expect("answered"));
    }
    go_on(100);
    let before = tries();
    go_on(100);
    let more = tries() - before;
    assert_eq!((more, limiter.len()), (0, 2), "requests, and known keys: {failure:?}");
}

#[test]
fn dead_keys_of_each_policy_are_forgotten() {
    let bucket = || TokenBucket::new(Rate::per_second(1_000.0), 1_000);
    for failure in [StoreError::refused("not permitted"), StoreError::lost("no reply")] {
        dead_keys_are_forgotten(bucket(), 1, &failure);
        dead_keys_are_forgotten(InFlight::new(5), 1, &failure);
        dead_keys_are_forgotten((bucket(), InFlight::new(5)), (1, 1), &failure);
    }
}

/// No other caller is affected.
#[test]
fn one_lost_reply_among_others_is_no_outage() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let (mut one, mut other) = (limiter.at("one").acquire(1), limiter.at("other").acquire(1));
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    assert!((&mut one).now_or_never().is_none());
    hand.send();
    clock.advance(ms(400));
    // The request sent first is answered first, and late.
    hand.answer(Ok(lone(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    clock.advance(ms(100));
    hand.answer(silence());
    assert!(store(one.now_or_never().expect("answered")).may_have_charged());
    assert_eq!(limiter.state(), State::Up);
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    // The failed key probes first, and no other key waits for that.
    hand.answer(Ok(told(&[0])));
    hand.answer(Ok(lone(0)));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.state(), State::Up);
}

/// Another key was just probing when this one failed, and no caller waited here then.
#[test]
fn a_failed_key_probes_again_without_waiters() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let keys = ["one", "other"].map(|key| limiter.at(key));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    for caller in &mut callers {
        assert!(caller.now_or_never().is_none());
        hand.send();
    }
    // The first key fails, and its probe too; then the other.
    (0..3).for_each(|_| hand.answer(silence()));
    assert!(callers.into_iter().all(|caller| caller.now_or_never().expect("answered").is_err()));
    // Each of them probes once more.
    clock.advance(ms(4));
    hand.send();
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 5));
    hand.answer(Ok(told(&[0])));
    assert_eq!(limiter.state(), State::Up);
    hand.answer(Ok(told(&[0])));
    // Long after that, neither key fails a caller.
    clock.advance(ms(600));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()), "they are requested");
}

/// Redis has not replied that the limit is reached.
#[test]
fn a_timeout_while_requests_fail_is_not_reported_as_a_denial() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let allowing = builder(bursty(10.0), hand.clone()).clock(&clock);
    let allowing = allowing.unavailable(Unavailable::Allow).build();
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    let mut allowed = allowing.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none() && (&mut allowed).now_or_never().is_none());
    for _ in 0..4 {
        hand.answer(refused());
    }
    clock.advance(ms(99));
    assert!((&mut caller).now_or_never().is_none() && (&mut allowed).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
    assert!(!allowed.now_or_never().expect("answered").expect("granted").is_shared());
    assert_eq!((limiter.state(), allowing.state()), (State::Doubtful, State::Doubtful));
}

/// As long as nothing has failed, Redis may just be slow.
#[test]
fn a_timeout_before_the_first_reply_is_a_denial() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    let answer = caller.now_or_never().expect("answered");
    assert!(matches!(answer, Err(Error::Denied { retry_after: None, .. })), "{answer:?}");
}

/// Without a thread no probe can be sent, and none may spin on retries.
#[test]
fn a_failed_request_is_not_retried_without_a_thread() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    for _ in 0..3 {
        hand.answer(refused());
    }
    hand.end();
    clock.advance(ms(1_000));
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
}
