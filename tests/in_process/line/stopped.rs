//! Alarms that go off late. A manual clock stops at each due time; `tokio::time::advance` does not.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tollgate::{Clock, Rate, RateLimiter, Reservation, SmoothBursty};

use crate::support::{finishes, ms, paused, secs, waited};

/// 300 callers at 5 per second, and a minute in which the process does not run: how many are granted
/// when it goes on.
async fn granted_right_after_a_stop(policy: SmoothBursty) -> usize {
    let limiter = RateLimiter::with_clock(policy, Clock::tokio());
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let line: Vec<Reservation<_>> =
        (0..300).map(|_| limiter.reserve(1).expect("a place")).collect();
    tokio::time::advance(secs(60)).await;
    let granted = 300 - limiter.queue_len();

    // The queue then continues at its rate.
    let start = tokio::time::Instant::now();
    let mut rest: FuturesUnordered<_> = line.into_iter().map(Reservation::wait).collect();
    while let Some(result) = rest.next().await {
        result.expect("a grant");
    }
    let left = u32::try_from(300 - granted).expect("few");
    let took = start.elapsed();
    assert!(took > ms(200) * (left - 1) && took <= ms(200) * left, "{took:?} for {left}");
    granted
}

#[test]
fn a_process_that_was_stopped_for_a_minute_does_not_release_its_queue_at_once() {
    let granted = finishes(|| {
        paused().block_on(async {
            let policy = SmoothBursty::new(Rate::per_second(5.0));
            let with_a_second_stored = granted_right_after_a_stop(policy.clone()).await;
            let evenly = granted_right_after_a_stop(policy.max_burst(Duration::ZERO)).await;
            (with_a_second_stored, evenly)
        })
    });
    // The burst that any idle limiter grants, and one; not 300.
    assert_eq!(granted, (6, 1));
}

#[test]
fn a_timer_that_is_late_by_a_tick_costs_nothing() {
    let waits = finishes(|| {
        paused().block_on(async {
            let policy = SmoothBursty::new(Rate::per_second(400.0)).max_burst(Duration::ZERO);
            let limiter = RateLimiter::with_clock(policy, Clock::tokio());
            let line: Vec<_> = (0..1000).map(|_| limiter.reserve(1).expect("a place")).collect();
            // 2.5 ms apart; tokio rounds up to 3, 5, 8, 10 ms.
            tokio::time::sleep(secs(5)).await;
            line.into_iter().map(waited).collect::<Vec<_>>()
        })
    });
    let expected: Vec<_> = (0..1000).map(|place| Duration::from_micros(2500) * place).collect();
    assert_eq!(waits, expected);
}
