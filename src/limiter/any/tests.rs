use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{AnyGrant, AnyRateLimiter};
use crate::error::Error;
use crate::limiter::Limiter;
use crate::{
    InFlight, KeyedRateLimiter, ManualClock, Rate, RateLimiter, Same, SmoothBursty, TokenBucket,
};

fn poll<T>(
    future: &mut (impl Future<Output = Result<T, Error>> + Unpin),
) -> Poll<Result<T, Error>> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn ready<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut future = Box::pin(future);
    match poll(&mut future) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

/// A limiter, a key and a composed rule, each 5 a second with nothing stored.
fn limiters(clock: &ManualClock) -> [AnyRateLimiter; 3] {
    let policy = SmoothBursty::new(Rate::per_second(5.0)).max_burst(Duration::ZERO);
    let keyed = KeyedRateLimiter::builder(policy.clone()).clock(clock).name("any").build();
    [
        AnyRateLimiter::new(RateLimiter::builder(policy.clone()).clock(clock).name("any").build()),
        AnyRateLimiter::new(keyed.at("alice".to_owned())),
        AnyRateLimiter::new(
            RateLimiter::builder(Same((policy, InFlight::new(100))))
                .clock(clock)
                .name("any")
                .build(),
        ),
    ]
}

#[test]
fn every_method_is_that_of_the_limiter() {
    let clock = ManualClock::new();
    for limiter in limiters(&clock) {
        assert_eq!(limiter.name(), Some("any"));
        let mut grant = ready(limiter.acquire(10)).expect("prepaid");
        assert_eq!((grant.cost(), grant.waited()), (10, Duration::ZERO));
        let refused = ready(limiter.try_acquire(1)).expect_err("two seconds are owed");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(2)));
        let late = ready(limiter.try_acquire_timeout(1, Duration::from_millis(1_999)));
        assert_eq!(late.expect_err("too late").retry_after(), Some(Duration::from_secs(2)));
        let mut settle = Box::pin(grant.settle(12));
        let settled = settle.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(settled, Poll::Ready(Ok(())));
        drop(settle);
        let refused = ready(limiter.try_acquire(1)).expect_err("two more are owed");
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(2_400)));
        drop(grant);
        let pause = limiter.pause_for(Duration::from_secs(60));
        // Nothing yet: it has not been polled.
        let refused = ready(limiter.try_acquire(1)).expect_err("owed");
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(2_400)));
        ready(pause).expect("room");
        let paused = ready(limiter.try_acquire(1)).expect_err("paused");
        assert_eq!(paused.retry_after(), Some(Duration::from_secs(60)));
    }
}

#[test]
fn a_dropped_future_leaves_the_queue_and_a_refund_gives_back() {
    let clock = ManualClock::new();
    for limiter in limiters(&clock) {
        let first: AnyGrant = ready(limiter.acquire(5)).expect("prepaid");
        let mut leaves = limiter.acquire(5);
        let mut stays = limiter.acquire(1);
        assert!(poll(&mut leaves).is_pending() && poll(&mut stays).is_pending());
        drop(leaves);
        drop(first);
        clock.advance(Duration::from_secs(1));
        let granted = ready(stays).expect("its turn");
        assert_eq!(granted.waited(), Duration::from_secs(1));
        granted.refund();
        assert!(ready(limiter.try_acquire(1)).is_ok());
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_place_in_flight_is_given_back_by_the_drop_of_its_grant() {
    let limiter = AnyRateLimiter::new(RateLimiter::new(InFlight::new(1)));
    let held = ready(limiter.try_acquire(1)).expect("free");
    assert!(ready(limiter.try_acquire(1)).is_err());
    drop(held);
    assert!(ready(limiter.try_acquire(1)).is_ok());
}

#[test]
fn a_limiter_tells_its_quota() {
    let clock = ManualClock::new();
    for limiter in limiters(&clock) {
        let quota = ready(limiter.quota()).expect("in process");
        assert_eq!((quota.limit, quota.window), (0, Some(Duration::from_millis(200))));
    }
    let bucket = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(5.0), 10), &clock);
    let bucket = AnyRateLimiter::new(bucket);
    let _grant = ready(bucket.try_acquire(3)).expect("full");
    let quota = ready(bucket.quota()).expect("in process");
    assert_eq!((quota.limit, quota.remaining), (10, 7));
    assert_eq!(quota.reset_after, Some(Duration::from_millis(600)));
}

/// Of a limiter, and of a key that is absent, kept without a line, and has one.
#[test]
fn a_limiter_tells_each_of_its_limits() {
    let clock = ManualClock::new();
    let minute = TokenBucket::new(Rate::per_minute(60.0), 5);
    let policy = Same((minute, InFlight::new(3)));
    let keyed = KeyedRateLimiter::with_clock(policy.clone(), &clock);
    let limiters = [
        AnyRateLimiter::new(RateLimiter::with_clock(policy, &clock)),
        AnyRateLimiter::new(keyed.at("alice".to_owned())),
    ];
    for limiter in limiters {
        let limits = |cost| -> Vec<_> {
            let limits = ready(limiter.limits(cost)).expect("in process");
            let seconds = |time: Duration| time.as_secs();
            let told = limits.iter().map(|limit| {
                let window = limit.window.map(seconds);
                (limit.remaining, limit.limit, limit.more_after.map(seconds), window, limit.is_held)
            });
            told.collect()
        };
        assert_eq!(limits(1), [(5, 5, None, Some(5), false), (3, 3, None, None, true)]);
        let _held = ready(limiter.try_acquire(3)).expect("unused");
        assert_eq!(limits(1), [(2, 5, Some(1), Some(5), false), (0, 3, None, None, true)]);
        assert_eq!(limits(4), [(2, 5, Some(2), Some(5), false), (0, 3, None, None, true)]);
        let mut waits = limiter.acquire(1);
        assert!(poll(&mut waits).is_pending());
        assert_eq!(limits(1), [(0, 5, None, Some(5), false), (0, 3, None, None, true)]);
    }
}

#[test]
fn a_limiter_with_several_costs_has_a_dyn_form_too() {
    let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    let limiter = RateLimiter::with_clock((tokens, InFlight::new(1)), ManualClock::new());
    let limiter: AnyRateLimiter<(u32, u32)> = AnyRateLimiter::new(limiter);
    let grant = ready(limiter.try_acquire((800, 1))).expect("unused");
    assert_eq!(grant.cost(), (800, 1));
    assert_eq!(
        ready(limiter.try_acquire((1, 1))).expect_err("in flight").part().map(crate::Part::index),
        Some(1)
    );
    grant.refund();
    assert_eq!(ready(limiter.quota()).expect("in process").remaining, (90_000, 1));
}

/// So that a limiter over Redis, too, fits in the same table.
#[cfg(feature = "redis")]
#[test]
fn a_limiter_over_redis_is_one_of_them() {
    use crate::redis::{Connection, RedisRateLimiter};

    fn fits<C: Connection>(limiter: RedisRateLimiter<InFlight, C>) -> AnyRateLimiter {
        AnyRateLimiter::new(limiter)
    }
    let _ = fits::<crate::redis::Reconnecting>;
}
