//! Places in flight are given back exactly once, however a call ends, and go to the head of the
//! queue.

mod given_back;
mod waiting;

use tollgate::{InFlight, ManualClock, RateLimiter};

fn at_most(max: u32) -> (ManualClock, RateLimiter<InFlight>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(InFlight::new(max), clock))
}
