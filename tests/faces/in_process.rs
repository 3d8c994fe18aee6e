//! The limiters of one process.

use tollgate::{
    AnyRateLimiter, AtKey, KeyedRateLimiter, ManualClock, OwnedLimiter, RateLimiter, TokenBucket,
};

use super::faces::*;
use super::tests_in_process as tests_of;

// To come, when they are limiters:
//   adaptive "`Adaptive`": |policy, clock| Adaptive::new(plain(policy, clock)), only rated,
//       Static LimitedBy ONE_RATE, Static Places ONE_RATE;
//   cached "`CachedRateLimiter`": |policy, clock| cached(policy, clock), only rated, ..

fn plain<P: TestPolicy>(policy: P, clock: ManualClock) -> RateLimiter<P> {
    RateLimiter::builder(policy).clock(clock).name("face").build()
}

fn at_key<P: TestPolicy>(policy: P, clock: ManualClock) -> AtKey<&'static str, P> {
    KeyedRateLimiter::builder(policy).clock(clock).name("face").build().at("key")
}

#[cfg(feature = "feedback")]
use tollgate::feedback::Feedback;

faces! {
    in_process "`RateLimiter`": |policy, clock| plain(policy, clock);
    key "`AtKey`": |policy, clock| at_key(policy, clock);
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
