//! Limiters that share a key of a real Redis, which decides by the clock of the test.

use std::time::Duration;

#[cfg(feature = "feedback")]
use tollgate::feedback::Feedback;
use tollgate::redis::RedisRateLimiter;
use tollgate::{AnyRateLimiter, ManualClock, OwnedLimiter, TokenBucket};

use super::faces::{tests_of_face as tests_of, *};
use crate::manual::{Manual, new_key};

/// Longer than any test. Its renewal would ask the server many times while a clock moves.
const LEASE: Duration = Duration::from_secs(1 << 30);

fn plain<P: TestPolicy>(policy: P, clock: ManualClock) -> RedisRateLimiter<P, Manual> {
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key()).clock(clock);
    builder.horizon(Duration::ZERO).lease(LEASE).refresh(LEASE).name("face").build()
}

fn at_key<P: TestPolicy>(policy: P, clock: ManualClock) -> RedisRateLimiter<P, Manual> {
    plain(policy, clock).at(new_key())
}

const LAST_REPLY: &str = "It is known from the last reply of Redis, and changes with the next one.";

faces! {
    plain_key "`RedisRateLimiter`":
        |policy, clock| plain(policy, clock), Otherwise Delay LAST_REPLY;
    other_key "`RedisRateLimiter` at a key":
        |policy, clock| at_key(policy, clock), Otherwise Delay LAST_REPLY;
    any "`AnyRateLimiter` of it": |policy, clock| AnyRateLimiter::new(plain(policy, clock)),
        Otherwise Delay LAST_REPLY;
    #[cfg(feature = "feedback")]
    feedback "`Feedback` of it": |policy, clock| Feedback::new(plain(policy, clock)),
        Otherwise Delay LAST_REPLY;
}
