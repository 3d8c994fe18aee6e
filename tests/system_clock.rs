//! The only test that measures real time against the asked rate.

use std::time::{Duration, Instant};

use tollgate::{Rate, RateLimiter, SmoothBursty};

/// Over a second at 200 per second. The upper bound is the limiter's promise and holds on the
/// busiest machine; the lower one leaves room for a machine that stalls.
#[test]
fn the_system_clock_keeps_the_asked_rate() {
    const RATE: f64 = 200.0;
    const CALLS: u32 = 201;
    let policy = SmoothBursty::new(Rate::per_second(RATE)).max_burst(Duration::from_millis(20));
    let limiter = RateLimiter::new(policy);
    limiter.blocking_acquire(1).expect("granted");
    let start = Instant::now();
    for _ in 1..CALLS {
        limiter.blocking_acquire(1).expect("granted");
    }
    let took = start.elapsed().as_secs_f64();
    let expected = f64::from(CALLS - 1) / RATE;
    // Two clocks: half a per mille for what they differ.
    assert!(took > expected * 0.9995, "{took} s for {expected} s: too fast");
    assert!(took < expected * 3.0, "{took} s for {expected} s: too slow");
}
