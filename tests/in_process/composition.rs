//! Several rules together: one decision, all or none.

mod any;
mod parts;
mod quota;

use std::time::Duration;

use futures::FutureExt;
use tollgate::{Clock, InFlight, ManualClock, Policy, Rate, RateLimiter, Same, SmoothBursty};

use crate::support::{is_waiting, outcome};

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// A thousand a second, evenly, with places in flight beside them were 810: a free place counted as ready now, so the
/// lateness of each alarm was lost.
#[tokio::test(start_paused = true)]
async fn places_in_flight_beside_a_rate_lose_nothing_when_alarms_are_late() {
    let evenly = SmoothBursty::evenly_spaced(Rate::per_second(1_000.0));
    let limiter = RateLimiter::with_clock(Same((evenly, InFlight::new(100))), Clock::tokio());
    let _places = limiter.try_acquire(1).expect("the first");
    let mut waiters = [(); 4].map(|()| limiter.acquire(1));
    assert!(waiters.iter_mut().all(is_waiting));
    let mut waits = Vec::new();
    let mut held = Vec::new();
    for waiter in &mut waiters {
        // No turn for the task that sounds the alarm: the look is the first to see that the permit is due.
        let _ = Box::pin(tokio::time::advance(us(1_100))).now_or_never();
        let _ = limiter.available();
        let grant = outcome(waiter).expect("due");
        waits.push(grant.waited());
        held.push(grant);
    }
    assert_eq!(waits, [1_000, 2_000, 3_000, 4_000].map(us));
}
