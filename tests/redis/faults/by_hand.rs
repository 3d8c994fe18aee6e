//! Orders of events that cannot be forced on a real server: requests are sent and answered when a
//! test says so.

mod ahead;
mod places;
mod reach;
mod refunds;
mod replies;
mod retries;
mod shares;
mod tickets;

use futures::future::FutureExt;
use tollgate::redis::{RedisRateLimiter, StoreError, Unavailable};
use tollgate::{Acquire, InFlight, ManualClock, SmoothBursty};

use super::wires::{Hand, told};
use super::{KEY, Limiter, builder, bursty, ms};

pub(super) type Call = Acquire<RedisRateLimiter<SmoothBursty, Hand>>;

/// A limiter at this rate, which books up to three quarters of a second ahead.
fn limiter(per_second: f64, clock: &ManualClock) -> (Limiter<Hand>, Hand) {
    let hand = Hand::default();
    let builder = builder(bursty(per_second), hand.clone()).horizon(ms(1_000));
    (builder.clock(clock).build(), hand)
}

/// A limiter of this number of places in flight.
pub(super) fn places(most: u32, clock: &ManualClock) -> (RedisRateLimiter<InFlight, Hand>, Hand) {
    let hand = Hand::default();
    let builder = RedisRateLimiter::builder(InFlight::new(most), hand.clone(), KEY);
    (builder.clock(clock).build(), hand)
}

/// In a reply: due in `millis`.
fn booked(millis: i64) -> i64 {
    millis * 4_000
}

/// In a reply: due in `millis`, which is beyond the horizon.
fn later(millis: i64) -> i64 {
    millis * 4_000 + 1
}

/// A caller that waits now.
pub(super) fn joins(mut call: Call) -> Call {
    assert!((&mut call).now_or_never().is_none());
    call
}

/// The callers of `join` are in one request, because another is under way when they come.
pub(super) fn in_one_request<R>(
    limiter: &Limiter<Hand>,
    hand: &Hand,
    join: impl FnOnce() -> R,
) -> R {
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let callers = join();
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    assert!(quota.now_or_never().is_some());
    callers
}

pub(super) fn refused() -> Result<Vec<f64>, StoreError> {
    Err(StoreError::refused("connection refused"))
}

/// A limiter whose Redis has refused for `millis`, and the caller that has waited for it.
pub(super) fn refused_for(
    millis: u64,
    unavailable: Unavailable<SmoothBursty>,
) -> (Limiter<Hand>, Call) {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(unavailable).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    clock.advance(ms(millis));
    hand.answer(refused());
    (limiter, caller)
}

pub(super) fn silence() -> Result<Vec<f64>, StoreError> {
    Err(StoreError::lost("no answer"))
}
