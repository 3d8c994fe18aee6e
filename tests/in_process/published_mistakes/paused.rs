//! Mistakes with clocks: tokio's, which is not looked at, and timers that are late.

use std::time::Duration;

use tollgate::{Clock, Policy, Rate, RateLimiter, Same, SlidingWindowLog, TokenBucket};

use crate::support::{finishes, ms, paused};

/// The rules that look at the very times of grants never let one pass early to make good for a late
/// timer. That costs throughput, as documented at `Policy::catch_up`, but not the limit.
#[test]
fn late_timers_never_let_a_window_exceed_its_limit() {
    fn grants<P: Policy<Cost = u32>>(policy: P) -> Vec<Duration> {
        finishes(|| {
            paused().block_on(async {
                tokio::time::advance(Duration::from_micros(300)).await;
                let limiter = RateLimiter::with_clock(policy, Clock::tokio());
                let start = tokio::time::Instant::now();
                let mut grants = Vec::new();
                for _ in 0..200 {
                    limiter.acquire(1).await.expect("a grant");
                    grants.push(start.elapsed());
                }
                grants
            })
        })
    }

    let (limit, window) = (3, Duration::from_micros(2500));
    for grants in [
        grants(SlidingWindowLog::new(3, window)),
        grants(Same((TokenBucket::new(Rate::every(ms(1)), 50), SlidingWindowLog::new(3, window)))),
    ] {
        for span in grants.windows(limit + 1) {
            assert!(span[limit] - span[0] >= window, "{span:?}");
        }
    }
}
