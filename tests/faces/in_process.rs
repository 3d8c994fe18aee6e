//! The limiters of one process.

use tollgate::{
    AnyRateLimiter, AtKey, KeyedRateLimiter, Limiter, ManualClock, RateLimiter, Unlimited,
};

use super::faces::*;
use super::tests_in_process as tests_of;

fn plain<P: TestPolicy>(policy: P, clock: ManualClock) -> RateLimiter<P> {
    RateLimiter::builder(policy).clock(clock).name("face").build()
}

fn at_key<P: TestPolicy>(policy: P, clock: ManualClock) -> AtKey<'static, 'static, str, P> {
    KeyedRateLimiter::builder(policy).clock(clock).name("face").build().at("key").into_owned()
}

/// A limiter that holds no caller back.
fn wide(clock: &ManualClock) -> RateLimiter<Unlimited> {
    RateLimiter::builder(Unlimited).clock(clock).name("face").build()
}

const ONE_OF_TWO: &str = "It says which limiter, not which of its rules.";
const THE_FIRST: &str = "Others may share the second limiter, so it is not changed.";

faces! {
    in_process "`RateLimiter`": |policy, clock| plain(policy, clock);
    key "`AtKey`": |policy, clock| at_key(policy, clock);
    any "`AnyRateLimiter`": |policy, clock| AnyRateLimiter::new(plain(policy, clock));
    any_key "`AnyRateLimiter` of a key": |policy, clock| AnyRateLimiter::new(at_key(policy, clock));
    and_first "`a.and(&b)`, whose first decides":
        |policy, clock| at_key(policy, clock.clone()).and(&wide(&clock)),
        LimitedBy ONE_OF_TWO;
    and_second "`a.and(&b)`, whose second decides":
        |policy, clock| wide(&clock).and(&plain(policy, clock)),
        LimitedBy ONE_OF_TWO, Pause THE_FIRST, Reset THE_FIRST,
        Taught THE_FIRST, Close THE_FIRST
        => not a_limiter_is_drained_when_its_places_are_back a_place_comes_back_to_a_closed_limiter
        every_call_counts_once no_timed_grant_is_late
        a_reservation_with_a_timeout_keeps_it;
    feedback "`Feedback`": |policy, clock| taught(plain(policy, clock));
    feedback_key "`Feedback` of a key": |policy, clock| taught(at_key(policy, clock));
    feedback_any "`Feedback` of an `AnyRateLimiter`":
        |policy, clock| taught(AnyRateLimiter::new(plain(policy, clock)));
    any_feedback "`AnyRateLimiter` of a `Feedback`":
        |policy, clock| AnyRateLimiter::new(taught(plain(policy, clock)));
}
