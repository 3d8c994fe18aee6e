//! First come, first served.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use tollgate::{Acquire, ManualClock, RateLimiter, Reservation, SmoothBursty};

use crate::support::bucket::Bucket;
use crate::support::wakers::Count;
use crate::support::{
    bursty, busy, finishes, is_waiting, ms, outcome, poll, poll_with, secs, until, waited,
};

/// One of the three ways to wait.
enum Caller {
    Future(Acquire<tollgate::RateLimiter<SmoothBursty>>),
    Thread(thread::JoinHandle<Duration>),
    Reserved(Reservation<tollgate::RateLimiter<SmoothBursty>>),
}

impl Caller {
    fn waited(self) -> Duration {
        match self {
            Self::Future(mut future) => outcome(&mut future).expect("a grant").waited(),
            Self::Thread(thread) => thread.join().expect("a grant"),
            Self::Reserved(reservation) => waited(reservation),
        }
    }
}

#[test]
fn futures_threads_and_reservations_share_one_queue() {
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let mut callers = Vec::new();
        for place in 0..24 {
            let cost = 1 + place % 5;
            let caller = match place % 3 {
                0 => {
                    let mut future = limiter.acquire_owned(cost);
                    assert!(is_waiting(&mut future));
                    Caller::Future(future)
                }
                1 => {
                    let limiter = limiter.clone();
                    Caller::Thread(thread::spawn(move || {
                        limiter.blocking_acquire(cost).expect("a grant").waited()
                    }))
                }
                _ => Caller::Reserved(limiter.reserve(cost).expect("a place")),
            };
            callers.push((caller, clock.elapsed(), cost));
            // The threads come in this order too.
            until(|| limiter.queue_len() == callers.len());
            clock.advance(ms(5));
        }

        clock.advance(secs(60));
        let mut due = ms(200);
        for (place, (caller, arrived, cost)) in callers.into_iter().enumerate() {
            assert_eq!(arrived + caller.waited(), due, "place {place}");
            due += ms(200) * cost;
        }
        assert_eq!(limiter.queue_len(), 0);
    });
}

#[test]
fn a_future_joins_when_it_is_first_polled_and_not_when_it_is_made() {
    let (clock, limiter) = busy(5.0);
    let mut made_first = limiter.acquire(1);
    let mut polled_first = limiter.acquire(1);
    assert!(is_waiting(&mut polled_first));
    assert!(is_waiting(&mut made_first));
    clock.advance(secs(1));
    assert_eq!(outcome(&mut polled_first).expect("a grant").waited(), ms(200));
    assert_eq!(outcome(&mut made_first).expect("a grant").waited(), ms(400));
}

#[test]
fn all_waiters_are_granted_at_their_due_times_however_far_the_clock_is_moved() {
    let (clock, limiter) = busy(5.0);
    let line: Vec<_> = (0..1000).map(|_| limiter.reserve(1).expect("a place")).collect();
    clock.advance(secs(3600));
    for (place, reservation) in (1..).zip(line) {
        assert_eq!(waited(reservation), ms(200) * place);
    }
}

#[test]
fn no_waiter_is_granted_a_nanosecond_early() {
    let (clock, limiter) = busy(5.0);
    let mut future = limiter.acquire(1);
    assert!(is_waiting(&mut future));
    clock.advance(ms(200) - Duration::from_nanos(1));
    assert!(is_waiting(&mut future));
    clock.advance(Duration::from_nanos(1));
    assert!(!is_waiting(&mut future));
}

#[test]
fn polling_often_changes_nothing() {
    let (clock, limiter) = busy(5.0);
    let mut first = limiter.acquire(1);
    let mut second = limiter.acquire(1);
    for _ in 0..190 {
        clock.advance(ms(1));
        assert!(is_waiting(&mut first) && is_waiting(&mut second));
    }
    clock.advance(secs(1));
    // Both arrived at 1 ms, with the first poll.
    assert_eq!(outcome(&mut first).expect("a grant").waited(), ms(199));
    assert_eq!(outcome(&mut second).expect("a grant").waited(), ms(399));
}

