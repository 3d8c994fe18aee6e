//! `Clock::system()` in all places. These wait in real time, for a short while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Rate, RateLimiter, SmoothBursty};

use crate::support::{block_on, finishes, paused, until};

const INTERVAL: Duration = Duration::from_millis(30);

fn limiter() -> RateLimiter<SmoothBursty> {
    RateLimiter::new(SmoothBursty::new(Rate::every(INTERVAL)))
}

/// Counts the polls of a future.
struct Polls<F>(F, u32);

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = (F::Output, u32);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.1 += 1;
        let polls = self.1;
        Pin::new(&mut self.0).poll(context).map(|output| (output, polls))
    }
}

/// Acquires that wait: not too short, and not by spinning.
async fn some_waits() {
    let start = Instant::now();
    let limiter = limiter();
    limiter.acquire(1).await.expect("a grant");
    let mut waits = 0;
    for intervals in 1..=3 {
        let (result, polls) = Polls(limiter.acquire(1), 0).await;
        assert!(start.elapsed() >= INTERVAL * intervals, "early: {:?}", start.elapsed());
        // Once to join and once when it is granted; only once if this thread was delayed so long
        // that no wait was needed.
        let waited = !result.expect("a grant").waited().is_zero();
        assert_eq!(polls, 1 + u32::from(waited));
        waits += u32::from(waited);
    }
    assert!(waits > 0);
}

#[test]
fn without_a_runtime() {
    finishes(|| block_on(some_waits()));
}

#[test]
fn in_a_paused_runtime_it_goes_on_in_real_time_and_neither_spins_nor_grants_early() {
    finishes(|| {
        paused().block_on(async {
            let start = tokio::time::Instant::now();
            some_waits().await;
            // And it leaves paused time alone.
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    });
}

#[test]
fn in_a_runtime_with_several_threads() {
    finishes(|| {
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        runtime.block_on(runtime.spawn(some_waits())).expect("no panic");
    });
}

/// The thread sleeps for an hour and must be woken.
#[test]
fn a_refund_moves_waiters_forward() {
    finishes(|| {
        let start = Instant::now();
        let limiter = limiter();
        let mut grant = limiter.try_acquire(100_000).expect("a new limiter grants at once");
        let waiter = thread::spawn({
            let limiter = limiter.clone();
            move || limiter.blocking_acquire(1).map(drop)
        });
        until(|| limiter.queue_len() == 1);
        grant.settle(1).expect("less");
        waiter.join().expect("no panic").expect("a grant");
        assert!(start.elapsed() >= INTERVAL);
    });
}

/// The alarm of one limiter is set for later than that of another.
#[test]
fn a_short_wait_is_not_held_up_by_a_long_one() {
    finishes(|| {
        let hourly = RateLimiter::new(SmoothBursty::new(Rate::per_hour(1.0)));
        hourly.try_acquire(1).expect("a new limiter grants at once");
        let _waiting = hourly.reserve(1).expect("a place");
        let start = Instant::now();
        let limiter = limiter();
        limiter.blocking_acquire(1).expect("a grant");
        limiter.blocking_acquire(1).expect("a grant");
        assert!(start.elapsed() >= INTERVAL);
        assert_eq!(hourly.queue_len(), 1);
    });
}
