//! `Clock::system()` in all places. These wait in real time, for a short while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Rate, RateLimiter, SmoothBursty};

use super::paused::paused;
use crate::support::{block_on, finishes, ms};

const INTERVAL: Duration = Duration::from_millis(30);

fn limiter() -> RateLimiter<SmoothBursty> {
    RateLimiter::new(SmoothBursty::new(Rate::every(INTERVAL)))
}

/// Counts how often a future is polled.
struct Polls<F>(F, u32);

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = (F::Output, u32);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.1 += 1;
        let polls = self.1;
        Pin::new(&mut self.0).poll(context).map(|output| (output, polls))
    }
}

/// Three acquires, of which the second and the third wait: not too short, and not by spinning.
async fn two_waits() {
    let start = Instant::now();
    let limiter = limiter();
    limiter.acquire(1).await.expect("a grant");
    for waits in 1..=2 {
        let (result, polls) = Polls(limiter.acquire(1), 0).await;
        assert!(result.expect("a grant").waited() > Duration::ZERO);
        assert!(start.elapsed() >= INTERVAL * waits, "early: {:?}", start.elapsed());
        // Once to join, once when it is granted.
        assert_eq!(polls, 2);
    }
}

#[test]
fn without_a_runtime() {
    finishes(|| block_on(two_waits()));
}

#[test]
fn in_a_paused_runtime_it_goes_on_in_real_time_and_neither_spins_nor_grants_early() {
    finishes(|| {
        paused().block_on(async {
            let start = tokio::time::Instant::now();
            two_waits().await;
            // And it leaves paused time alone.
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    });
}

#[test]
fn in_a_runtime_without_timers() {
    finishes(|| {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(two_waits());
    });
}

#[test]
fn in_a_runtime_with_several_threads() {
    finishes(|| {
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        runtime.block_on(runtime.spawn(two_waits())).expect("no panic");
    });
}

#[test]
fn many_tasks_on_several_threads_get_the_rate_and_no_more() {
    finishes(|| {
        let runtime = Builder::new_multi_thread().worker_threads(4).build().expect("a runtime");
        let start = Instant::now();
        let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100_000.0)));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let limiter = limiter.clone();
                runtime.spawn(async move {
                    for _ in 0..1000 {
                        limiter.acquire(1).await.expect("a grant");
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).expect("no panic");
        }
        // The first one is for nothing. What is caught up of late alarms is no more than 2 ms.
        assert!(start.elapsed() + ms(2) >= Duration::from_micros(39_990), "{:?}", start.elapsed());
        assert_eq!(limiter.stats().granted, 4000);
    });
}

#[test]
fn a_timed_acquire_ends_in_time() {
    finishes(|| {
        block_on(async {
            let limiter = limiter();
            limiter.acquire(1).await.expect("a grant");
            let _ahead = limiter.reserve(1).expect("a place");
            let start = Instant::now();
            let timed = limiter.try_acquire_timeout(1, INTERVAL * 3);
            let mut timed = std::pin::pin!(timed);
            assert!(crate::support::is_waiting(&mut timed));
            limiter.pause_for(Duration::from_secs(3600));
            assert!(timed.await.is_err());
            assert!(start.elapsed() >= INTERVAL * 3);
        });
    });
}
