//! A manual clock that waiting advances, with several waiters at once: each advances it for all.

use std::thread;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tollgate::{InFlight, ManualClock, Rate, RateLimiter, Same, SmoothBursty, TokenBucket};

use crate::support::wakers::Count;
use crate::support::{Limiter, finishes, ms, outcome, poll_with, secs};

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

/// While the time of its grant is unknown a waiter cannot move the clock. When a place comes back it can.
#[test]
fn a_waiter_for_a_place_moves_the_clock_when_the_place_comes_back() {
    let clock = ManualClock::auto_advance();
    let policy = Same((InFlight::new(1), SmoothBursty::new(Rate::per_second(5.0))));
    let limiter = RateLimiter::with_clock(policy, &clock);
    for calls in 1..=3 {
        let held = limiter.try_acquire_timeout(1, ms(200)).blocking_wait().expect("a grant");
        let (woken, waker) = Count::new();
        let mut waiter = limiter.acquire(1);
        assert!(poll_with(&mut waiter, &waker).is_pending());
        assert_eq!((woken.get(), clock.elapsed()), (0, ms(200) * (2 * calls - 2)));
        drop(held);
        assert_eq!(woken.get(), 1, "it does not learn that its time is known");
        outcome(&mut waiter).expect("a grant");
        assert_eq!(clock.elapsed(), ms(200) * (2 * calls - 1));
    }
}

/// A grant behind the clock's end cannot be waited for, until a change brings it near.
#[test]
fn a_waiter_beyond_the_end_of_the_clock_moves_it_when_the_rate_rises() {
    let (clock, day) = (ManualClock::auto_advance(), secs(86_400));
    clock.advance(day * 365 * 200);
    let bucket = TokenBucket::new(Rate::every(day), 50_000);
    let limiter = RateLimiter::with_clock(bucket, &clock);
    limiter.try_acquire(50_000).expect("a new bucket is full");
    let before = clock.elapsed();
    let (woken, waker) = Count::new();
    let mut waiter = limiter.acquire(50_000);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    assert!(poll_with(&mut waiter, &waker).is_pending());
    assert_eq!((woken.get(), clock.elapsed()), (0, before), "it would spin");
    limiter.set_rate(Rate::per_second(1_000.0));
    assert_eq!(woken.get(), 1, "it does not learn that its time has come near");
    assert_eq!(outcome(&mut waiter).expect("a grant").waited(), secs(50));
}

#[test]
fn tasks_that_take_turns_at_one_place_move_the_clock_on() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let policy = Same((InFlight::new(1), SmoothBursty::new(Rate::per_second(5.0))));
        let limiter = RateLimiter::with_clock(policy, &clock);
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                runtime.spawn(async move {
                    let _held = limiter.acquire(1).await.expect("a grant");
                    tokio::task::yield_now().await;
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).expect("no panic");
        }
        assert_eq!(clock.elapsed(), ms(200) * 49);
    });
}
