//! More callers than permits.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use tollgate::{Acquire, ManualClock, Policy, Rate, RateLimiter, SmoothBursty, SmoothWarmingUp};

use crate::support::{ms, poll, secs};

const PATIENCE: Duration = Duration::from_secs(5);
const MINUTES: usize = 10;

/// Ten minutes at 5 per second, a caller each 100 ms. Permits granted in each minute.
fn grants_by_minute<P: Policy<Cost = u32>>(
    policy: P,
    join: impl Fn(&RateLimiter<P>) -> Acquire<&tollgate::RateLimiter<P>>,
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

/// A limiter that charges on arrival falls to nothing within 20 s under this load, and stays there.
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
    // In the ten seconds of the ramp it grants 25, half of what it does when warm.
    assert!((270..280).contains(&minutes[0]), "{minutes:?}");
    assert!(minutes[1..].iter().all(|&granted| granted >= 297), "{minutes:?}");
}
