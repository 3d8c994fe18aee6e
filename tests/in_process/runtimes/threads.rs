//! The blocking methods on plain threads, and tasks on runtimes with several threads.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

use crate::support::{block_on, busy, finishes, ms, until};

const INTERVAL: Duration = Duration::from_millis(10);

/// Four threads, each of which takes two: eight permits, seven intervals.
fn four_threads(clock: Clock) {
    let start = Instant::now();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::every(INTERVAL)), clock);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let limiter = limiter.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    limiter.blocking_acquire(1).expect("a grant");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(start.elapsed() >= INTERVAL * 7, "early: {:?}", start.elapsed());
    assert_eq!(limiter.stats().granted, 8);
}

#[test]
fn threads_wait_by_the_systems_clock() {
    finishes(|| four_threads(Clock::system()));
}

#[test]
fn threads_wait_by_tokios_clock_without_a_runtime() {
    finishes(|| four_threads(Clock::tokio()));
}

#[test]
fn futures_wait_by_tokios_clock_without_a_runtime() {
    finishes(|| {
        let start = Instant::now();
        let policy = SmoothBursty::new(Rate::every(INTERVAL));
        let limiter = RateLimiter::with_clock(policy, Clock::tokio());
        block_on(async {
            for _ in 0..4 {
                limiter.acquire(1).await.expect("a grant");
            }
        });
        assert!(start.elapsed() >= INTERVAL * 3);
    });
}

#[test]
fn tasks_on_several_threads_wait_by_tokios_clock() {
    finishes(|| {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        let start = Instant::now();
        let policy = SmoothBursty::new(Rate::every(INTERVAL));
        let limiter = RateLimiter::with_clock(policy, Clock::tokio());
        let tasks: Vec<_> = (0..8).map(|_| runtime.spawn(limiter.acquire_owned(1))).collect();
        for task in tasks {
            runtime.block_on(task).expect("no panic").expect("a grant");
        }
        assert!(start.elapsed() >= INTERVAL * 7);
    });
}

/// The runtime cannot wait, so the thread of the system's clock does. (Tokio's own message on the
/// way there is the panic of the task that tried.)
#[test]
fn tokios_clock_works_in_a_runtime_without_timers() {
    finishes(|| {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let start = Instant::now();
        let policy = SmoothBursty::new(Rate::every(INTERVAL));
        let limiter = RateLimiter::with_clock(policy, Clock::tokio());
        runtime.block_on(async {
            for _ in 0..4 {
                limiter.acquire(1).await.expect("a grant");
            }
        });
        assert!(start.elapsed() >= INTERVAL * 3);
    });
}

#[test]
fn a_blocking_timed_acquire_ends_in_time() {
    finishes(|| {
        for clock in [Clock::system(), Clock::tokio()] {
            let policy = SmoothBursty::new(Rate::every(INTERVAL));
            let limiter = RateLimiter::with_clock(policy, clock);
            limiter.blocking_acquire(1).expect("a grant");
            let _ahead = limiter.reserve(1).expect("a place");
            let start = Instant::now();
            let waiter = thread::spawn({
                let limiter = limiter.clone();
                move || limiter.try_acquire_timeout(1, INTERVAL * 5).blocking_wait().is_err()
            });
            until(|| limiter.queue_len() == 2 || limiter.stats().granted > 2);
            limiter.pause_for(Duration::from_secs(3600));
            let expired = waiter.join().expect("no panic");
            // On a slow machine it may have been granted before the pause.
            assert!(!expired || start.elapsed() >= INTERVAL * 5);
        }
    });
}

#[test]
fn threads_on_a_clock_moved_by_hand_are_woken_as_it_moves() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let waiters: Vec<_> = (1..=8)
            .map(|place| {
                let waiter = thread::spawn({
                    let limiter = limiter.clone();
                    move || limiter.blocking_acquire(1).expect("a grant").waited()
                });
                until(|| limiter.queue_len() == place);
                waiter
            })
            .collect();
        for (place, waiter) in (1..).zip(waiters) {
            assert!(!waiter.is_finished());
            clock.advance(ms(200));
            assert_eq!(waiter.join().expect("no panic"), ms(200) * place);
        }
    });
}
