//! Several rules together: one decision, all or none.

#[path = "composition/gone.rs"]
mod gone;
#[path = "composition/parts.rs"]
mod parts;
#[path = "composition/quota.rs"]
mod quota;
mod support;

use tollgate::{ManualClock, Policy, RateLimiter};

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}
