//! Callers behind a crowd that waits for as long as it takes.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{ManualClock, Rate, SmoothBursty};

use crate::manual::{Manual, new_key};

const MINUTE: Duration = Duration::from_secs(60);

/// A request reaches 1,024 callers.
#[test]
fn a_timeout_behind_a_thousand_is_answered_at_once() {
    const CROWD: u32 = 1_000;
    let clock = ManualClock::new();
    clock.advance(MINUTE);
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key());
    let limiter = builder.clock(&clock).build();
    let mut crowd: Vec<_> = (0..CROWD).map(|_| limiter.acquire(1)).collect();
    // The first is there at once.
    let waiting =
        crowd.iter_mut().filter_map(|caller| caller.now_or_never().is_none().then_some(1));
    assert_eq!(waiting.sum::<u32>(), CROWD - 1);
    let before = limiter.counters();
    let call = limiter.try_acquire_timeout(1, MINUTE);
    let error = call.now_or_never().expect("an answer").expect_err("too late");
    assert_eq!(error.retry_after(), Some(CROWD * Duration::from_millis(100)));
    let after = limiter.counters();
    assert_eq!(after.requests - before.requests, 1);
}
