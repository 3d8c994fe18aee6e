//! The laws: a function each, over any face.

mod callers;
mod changes;
mod counts;
mod ends;
mod grants;
mod places;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::{Error, Granted, Limiter, ManualClock, Rate, TokenBucket};

pub(crate) use callers::*;
pub(crate) use changes::*;
pub(crate) use counts::*;
pub(crate) use ends::*;
pub(crate) use grants::*;
pub(crate) use places::*;

use super::Face;

/// The time of one permit.
const TENTH: Duration = Duration::from_millis(100);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ten_a_second(burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(10.0), burst)
}

/// A clock that has gone on for an hour, like a server's.
fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(3_600));
    clock
}

/// Ten permits a second, and `burst` that are there.
fn full<F: Face>(burst: u32) -> (ManualClock, impl Limiter<Cost = u32> + 'static) {
    let clock = clock();
    (clock.clone(), F::made(ten_a_second(burst), clock))
}

/// Ten permits a second, and a burst that is taken.
fn empty<F: Face>(burst: u32) -> (ManualClock, impl Limiter<Cost = u32> + 'static) {
    let (clock, limiter) = full::<F>(burst);
    drop(at_once(limiter.try_acquire(burst)).expect("a new limiter is full"));
    (clock, limiter)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn waits<F: Future + Unpin>(future: &mut F) {
    assert!(poll(future).is_pending(), "it need not wait");
}

/// The output of a future that need not wait.
#[track_caller]
fn at_once<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("it waits")
}

/// What was granted to a caller that waits no longer.
#[track_caller]
fn granted<F: Future<Output = Result<T, Error>>, T>(future: F) -> T {
    at_once(future).expect("granted")
}

#[track_caller]
fn is_denied<T>(outcome: Result<T, Error>, retry_after: Duration) {
    match outcome {
        Err(Error::Denied { retry_after: after, .. }) => assert_eq!(after, Some(retry_after)),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("granted"),
    }
}
