//! Ownership of a limiter and its lifetime, checked by reference counts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Acquire, Grant, RateLimiter};
use crate::clock::ManualClock;
use crate::error::Error;
use crate::line::Line;
use crate::policy::Policy;
use crate::policy::in_flight::InFlight;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::units::Rate;

const SECOND: Duration = Duration::from_secs(1);

/// One permit a second, and a clock that stands still.
fn bursty() -> (ManualClock, RateLimiter<SmoothBursty>) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1.0));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// A policy that needs the mutex, with grants that are held.
fn in_flight(max: u32) -> RateLimiter<InFlight> {
    RateLimiter::with_clock(InFlight::new(max), ManualClock::new())
}

fn poll<P: Policy>(
    acquire: &mut Acquire<RateLimiter<P>>,
) -> Poll<Result<Grant<'static, P>, Error>> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<P: Policy>(acquire: &mut Acquire<RateLimiter<P>>) -> Grant<'static, P> {
    match poll(acquire) {
        Poll::Ready(grant) => grant.expect("granted"),
        Poll::Pending => panic!("it should be ready"),
    }
}

#[test]
fn a_caller_that_is_granted_as_soon_as_it_joins_has_not_waited() {
    let limiter = in_flight(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut future = limiter.acquire_owned(1);
    assert!(poll(&mut future).is_pending());
    drop(place);
    assert_eq!(ready(&mut future).waited(), Duration::ZERO);
    assert_eq!(limiter.stats().waits(), 0);
}

/// The grant keeps its source alive.
#[test]
fn a_grant_may_outlive_its_limiter() {
    let limiter = in_flight(2);
    let line = Arc::downgrade(&limiter.line);
    let grant = limiter.try_acquire(1).expect("free").into_owned();
    let waits = limiter.acquire_owned(1);
    drop(limiter);
    assert_eq!(line.strong_count(), 2);
    drop(waits);
    assert_eq!((line.strong_count(), grant.quota().remaining), (1, 1));
    let grant = grant.into_owned();
    assert_eq!(line.strong_count(), 1);
    drop(grant);
    assert_eq!(line.strong_count(), 0);

    // A waiter holds the only share; then its grant holds it.
    let (clock, limiter) = bursty();
    let line = Arc::downgrade(&limiter.line);
    drop(limiter.try_acquire(1).expect("on credit"));
    let mut waits = limiter.acquire_owned(1);
    assert!(poll(&mut waits).is_pending());
    drop(limiter);
    assert_eq!(line.strong_count(), 1);
    clock.advance(SECOND);
    let mut grant = ready(&mut waits);
    drop(waits);
    grant.settle(3).expect("small");
    assert_eq!(line.strong_count(), 1);
    grant.refund();
    assert_eq!(line.strong_count(), 0);
}

#[test]
fn a_limiter_takes_no_more_than_512_bytes() {
    use crate::{FixedWindow, Gcra, LeakyBucket, SlidingWindowLog, SmoothWarmingUp, TokenBucket};

    let bytes = [
        Line::<SmoothBursty>::bytes(),
        Line::<TokenBucket>::bytes(),
        Line::<Gcra>::bytes(),
        Line::<LeakyBucket>::bytes(),
        Line::<SmoothWarmingUp>::bytes(),
        Line::<FixedWindow>::bytes(),
        Line::<SlidingWindowLog>::bytes(),
        Line::<InFlight>::bytes(),
        Line::<(FixedWindow, TokenBucket, InFlight)>::bytes(),
    ];
    assert!(bytes.iter().all(|&bytes| bytes <= 512), "{bytes:?}");
}
