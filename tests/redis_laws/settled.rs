//! What a late correction returns of each policy.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{InFlight, LockOut, ManualClock, Rate, Same, SmoothBursty, TokenBucket};

use crate::manual::{Manual, new_key};

const SECOND: Duration = Duration::from_secs(1);

/// Answers are there at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an answer")
}

fn left<P: Scripted>(limiter: &RedisRateLimiter<P, Manual>) -> P::Cost {
    now(limiter.quota()).expect("a server").remaining
}

fn limiter<P: Scripted>(policy: &P, clock: &ManualClock) -> RedisRateLimiter<P, Manual> {
    let connection = Manual::new(clock);
    RedisRateLimiter::builder(policy.clone(), connection, new_key()).clock(clock).build()
}

#[test]
fn a_thread_settles_a_grant() {
    let limiter = limiter(&TokenBucket::new(Rate::per_second(1.0), 5), &ManualClock::new());
    let mut grant = limiter.blocking_acquire(4).expect("full");
    grant.blocking_settle(1).expect("a server");
    assert_eq!((grant.cost(), left(&limiter)), (1, 4));
}

fn begin<P: Scripted>(policy: &P) -> (RedisRateLimiter<P, Manual>, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(3_600 * SECOND);
    (limiter(policy, &clock), clock)
}

/// A charge that came back whole leaves its number to the next one: the refund of the rest, which is nothing, must not
/// undo that one.
#[test]
fn a_refund_of_what_was_settled_to_nothing_leaves_the_next_charge_alone() {
    let (limiter, clock) = begin(&TokenBucket::new(Rate::per_second(100.0), 100));
    let mut first = now(limiter.try_acquire(2)).expect("full");
    now(Box::pin(first.settle(0))).expect("less");
    let mut second = now(limiter.try_acquire(2)).expect("full");
    first.refund();
    clock.advance(SECOND);
    let _third = now(limiter.try_acquire(38)).expect("full again");
    // Time has paid for it: the store was full when the third came.
    now(Box::pin(second.settle(1))).expect("less");
    assert_eq!(left(&limiter), 62);
}

/// Takes a hundred, and ten a second as they come; then the hundred have cost fifty.
fn corrected_under_load<P: Scripted>(policy: &P, cost: impl Fn(u32) -> P::Cost) -> P::Cost {
    let (limiter, clock) = begin(policy);
    let mut first = now(limiter.try_acquire(cost(100))).expect("full");
    for _ in 0..10 {
        clock.advance(SECOND);
        now(limiter.try_acquire(cost(10))).expect("ten have come");
    }
    now(Box::pin(first.settle(cost(50)))).expect("less");
    left(&limiter)
}

/// The bucket has lost nothing, as it was never full: alone, and as a part of other rules.
#[test]
fn a_correction_under_load_comes_back_over_redis() {
    let bucket = TokenBucket::new(Rate::per_second(10.0), 100);
    assert_eq!(corrected_under_load(&bucket, |n| n), 50);
    let other = TokenBucket::new(Rate::per_second(1_000.0), 1_000);
    assert_eq!(corrected_under_load(&Same((bucket.clone(), other.clone())), |n| n), 50);
    assert_eq!(corrected_under_load(&LockOut::new(bucket.clone(), SECOND), |n| n), 50);
    let both = (bucket.clone(), InFlight::new(1));
    assert_eq!(corrected_under_load(&both, |n| (n, 0)), (50, 1));
    let nested = (other, (bucket, SmoothBursty::new(Rate::per_second(1_000.0))));
    assert_eq!(corrected_under_load(&nested, |n| (1, (n, 1))).1.0, 50);
}
