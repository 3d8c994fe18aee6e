//! Ownership of a limiter and its lifetime, checked by reference counts.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
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

/// The number of strong references.
fn shares<P: Policy>(limiter: &RateLimiter<P>) -> usize {
    Arc::strong_count(&limiter.line)
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
    assert_eq!(limiter.waits().count(), 0);
}

#[test]
fn a_reservation_has_a_share_until_it_is_served_or_dropped() {
    let (clock, limiter) = bursty();
    // Granted at once, and in the queue.
    let first = limiter.reserve(1).expect("a place");
    let second = limiter.reserve(1).expect("a place");
    let third = limiter.reserve(1).expect("a place");
    assert_eq!((shares(&limiter), limiter.queue_len()), (4, 2));
    drop(third);
    assert_eq!((shares(&limiter), limiter.queue_len()), (3, 1));
    let grant = first.blocking_wait().expect("served");
    assert_eq!(shares(&limiter), 3);
    drop(grant);
    assert_eq!(shares(&limiter), 2);
    let mut second = second.wait();
    assert!(poll(&mut second).is_pending());
    clock.advance(SECOND);
    let grant = ready(&mut second);
    assert_eq!(shares(&limiter), 3);
    drop((second, grant));
    assert_eq!(shares(&limiter), 1);
    // Granted without a poll, and given back.
    clock.advance(SECOND);
    drop(limiter.reserve(1).expect("a place"));
    assert_eq!(shares(&limiter), 1);
    let limiter = in_flight(1);
    assert!(matches!(limiter.reserve(2), Err(Error::ExceedsCapacity(_))));
    assert_eq!(shares(&limiter), 1);
}

#[test]
fn a_grant_may_be_dropped_on_another_thread() {
    let limiter = in_flight(4);
    let (send, receive) = mpsc::channel();
    let dropper = thread::spawn(move || receive.iter().for_each(|grant: Grant<'_, _>| drop(grant)));
    for _ in 0..1000 {
        let grant = match limiter.try_acquire(1) {
            Ok(grant) => grant.into_owned(),
            Err(_) => limiter.blocking_acquire(1).expect("freed by the other").into_owned(),
        };
        send.send(grant).expect("received");
    }
    drop(send);
    dropper.join().expect("no panic");
    assert_eq!((shares(&limiter), limiter.available()), (1, 4));
    let clones = [limiter.clone(), limiter.clone()];
    thread::scope(|scope| {
        for clone in &clones {
            scope.spawn(move || {
                for _ in 0..1000 {
                    let mut future = clone.acquire_owned(1);
                    drop(poll(&mut future));
                    drop(ready(&mut clone.acquire_owned(1)).into_owned());
                }
            });
        }
    });
    drop(clones);
    assert_eq!((shares(&limiter), limiter.available()), (1, 4));
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
    assert_eq!(bytes[0], 496);
}
