//! First come, first served.

use std::thread;
use std::time::Duration;

use tollgate::{Acquire, ManualClock, RateLimiter, Reservation, SmoothBursty};

use crate::support::bucket::Bucket;
use crate::support::wakers::Count;
use crate::support::{busy, finishes, is_waiting, ms, outcome, poll_with, secs, until, waited};

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
fn only_the_waker_of_the_latest_poll_is_called() {
    let (clock, limiter) = busy(5.0);
    let ((old_calls, old_waker), (new_calls, new_waker)) = (Count::new(), Count::new());
    let mut future = limiter.acquire(1);
    assert!(poll_with(&mut future, &old_waker).is_pending());
    assert!(poll_with(&mut future, &new_waker).is_pending());
    clock.advance(ms(200));
    assert_eq!((old_calls.get(), new_calls.get()), (0, 1));
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
