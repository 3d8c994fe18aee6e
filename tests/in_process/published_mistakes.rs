//! Mistakes of published limiters, each as a test by its name.
//!
//! Not here, because they are shown elsewhere:
//! - *zero warm-up removes the limit*: `a_warm_up_or_a_cold_factor_that_is_none_panics` and
//!   `a_warm_up_of_a_nanosecond_is_the_steady_rate` (`bad_input/policies.rs`); windows, periods and
//!   capacities of nothing: `bad_input/family.rs`;
//! - *callers that give up leave holes*, *two hundred across an edge*, *a chain that charges in part*, *a rate change that
//!   credits the past*, *a timeout that is slept out*: laws 4, 1, 9, 2 of each rule (`tests/laws`);
//! - the first waiter that is not polled, for [`tollgate::SmoothBursty`] and with runtimes that end:
//!   `tests/faces/laws/places.rs`, `runtimes/several.rs`;
//! - tokio's paused clock, method by method: `runtimes/paused.rs`.
//!
//! Those that need Redis (a fixed EXPIRE, clients' clocks, undeclared keys) are in `tests/redis_laws/keys.rs` and
//! `tests/redis/faults`.

mod arithmetic;
mod paused;

use tollgate::{ManualClock, Policy, RateLimiter};

/// A limiter on a manual clock.
fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}
