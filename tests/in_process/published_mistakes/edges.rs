//! Mistakes in counting: windows' edges, clones, chains.

use std::time::Duration;

use tollgate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Policy, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::on_hold;
use crate::support::{ms, secs};

/// A hundred calls at 0.95 s and a hundred at 1.05 s, after a first one at zero: how many of the two
/// hundred pass.
fn around_the_edge<P: Policy<Cost = u32>>(policy: P) -> u32 {
    let (clock, limiter) = on_hold(policy);
    drop(limiter.try_acquire(1));
    clock.advance(ms(950));
    let mut granted = 0;
    let mut grants = Vec::new();
    for _ in 0..2 {
        for _ in 0..100 {
            if let Ok(grant) = limiter.try_acquire(1) {
                granted += 1;
                grants.push(grant);
            }
        }
        clock.advance(ms(100));
    }
    granted
}

/// At 100 a second. In the fixed window that is the rule.
#[test]
fn two_hundred_in_100_ms_across_an_edge_only_in_the_fixed_window() {
    let (limit, second, rate) = (100, secs(1), Rate::per_second(100.0));
    let fixed = FixedWindow::new(limit, second);
    // 99 and 100; with the edges at half seconds all fall into one window.
    assert_eq!(around_the_edge(fixed.clone()), 199);
    assert_eq!(around_the_edge(fixed.clone().aligned(Duration::ZERO)), 199);
    assert_eq!(around_the_edge(fixed.clone().aligned(ms(500))), 100);

    assert_eq!(around_the_edge(SlidingWindowLog::new(limit, second)), 100);
    assert_eq!(around_the_edge(SlidingWindowCounter::new(limit, second, 10)), 100);
    // The capacity, and the permits of 100 ms.
    assert_eq!(around_the_edge(TokenBucket::new(rate, limit)), 110);
    assert_eq!(around_the_edge(TokenBucket::new(rate, limit).refill_every(ms(100))), 110);
    assert_eq!(around_the_edge(Gcra::new(limit - 1, limit, second)), 110);
    assert_eq!(around_the_edge(LeakyBucket::meter(rate, limit)), 110);
    // One at a time.
    assert_eq!(around_the_edge(LeakyBucket::new(rate, limit)), 2);
    // 94 stored, for one of the 95 that came has paid for the first; one on credit, and ten.
    assert_eq!(around_the_edge(SmoothBursty::new(rate)), 105);
    assert!(around_the_edge(SmoothWarmingUp::new(rate, second)) <= 105);
    // All of them are still out.
    assert_eq!(around_the_edge(InFlight::new(limit)), 100);
    assert_eq!(around_the_edge([fixed.clone(), fixed.clone().aligned(ms(500))]), 100);
    assert_eq!(around_the_edge(Same((fixed.clone(), TokenBucket::new(rate, limit)))), 110);
    // Locked out since the hundredth call.
    assert_eq!(around_the_edge(LockOut::new(fixed, second)), 99);
}
