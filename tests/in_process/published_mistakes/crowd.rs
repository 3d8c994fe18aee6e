//! Mistakes in waiting: big requests that starve, lines that freeze, timeouts that are slept out.

use std::time::Duration;

use tollgate::{
    FixedWindow, Gcra, LeakyBucket, Policy, Rate, Same, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, TokenBucket,
};

use super::on_hold;
use crate::support::{ms, outcome, secs};

/// A request for fifty waits behind all permits in use, and one more call comes every 50 ms, twice
/// as often as the rate allows; some callers do not wait, and some do.
#[test]
fn fifty_at_once_are_not_starved_by_small_ones() {
    fn check<P: Policy<Cost = u32>>(policy: P, due: Duration) {
        let (clock, limiter) = on_hold(policy);
        limiter.try_acquire(50).expect("a new limiter grants fifty");
        let big = limiter.reserve(50).expect("a place");
        let mut small = Vec::new();
        let mut passed = 0;
        while clock.elapsed() < secs(7) {
            passed += u32::from(clock.elapsed() < due && limiter.try_acquire(1).is_ok());
            small.push(limiter.reserve(1).expect("a place"));
            clock.advance(ms(50));
        }
        let big = outcome(&mut big.wait()).expect("a grant");
        assert_eq!((passed, big.waited()), (0, due));
    }

    let rate = Rate::per_second(10.0);
    check(SmoothBursty::new(rate), secs(5));
    check(TokenBucket::new(rate, 50), secs(5));
    check(TokenBucket::new(rate, 50).refill_every(secs(1)), secs(5));
    check(Gcra::new(49, 10, secs(1)), secs(5));
    check(LeakyBucket::meter(rate, 50), secs(5));
    check(LeakyBucket::new(rate, 1000), secs(5));
    check(FixedWindow::new(50, secs(5)), secs(5));
    check(SlidingWindowLog::new(50, secs(5)), secs(5));
    check(SlidingWindowCounter::new(50, secs(5), 10), secs(5));
    check(Same((FixedWindow::new(50, secs(5)), FixedWindow::new(60, secs(6)))), secs(6));
    check(Same((TokenBucket::new(rate, 50), SlidingWindowLog::new(100, secs(60)))), secs(5));
}
