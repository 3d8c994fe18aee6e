//! Several rules together: one decision, all or none.

mod any;
mod parts;
mod quota;

use tollgate::{ManualClock, Policy, RateLimiter};

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}
