//! What does a decision that needs no wait cost, on one thread?
//!
//! The floor is one reading of the clock and one uncontended compare-exchange: what any exact decision must at
//! least do.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::limiters::{
    bursty, exhausted, governor, governor_exhausted, leaky_bucket_exhausted, leaky_bucket_full,
    ratelimit_exhausted, ratelimit_full, throttle_net_exhausted, throttle_net_full,
    throttle_net_two, two,
};
use crate::measure::{Case, against_floor, runtime};

const CALLS: u32 = 20_000;
const NANOSECOND: Duration = Duration::from_nanos(1);

pub fn floor() -> Case {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    Case::new("floor", (clock, origin, AtomicU64::new(0)), |(clock, origin, word)| {
        let now = clock.delta_as_nanos(*origin, clock.raw());
        let old = word.load(Ordering::Acquire);
        word.compare_exchange(old, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    })
}

pub fn run() {
    let runtime = runtime();
    let _context = runtime.enter();
    against_floor(cases(), CALLS);
}

/// `try_acquire` and what others call it, and `acquire(1).await` when nothing must be waited for.
fn cases() -> Vec<Case> {
    vec![
        floor(),
        Case::new("tollgate/granted", bursty(), |it| it.try_acquire(1).is_ok()),
        Case::new("tollgate/refused", exhausted(), |it| it.try_acquire(1).is_err()),
        Case::new("governor/granted", governor(NANOSECOND, u32::MAX), |it| it.check().is_ok()),
        Case::new("governor/refused", governor_exhausted(), |it| it.check().is_err()),
        Case::new("leaky-bucket/granted", leaky_bucket_full(), |it| it.try_acquire(1)),
        Case::new("leaky-bucket/refused", leaky_bucket_exhausted(), |it| !it.try_acquire(1)),
        Case::new("ratelimit/granted", ratelimit_full(), |it| it.try_wait().is_ok()),
        Case::new("ratelimit/refused", ratelimit_exhausted(), |it| it.try_wait().is_err()),
        Case::new("throttle-net/granted", throttle_net_full(), |it| it.try_acquire()),
        Case::new("throttle-net/refused", throttle_net_exhausted(), |it| !it.try_acquire()),
        Case::new("Semaphore/granted", Semaphore::new(1), |it| it.try_acquire().is_ok()),
        Case::new("Semaphore/refused", Semaphore::new(0), |it| it.try_acquire().is_err()),
        Case::new("tollgate/awaited", bursty(), |it| ready(it.acquire(1))),
        Case::new("governor/awaited", governor(NANOSECOND, u32::MAX), |it| ready(it.until_ready())),
        Case::new("leaky-bucket/awaited", leaky_bucket_full(), |it| ready(it.acquire_one())),
        Case::new("throttle-net/awaited", throttle_net_full(), |it| ready(it.acquire())),
        Case::new("Semaphore/awaited", Semaphore::new(1), |it| ready(it.acquire())),
        Case::new("tollgate/two limits", two(), |it| it.try_acquire(1).is_ok()),
        Case::new("throttle-net/two limits", throttle_net_two(), |it| it.try_acquire()),
    ]
}

fn ready<F: Future>(future: F) -> bool {
    matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}
