use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::AnyRateLimiter;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::{InFlight, KeyedRateLimiter, ManualClock, Rate, RateLimiter, Same, TokenBucket};

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

/// Of a limiter, and of a key that is absent, kept without a line, and has one.
#[test]
fn a_limiter_tells_each_of_its_limits() {
    let clock = ManualClock::new();
    let minute = TokenBucket::new(Rate::per_minute(60.0), 5);
    let policy = Same((minute, InFlight::new(3)));
    let keyed = KeyedRateLimiter::with_clock(policy.clone(), &clock);
    let limiters = [
        AnyRateLimiter::new(RateLimiter::with_clock(policy, &clock)),
        AnyRateLimiter::new(keyed.at("alice").into_owned()),
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