#[test]
fn a_waker_is_called_once_and_only_when_its_caller_is_granted() {
    let (clock, limiter) = busy(5.0);
    let ((first_calls, first_waker), (second_calls, second_waker)) = (Count::new(), Count::new());
    let (mut first, mut second) = (limiter.acquire(1), limiter.acquire(1));
    assert!(poll_with(&mut first, &first_waker).is_pending());
    assert!(poll_with(&mut second, &second_waker).is_pending());
    let mut calls = Vec::new();
    for _ in 0..5 {
        clock.advance(ms(100));
        calls.push((first_calls.get(), second_calls.get()));
    }
    assert_eq!(calls, [(0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]);
}

#[test]
fn only_the_waker_of_the_latest_poll_is_called() {
    let (clock, limiter) = busy(5.0);
    let ((old_calls, old_waker), (new_calls, new_waker)) = (Count::new(), Count::new());
    let mut future = limiter.acquire(1);
    assert!(poll_with(&mut future, &old_waker).is_pending());
    assert!(poll_with(&mut future, &new_waker).is_pending());
    clock.advance(ms(200));
    assert_eq!((old_calls.get(), new_calls.get()), (0, 1));
}

#[test]
fn try_acquire_does_not_overtake_the_queue() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 10 }, clock.clone());
    let big = limiter.reserve(5).expect("a place");
    clock.advance(ms(300));
    // Three permits are available, but they belong to the first waiter.
    assert_eq!(limiter.available(), 0);
    let error = limiter.try_acquire(1).expect_err("a line");
    assert_eq!(error.retry_after(), Some(ms(300)));
    assert!(is_waiting(&mut limiter.acquire(1)));
    clock.advance(ms(200));
    assert_eq!(waited(big), ms(500));
    clock.advance(ms(100));
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn try_acquire_at_the_due_time_comes_after_the_waiter() {
    let (clock, limiter) = busy(5.0);
    let reservation = limiter.reserve(1).expect("a place");
    clock.advance(ms(200));
    let error = limiter.try_acquire(1).expect_err("the permit was waited for");
    assert_eq!(error.retry_after(), Some(ms(200)));
    assert_eq!(waited(reservation), ms(200));
}

/// If a free permit went to any call that came then, the large request would never see fifty.
#[test]
fn acquire_50_is_not_starved_by_a_stream_of_acquire_1() {
    let clock = ManualClock::new();
    let policy = Bucket { interval: ms(100), capacity: 50 };
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        before.push(limiter.reserve(1).expect("a place"));
    }
    let big = limiter.reserve(50).expect("a place");
    // Twice the rate, and none of them gives up.
    for _ in 0..200 {
        behind.push((clock.elapsed(), limiter.reserve(1).expect("a place")));
        clock.advance(ms(50));
    }
    clock.advance(secs(60));
    for (place, reservation) in (1..).zip(before) {
        assert_eq!(waited(reservation), ms(100) * place);
    }
    assert_eq!(waited(big), ms(100) * 60);
    for (place, (arrived, reservation)) in (61..).zip(behind) {
        assert_eq!(arrived + waited(reservation), ms(100) * place);
    }
}

#[test]
fn acquire_50_in_its_turn_is_granted_at_once_and_the_next_one_waits_for_it() {
    let (clock, limiter) = busy(5.0);
    let ahead = limiter.reserve(1).expect("a place");
    let big = limiter.reserve(50).expect("a place");
    let next = limiter.reserve(1).expect("a place");
    clock.advance(secs(60));
    assert_eq!([waited(ahead), waited(big), waited(next)], [ms(200), ms(400), ms(10_400)]);
}

#[test]
fn tasks_of_one_executor_are_served_in_the_order_of_their_first_polls() {
    use futures::stream::{FuturesUnordered, StreamExt};

    let (clock, limiter) = bursty(10.0);
    let limiter = &limiter;
    let mut tasks: FuturesUnordered<_> = (0..100)
        .map(|task| async move {
            limiter.acquire(1).await.expect("a grant");
            task
        })
        .collect();
    let mut order = Vec::new();
    // It polls only those that were woken, so this sees that they are.
    while let Poll::Ready(Some(task)) = poll(&mut tasks.next()) {
        order.push(task);
        clock.advance(ms(100));
    }
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    assert_eq!(clock.elapsed(), secs(10));
}
