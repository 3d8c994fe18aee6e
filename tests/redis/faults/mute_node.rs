//! One node of several is mute: its keys must not take the others' place. In simulated time.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tokio::time::Instant;
use tollgate::redis::{Connection, RedisRateLimiter, Request, State, StoreError};
use tollgate::{Clock, Error, ManualClock, SmoothBursty};

use super::by_hand::refused;
use super::wakers::Woken;
use super::wires::{Hand, lone};
use super::{builder, bursty, ms, store};

/// Answers within a millisecond, but for the keys of one node, which get no answer.
#[derive(Clone)]
struct Nodes;

impl Connection for Nodes {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        if request.key.starts_with("mute:") {
            tokio::time::sleep(request.deadline).await;
            return Err(StoreError::lost("no answer"));
        }
        tokio::time::sleep(ms(1)).await;
        Ok(lone(0))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

const DEADLINE: Duration = ms(500);

/// Calls one key until the time is over. How long each call took.
async fn ask(
    limiter: RedisRateLimiter<SmoothBursty, Nodes>,
    every: Duration,
    end: Instant,
) -> Vec<(Duration, Result<(), Error>)> {
    let mut calls = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let answer = limiter.acquire(1).await.map(drop);
        calls.push((start.elapsed(), answer));
        tokio::time::sleep(every).await;
    }
    calls
}

/// The 99th percentile of calls for keys of the nodes that are well; they get no error.
async fn healthy(limiter: &RedisRateLimiter<SmoothBursty, Nodes>, end: Instant) -> Duration {
    let callers: Vec<_> = (0..20)
        .map(|key| tokio::spawn(ask(limiter.at(format!("well:{key}")), ms(5), end)))
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        for (time, answer) in caller.await.expect("no panic") {
            answer.expect("this node is well");
            took.push(time);
        }
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn three_thousand_keys_of_a_mute_node_do_not_hold_up_the_others() {
    let limiter = RedisRateLimiter::builder(bursty(1e9), Nodes, "any");
    let limiter = limiter.deadline(DEADLINE).clock(Clock::tokio()).build();
    let alone = healthy(&limiter, Instant::now() + Duration::from_secs(1)).await;
    // All at once, and again and again: the first requests of all of them are on their way together.
    let end = Instant::now() + Duration::from_secs(4);
    let mute: Vec<_> = (0..3_000)
        .map(|key| tokio::spawn(ask(limiter.at(format!("mute:{key}")), ms(300), end)))
        .collect();
    let beside = healthy(&limiter, end).await;
    assert!(beside <= 2 * alone, "{beside:?} beside them, {alone:?} alone");
    for caller in mute {
        for (time, answer) in caller.await.expect("no panic") {
            assert!(store(answer).is_unavailable());
            assert!(time <= DEADLINE + ms(2), "{time:?}");
        }
    }
    assert_eq!(limiter.state(), State::Up);
}

/// Nothing is known of its turn: what keeps it is the node of its key, though Redis answers for another.
#[test]
fn a_timeout_while_requests_for_one_key_fail_is_not_reported_as_a_denial() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock).build();
    let mut other = limiter.at("other").acquire(1);
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(1));
    hand.answer(Ok(lone(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    // It is repeated at once.
    hand.answer(refused());
    clock.advance(ms(98));
    assert!((&mut caller).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
    assert_eq!(limiter.state(), State::Up);
}

/// Not only when the key is tried again, which may be much later.
#[test]
fn callers_of_a_key_that_fails_alone_hear_of_it_at_the_deadline() {
    /// Answers at once, but for one key.
    #[derive(Clone)]
    struct OneIsDead;

    impl Connection for OneIsDead {
        async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
            if &*request.key == "dead" { refused() } else { Ok(lone(0)) }
        }

        fn spawn(&self, mut task: BoxFuture<'static, ()>) {
            while (&mut task).now_or_never().is_none() {}
        }
    }

    let clock = ManualClock::new();
    let limiter = builder(bursty(10.0), OneIsDead).clock(&clock);
    let limiter = limiter.build();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut caller = limiter.at("dead").acquire(1);
    assert!(caller.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    for millis in 1..=DEADLINE.as_millis() {
        assert!(!woken.is(), "before {millis} ms");
        clock.advance(ms(1));
        let other = limiter.acquire(1).now_or_never();
        assert!(other.expect("its node is well").is_ok());
    }
    assert!(woken.is());
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
}
