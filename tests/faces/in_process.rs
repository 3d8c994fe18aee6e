//! The limiters of one process.

use tollgate::{
    AnyRateLimiter, AtKey, CachedRateLimiter, KeyedRateLimiter, ManualClock, OwnedLimiter,
    RateLimiter, TokenBucket,
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

const HELD: &str = "A place in flight is given back, so no thread can hold it.";
const TOGETHER: &str =
    "Threads hold nothing of rules together: take a `RateLimiter`, which does the same for less.";
const UNCOUNTED: &str = "Calls that are served by what a thread holds are not counted.";

#[cfg(feature = "feedback")]
use tollgate::feedback::Feedback;

faces! {
    in_process "`RateLimiter`": |policy, clock| plain(policy, clock);
    key "`AtKey`": |policy, clock| at_key(policy, clock);
    cached "`CachedRateLimiter`": |policy, clock| cached(policy, clock) => only rated,
        Static LimitedBy TOGETHER, Static Places HELD, Otherwise Stats UNCOUNTED;
    any "`AnyRateLimiter`": |policy, clock| AnyRateLimiter::new(plain(policy, clock));
    any_key "`AnyRateLimiter` of a key": |policy, clock| AnyRateLimiter::new(at_key(policy, clock));
    #[cfg(feature = "feedback")]
    feedback "`Feedback`": |policy, clock| Feedback::new(plain(policy, clock));
    #[cfg(feature = "feedback")]
    feedback_key "`Feedback` of a key": |policy, clock| Feedback::new(at_key(policy, clock));
    #[cfg(feature = "feedback")]
    feedback_any "`Feedback` of an `AnyRateLimiter`":
        |policy, clock| Feedback::new(AnyRateLimiter::new(plain(policy, clock)));
    #[cfg(feature = "feedback")]
    any_feedback "`AnyRateLimiter` of a `Feedback`":
        |policy, clock| AnyRateLimiter::new(Feedback::new(plain(policy, clock)));
}
