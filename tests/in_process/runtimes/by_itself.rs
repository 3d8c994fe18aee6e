//! A manual clock that waiting advances, with several waiters at once: each advances it for all.

use std::thread;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

use crate::support::{Limiter, finishes, ms};

fn self_moving() -> (ManualClock, Limiter) {
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::new(Rate::per_second(5.0));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

#[test]
fn tasks_on_one_thread_are_served_in_order_and_the_clock_shows_the_sum() {
    finishes(|| {
        let (clock, limiter) = self_moving();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for task in 0..50 {
                let limiter = limiter.clone();
                tasks.spawn(async move {
                    limiter.acquire(1).await.expect("a grant");
                    task
                });
            }
            for task in 0..50 {
                assert_eq!(tasks.join_next().await.expect("a task").expect("no panic"), task);
            }
        });
        assert_eq!(clock.elapsed(), ms(200) * 49);
    });
}

#[test]
fn tasks_on_several_threads_move_the_clock_no_further_than_one_would() {
    finishes(|| {
        let (clock, limiter) = self_moving();
        let runtime = Builder::new_multi_thread().worker_threads(4).build().expect("a runtime");
        let tasks: Vec<_> = (0..200).map(|_| runtime.spawn(limiter.acquire_owned(1))).collect();
        for task in tasks {
            runtime.block_on(task).expect("no panic").expect("a grant");
        }
        assert_eq!(clock.elapsed(), ms(200) * 199);
        assert_eq!(limiter.stats().granted, 200);
    });
}

#[test]
fn threads_move_the_clock_no_further_than_one_would() {
    finishes(|| {
        let (clock, limiter) = self_moving();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        limiter.blocking_acquire(1).expect("a grant");
                    }
                });
            }
        });
        assert_eq!(clock.elapsed(), ms(200) * 199);
    });
}

#[test]
fn two_limiters_on_one_clock_are_moved_by_either() {
    finishes(|| {
        let (clock, fast) = self_moving();
        let slow = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1.0)), clock.clone());
        fast.blocking_acquire(1).expect("a grant");
        slow.blocking_acquire(1).expect("a grant");
        let waiting = fast.reserve(1).expect("a place");
        // On the way to a second it comes by 200 ms, where the reservation is due.
        slow.blocking_acquire(1).expect("a grant");
        assert_eq!(clock.elapsed(), ms(1000));
        assert_eq!(waiting.blocking_wait().expect("a grant").waited(), ms(200));
        assert_eq!(fast.available(), 3);
    });
}
