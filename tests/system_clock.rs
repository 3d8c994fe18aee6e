//! The only tests that measure real time: the asked rate, and the clock itself.

use std::time::{Duration, Instant};

use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

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
    // The tail of the last grant's burst is nothing here; the clocks are the same to microseconds.
    assert!(took > expected * 0.9999, "{took} s for {expected} s: too fast");
    assert!(took < expected * 3.0, "{took} s for {expected} s: too slow");
}

/// Found on a busy machine: the processor's counter, calibrated once, was 0.08 % fast for good.
#[test]
fn the_system_clock_does_not_drift_away_from_the_operating_systems() {
    let clock = Clock::system();
    let both = || (clock.now(), Instant::now());
    // A comparison may be interrupted; the best of some is not.
    let (start, real_start) = both();
    std::thread::sleep(Duration::from_millis(300));
    let apart = (0..100).map(|_| {
        let (now, real) = both();
        now.since(start).abs_diff(real - real_start)
    });
    let apart = apart.min().expect("some");
    // 0.08 % of 300 ms are 240 us.
    assert!(apart < Duration::from_micros(60), "{apart:?} apart after 300 ms");
}
