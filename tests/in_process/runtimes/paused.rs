//! `Clock::tokio()` in runtimes whose time is paused: waits take that time, exactly, and no other.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

use crate::support::{finishes, is_waiting, ms, outcome, paused, secs};

fn limiter(rate: Rate) -> RateLimiter<SmoothBursty> {
    RateLimiter::with_clock(SmoothBursty::new(rate), Clock::tokio())
}

#[test]
fn waits_take_paused_time_exactly() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(5.0));
            let start = Instant::now();
            for (n, expected) in [(5, 0), (1, 1000), (1, 1200), (10, 1400), (1, 3400)] {
                limiter.acquire(n).await.expect("a grant");
                assert_eq!(start.elapsed(), ms(expected));
            }
        });
    });
}

/// Tokio's timers have a tick of a millisecond: the wake-up is late by less than that, and the next
/// wait does not begin late because of it.
#[test]
fn waits_of_less_than_a_tick_do_not_add_up_to_more() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::new(3000, secs(1)));
            let start = Instant::now();
            for _ in 0..=30_000 {
                limiter.acquire(1).await.expect("a grant");
            }
            assert_eq!(start.elapsed(), secs(10));
        });
    });
}

#[test]
fn a_timed_acquire_fails_at_once_or_ends_in_time() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(5.0));
            let start = Instant::now();
            limiter.acquire(10).await.expect("a grant");
            let error = limiter.try_acquire_timeout(1, ms(1999)).await.expect_err("too long");
            assert_eq!(error.retry_after(), Some(secs(2)));
            assert_eq!(start.elapsed(), Duration::ZERO);

            let ahead = limiter.reserve(1).expect("a place");
            let mut timed = limiter.try_acquire_timeout(1, secs(3));
            assert!(is_waiting(&mut timed));
            limiter.pause_for(secs(60));
            assert!(timed.await.is_err());
            assert_eq!(start.elapsed(), secs(3));
            ahead.wait().await.expect("a grant");
            assert_eq!(start.elapsed(), secs(60));
        });
    });
}

#[test]
fn a_refund_moves_the_timer_forward() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(1.0));
            let start = Instant::now();
            let mut grant = limiter.acquire(3600).await.expect("a grant");
            let task = tokio::spawn(limiter.acquire_owned(1));
            // Lets the task join, and the timer start.
            tokio::time::sleep(secs(1)).await;
            assert_eq!(limiter.queue_len(), 1);
            grant.settle(10).expect("less");
            task.await.expect("no panic").expect("a grant");
            assert_eq!(start.elapsed(), secs(10));
        });
    });
}

#[test]
fn a_pause_moves_the_timer_back() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(1.0));
            let start = Instant::now();
            limiter.acquire(1).await.expect("a grant");
            let task = tokio::spawn(limiter.acquire_owned(1));
            tokio::time::sleep(ms(500)).await;
            limiter.pause_for(secs(60));
            task.await.expect("no panic").expect("a grant");
            assert_eq!(start.elapsed(), ms(60_500));
        });
    });
}

/// `advance` moves time in one go. Waiters that are due by then are granted at their due times.
#[test]
fn time_can_be_moved_by_hand() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(5.0));
            limiter.acquire(1).await.expect("a grant");
            let mut future = limiter.acquire(1);
            assert!(is_waiting(&mut future));
            tokio::time::advance(ms(199)).await;
            assert!(is_waiting(&mut future));
            tokio::time::advance(ms(1)).await;
            assert_eq!(outcome(&mut future).expect("a grant").waited(), ms(200));
        });
    });
}

/// The blocking calls see paused time as well, but it must be advanced by hand: while a blocking
/// thread runs, time does not advance by itself.
#[test]
fn a_blocking_thread_of_the_runtime_waits_by_paused_time() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_second(5.0));
            limiter.acquire(1).await.expect("a grant");
            let waiter = tokio::task::spawn_blocking({
                let limiter = limiter.clone();
                move || limiter.blocking_acquire(1).map(|grant| grant.waited())
            });
            while limiter.queue_len() == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(ms(200)).await;
            assert_eq!(waiter.await.expect("no panic").expect("a grant"), ms(200));
        });
    });
}

#[test]
fn a_limiter_made_outside_works_inside_and_the_other_way_round() {
    finishes(|| {
        let outside = limiter(Rate::every(ms(10)));
        let inside = paused().block_on(async {
            assert!(outside.acquire(1).await.is_ok());
            assert!(outside.acquire(1).await.is_ok());
            limiter(Rate::every(ms(10)))
        });
        for limiter in [outside, inside] {
            limiter.blocking_acquire(1).expect("a grant");
            limiter.blocking_acquire(1).expect("a grant");
        }
    });
}
