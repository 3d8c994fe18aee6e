//! Places in flight: given back exactly once, however a call ends, and to whoever is first in line.

#[path = "in_flight/changes.rs"]
mod changes;
#[path = "in_flight/given_back.rs"]
mod given_back;
mod support;
#[path = "in_flight/waiting.rs"]
mod waiting;

use tollgate::{InFlight, ManualClock, RateLimiter};

fn at_most(max: u32) -> (ManualClock, RateLimiter<InFlight>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(InFlight::new(max), clock))
}
