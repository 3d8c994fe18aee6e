//! Callers that enter ahead of others of their process.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{Acquire, ManualClock, Rate, SmoothBursty};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<SmoothBursty, Manual>;
type Caller = Acquire<RedisRateLimiter<SmoothBursty, Manual>>;

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten a second without a burst, its first permit taken.
fn ten_a_second(horizon: Duration) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    clock.advance(MINUTE);
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key());
    let limiter = builder.clock(&clock).horizon(horizon).build();
    assert!(limiter.try_acquire(1).now_or_never().expect("an answer").is_ok());
    (clock, limiter)
}

fn joins(mut caller: Caller) -> Caller {
    assert!((&mut caller).now_or_never().is_none());
    caller
}

fn waited(caller: Caller) -> Duration {
    caller.now_or_never().expect("an answer").expect("a grant").waited()
}

/// Those that are booked come first, and an interval.
#[test]
fn behind_200_batch_tasks_an_interactive_caller_waits_for_the_horizon_and_an_interval_at_most() {
    for (horizon, most) in [(0, 100), (250, 350)] {
        let (clock, limiter) = ten_a_second(ms(horizon));
        let batch: Vec<_> = (0..200).map(|_| joins(limiter.acquire(1))).collect();
        let mut urgent = Vec::new();
        for _ in 0..20 {
            clock.advance(ms(730));
            urgent.push(joins(limiter.acquire(1).ahead_by(MINUTE)));
        }
        clock.advance(MINUTE);
        let slowest = urgent.into_iter().map(waited).max().expect("20 of them");
        assert!(slowest <= ms(most), "{slowest:?} with a horizon of {horizon} ms");
        assert_eq!(batch.into_iter().map(waited).max(), Some(ms(22_000)));
    }
}

#[test]
fn callers_that_leave_while_they_are_asked_for_leave_no_trace() {
    let (clock, limiter) = ten_a_second(ms(250));
    let batch = joins(limiter.acquire(1));
    let urgent: Vec<_> = (1..5).map(|n| joins(limiter.acquire(n).ahead_by(MINUTE))).collect();
    drop(urgent);
    clock.advance(MINUTE);
    assert_eq!(waited(batch), ms(100));
    assert_eq!(limiter.queue_len(), 0);
}

/// Only the first is booked before it is due. When it leaves, a caller ahead with the same cost gets its booking, and one
/// with another cost leaves it to the server. No permit is lost or taken twice.
#[test]
fn bookings_of_callers_that_are_overtaken_stay_theirs_until_they_leave() {
    for (urgent_cost, leaves, expected) in [
        (1, false, [200, 300]),
        (1, true, [100, 200]),
        (2, false, [200, 400]),
        (2, true, [100, 300]),
    ] {
        let (clock, limiter) = ten_a_second(ms(250));
        let mut batch: Vec<_> = (0..5).map(|_| joins(limiter.acquire(1))).collect();
        clock.advance(ms(1));
        let first = joins(limiter.acquire(urgent_cost).ahead_by(MINUTE));
        let second = joins(limiter.acquire(urgent_cost).ahead_by(MINUTE));
        if leaves {
            drop(batch.remove(0));
        }
        clock.advance(MINUTE);
        let since = ms(1);
        assert_eq!([first, second].map(|caller| waited(caller) + since), expected.map(ms));
        let last = batch.into_iter().map(waited).max();
        let permits = 2 * u64::from(urgent_cost) + if leaves { 4 } else { 5 };
        assert_eq!(last, Some(ms(100 * permits)), "{urgent_cost} {leaves}");
        assert_eq!(limiter.queue_len(), 0);
    }
}
