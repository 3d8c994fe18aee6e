//! Code shared by several test programs. Each uses a part of it.
#![allow(dead_code)]

pub(crate) mod bucket;
pub(crate) mod wakers;

use std::pin::Pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{ManualClock, Policy, Rate, RateLimiter, Reservation, SmoothBursty};

pub(crate) type Limiter = RateLimiter<SmoothBursty>;

/// Far more than anything here takes, so that only a hang runs into it.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A limiter with Guava's burst of a second on a clock that stands still.
pub(crate) fn bursty(per_second: f64) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(per_second));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// The same with its first permit taken: the next caller waits.
pub(crate) fn busy(per_second: f64) -> (ManualClock, Limiter) {
    let (clock, limiter) = bursty(per_second);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}

/// [`bursty`] with a bounded queue.
pub(crate) fn bounded(per_second: f64, waiters: usize, permits: u64) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let builder = RateLimiter::builder(SmoothBursty::new(Rate::per_second(per_second)));
    let builder = builder.clock(&clock).max_waiters(waiters).max_queued_permits(permits);
    (clock, builder.build())
}

/// [`busy`] with a bounded queue.
pub(crate) fn busy_bounded(
    per_second: f64,
    waiters: usize,
    permits: u64,
) -> (ManualClock, Limiter) {
    let (clock, limiter) = bounded(per_second, waiters, permits);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}

/// Polls a future with a waker that does nothing.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

pub(crate) fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
    poll(future).is_pending()
}

/// The output of a future that is ready. Panics if it is not.
#[track_caller]
pub(crate) fn outcome<F: Future + Unpin>(future: &mut F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("still waiting"),
    }
}

/// How long a reservation had to wait, which must be over.
#[track_caller]
pub(crate) fn waited<P: Policy>(reservation: Reservation<tollgate::RateLimiter<P>>) -> Duration {
    outcome(&mut reservation.wait()).expect("a grant").waited()
}

/// Runs a future on this thread, which knows of no runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let this = thread::current();
    let waker = wakers::OnWake::waker(move || this.unpark());
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A runtime whose time goes on by itself, and takes none.
pub(crate) fn paused() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

/// Runs `work` on a thread of its own, so that a deadlock fails instead of hanging.
#[track_caller]
pub(crate) fn finishes<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    // The receiver is gone if the work took too long.
    let send = move || _ = done.send(work());
    // Of one type, so that the start of a thread is compiled once.
    let worker = thread::spawn(Box::new(send) as Box<dyn FnOnce() + Send>);
    match result.recv_timeout(LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("still not done after {LIMIT:?}"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("done without a result"),
        },
    }
}

/// Waits until another thread has got as far as `condition`.
#[track_caller]
pub(crate) fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "it did not come to that in {LIMIT:?}");
        thread::yield_now();
    }
}
