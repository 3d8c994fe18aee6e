//! More callers than permits, and a process that was stopped.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tollgate::{
    Acquire, Clock, ManualClock, Policy, Rate, RateLimiter, Reservation, SmoothBursty,
    SmoothWarmingUp,
};

use crate::support::{finishes, ms, poll, secs, waited};

const PATIENCE: Duration = Duration::from_secs(5);
const MINUTES: usize = 10;

/// Ten minutes at 5 per second, a caller each 100 ms. Permits granted in each minute.
fn grants_by_minute<P: Policy<Cost = u32>>(
    policy: P,
    join: impl Fn(&RateLimiter<P>) -> Acquire<'_, P>,
) -> Vec<usize> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    let mut minutes = vec![0; MINUTES];
    let mut callers = VecDeque::new();
    while clock.elapsed() < secs(60) * u32::try_from(MINUTES).expect("few") {
        let now = clock.elapsed();
        callers.push_back((now, join(&limiter)));
        callers.retain_mut(|(arrived, caller)| match poll(caller) {
            Poll::Pending => now - *arrived < PATIENCE,
            Poll::Ready(Ok(grant)) => {
                let minute = (*arrived + grant.waited()).as_secs() / 60;
                minutes[usize::try_from(minute).expect("few")] += 1;
                false
            }
            Poll::Ready(Err(_)) => false,
        });
        clock.advance(ms(100));
    }
    minutes
}

#[track_caller]
fn assert_used(minutes: &[usize]) {
    assert_eq!(minutes.len(), MINUTES);
    assert!(minutes.iter().all(|&granted| (297..=306).contains(&granted)), "{minutes:?}");
}

/// A line that charges on arrival falls to nothing within 20 s of this, and stays there.
#[test]
fn at_twice_the_rate_with_callers_that_give_up_the_whole_rate_is_used() {
    let policy = SmoothBursty::new(Rate::per_second(5.0));
    assert_used(&grants_by_minute(policy, |limiter| limiter.acquire(1)));
}

#[test]
fn without_a_burst_too() {
    let policy = SmoothBursty::new(Rate::per_second(5.0)).max_burst(Duration::ZERO);
    assert_used(&grants_by_minute(policy, |limiter| limiter.acquire(1)));
}

#[test]
fn at_twice_the_rate_with_timeouts_the_whole_rate_is_used() {
    let policy = SmoothBursty::new(Rate::per_second(5.0));
    let minutes = grants_by_minute(policy, |limiter| limiter.try_acquire_timeout(1, PATIENCE));
    assert_used(&minutes);
}

#[test]
fn at_twice_the_rate_a_warm_limiter_uses_the_whole_rate() {
    let policy = SmoothWarmingUp::new(Rate::per_second(5.0), secs(10));
    let minutes = grants_by_minute(policy, |limiter| limiter.acquire(1));
    // The ramp costs half a warm-up more than what it grants.
    assert!((270..297).contains(&minutes[0]), "{minutes:?}");
    assert!(minutes[1..].iter().all(|&granted| granted >= 297), "{minutes:?}");
}

/// 300 callers at 5 per second, and a minute in which the process does not run. A manual clock stops
/// at each due time; `tokio::time::advance` does not, so the alarm goes off a minute late.
async fn granted_right_after_a_stop(policy: SmoothBursty) -> usize {
    let limiter = RateLimiter::with_clock(policy, Clock::tokio());
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let line: Vec<Reservation<_>> =
        (0..300).map(|_| limiter.reserve(1).expect("a place")).collect();
    tokio::time::advance(secs(60)).await;
    let granted = 300 - limiter.queue_len();

    // And the line goes on from there at its rate.
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
fn a_process_that_was_stopped_for_a_minute_does_not_let_its_line_out_at_once() {
    let granted = finishes(|| {
        paused(async {
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
        paused(async {
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

fn paused<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}
