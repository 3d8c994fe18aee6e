//! What one process learns from a server holds back the others.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::feedback::Feedback;
use tollgate::redis::RedisRateLimiter;
use tollgate::{InFlight, ManualClock, SlidingWindowLog};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<(SlidingWindowLog, InFlight), Manual>;

fn now<T>(future: impl Future<Output = T>) -> T {
    Box::pin(future).now_or_never().expect("an answer")
}

/// Two processes, of which the first learns.
fn processes() -> (ManualClock, Feedback<Limiter>, Limiter) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(60));
    let (server, key) = (Manual::new(&clock), new_key());
    let limiter = || -> Limiter {
        let log = SlidingWindowLog::new(5_000, Duration::from_secs(3_600));
        let policy = (log, InFlight::new(10));
        let builder = RedisRateLimiter::builder(policy, server.clone(), &*key);
        builder.clock(&clock).horizon(Duration::ZERO).build()
    };
    (clock.clone(), Feedback::new(limiter()), limiter())
}

#[test]
fn a_refusal_of_one_process_pauses_the_others() {
    let (clock, ours, theirs) = processes();
    let mut call = now(ours.acquire((1, 1))).expect("granted");
    assert!(now(call.observe(429u16, &[("retry-after", "7")])).is_refused());
    drop(call);
    let mut waits = theirs.acquire((1, 1));
    assert!((&mut waits).now_or_never().is_none());
    clock.advance(Duration::from_secs(7));
    assert_eq!(now(waits).expect("granted").waited().as_secs(), 7);
    // One of ours goes first.
    let first = now(ours.acquire((1, 1))).expect("granted");
    assert!(Box::pin(ours.acquire((1, 1))).now_or_never().is_none());
    drop(first);
}
