//! Limiters that share a key of a real Redis, which decides by the clock of the test.

use std::time::Duration;

use tollgate::redis::RedisRateLimiter;
use tollgate::{AnyRateLimiter, Limiter, ManualClock, RateLimiter, Unlimited};

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

const ONE_OF_TWO: &str = "It says which limiter, not which of its rules.";
const IN_ORDER: &str = "Callers of tenants queue in the order of arrival.";
const LAST_REPLY: &str = "It is known from the last reply of Redis, and changes with the next one.";

faces! {
    plain_key "`RedisRateLimiter`":
        |policy, clock| plain(policy, clock), Delay LAST_REPLY, Tenants IN_ORDER;
    other_key "`RedisRateLimiter` at a key":
        |policy, clock| at_key(policy, clock), Delay LAST_REPLY, Tenants IN_ORDER;
    any "`AnyRateLimiter` of it": |policy, clock| AnyRateLimiter::new(plain(policy, clock)),
        Delay LAST_REPLY, Tenants IN_ORDER;
    and_in_process "`a.and(&b)`, of it and a `RateLimiter`":
        |policy, clock| plain(policy, clock.clone()).and(&RateLimiter::with_clock(Unlimited, &clock)),
        Delay LAST_REPLY, Tenants IN_ORDER, LimitedBy ONE_OF_TWO;
    feedback "`Feedback` of it": |policy, clock| taught(plain(policy, clock)),
        Delay LAST_REPLY, Tenants IN_ORDER;
}
