//! The limiters of one process.

use std::time::Duration;

use tollgate::{
    AnyRateLimiter, AtKey, CachedRateLimiter, Jitter, KeyedRateLimiter, Limiter, ManualClock,
    OwnedLimiter, RateLimiter, TokenBucket, Unlimited,
};

use super::faces::*;
use super::tests_in_process as tests_of;

fn plain<P: TestPolicy>(policy: P, clock: ManualClock) -> RateLimiter<P> {
    RateLimiter::builder(policy).clock(clock).name("face").build()
}

fn at_key<P: TestPolicy>(policy: P, clock: ManualClock) -> AtKey<&'static str, P> {
    KeyedRateLimiter::builder(policy).clock(clock).name("face").build().at("key")
}

fn cached(policy: TokenBucket, clock: ManualClock) -> CachedRateLimiter<TokenBucket> {
    RateLimiter::builder(policy).clock(clock).name("face").build_cached(2, 2)
}

/// A limiter that holds no caller back.
fn wide(clock: &ManualClock) -> RateLimiter<Unlimited> {
    RateLimiter::builder(Unlimited).clock(clock).name("face").build()
}

const ONE_OF_TWO: &str =
    "It says which limiter; `first()` and `second()` of the grant say which rule.";
const THE_FIRST: &str = "Others may share the second limiter, so it is not changed.";
const HELD: &str = "A place in flight is given back, so no thread can hold it.";
const TOGETHER: &str =
    "Threads hold nothing of rules together: take a `RateLimiter`, which does the same for less.";
const UNCOUNTED: &str = "Calls that are served by what a thread holds are not counted.";

use tollgate::feedback::Feedback;

faces! {
    in_process "`RateLimiter`": |policy, clock| plain(policy, clock);
    key "`AtKey`": |policy, clock| at_key(policy, clock);
    cached "`CachedRateLimiter`": |policy, clock| cached(policy, clock) => only rated,
        Static LimitedBy TOGETHER, Static Places HELD, Otherwise Stats UNCOUNTED;
    jitter "`Jitter`": |policy, clock| Jitter::new(plain(policy, clock), Duration::ZERO);
    any "`AnyRateLimiter`": |policy, clock| AnyRateLimiter::new(plain(policy, clock));
    any_key "`AnyRateLimiter` of a key": |policy, clock| AnyRateLimiter::new(at_key(policy, clock));
    and_first "`And`, whose first decides":
        |policy, clock| at_key(policy, clock.clone()).and(&wide(&clock)),
        Otherwise LimitedBy ONE_OF_TWO;
    and_second "`And`, whose second decides":
        |policy, clock| wide(&clock).and(&plain(policy, clock)),
        Otherwise LimitedBy ONE_OF_TWO, Otherwise Pause THE_FIRST, Otherwise Shrink THE_FIRST, Otherwise Reset THE_FIRST,
        Otherwise Taught THE_FIRST, Otherwise Close THE_FIRST
        => not a_limiter_is_drained_when_its_places_are_back a_place_comes_back_to_a_closed_limiter
        every_call_counts_once no_timed_grant_is_late
        a_reservation_with_a_timeout_keeps_it a_place_comes_back_once;
    and_both "`And` of equal limiters":
        |policy, clock| plain(policy.clone(), clock.clone()).and(&at_key(policy, clock)),
        Otherwise LimitedBy ONE_OF_TWO, Otherwise Reset THE_FIRST;
    feedback "`Feedback`": |policy, clock| Feedback::new(plain(policy, clock));
    feedback_key "`Feedback` of a key": |policy, clock| Feedback::new(at_key(policy, clock));
    feedback_any "`Feedback` of an `AnyRateLimiter`":
        |policy, clock| Feedback::new(AnyRateLimiter::new(plain(policy, clock)));
    any_feedback "`AnyRateLimiter` of a `Feedback`":
        |policy, clock| AnyRateLimiter::new(Feedback::new(plain(policy, clock)));
}
