//! The blocking methods on plain threads, and tasks on runtimes with several threads.

use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

use crate::support::{finishes, until};

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
