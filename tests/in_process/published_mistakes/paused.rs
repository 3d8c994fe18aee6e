//! Mistakes with clocks: tokio's, which is not looked at, and timers that are late.

use std::time::Duration;

use tollgate::{
    Clock, FixedWindow, Gcra, InFlight, LeakyBucket, Policy, Rate, RateLimiter, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use crate::support::{finishes, ms, paused, secs};

/// Twenty-five calls, five at once and five a minute.
#[test]
fn tokios_paused_clock_is_honoured() {
    fn took<P: Policy<Cost = u32>>(policy: P) -> Duration {
        finishes(|| {
            paused().block_on(async {
                let limiter = RateLimiter::with_clock(policy, Clock::tokio());
                let start = tokio::time::Instant::now();
                for _ in 0..25 {
                    limiter.acquire(1).await.expect("a grant");
                }
                start.elapsed()
            })
        })
    }

    let (rate, minute) = (Rate::per_minute(5.0), secs(60));
    assert_eq!(took(TokenBucket::new(rate, 5)), secs(240));
    assert_eq!(took(TokenBucket::new(rate, 5).refill_every(minute)), secs(240));
    assert_eq!(took(Gcra::new(4, 5, minute)), secs(240));
    assert_eq!(took(LeakyBucket::meter(rate, 5)), secs(240));
    assert_eq!(took(FixedWindow::new(5, minute)), secs(240));
    assert_eq!(took(SlidingWindowLog::new(5, minute)), secs(240));
    assert_eq!(took(SlidingWindowCounter::new(5, minute, 10)), secs(240));
    assert_eq!(took([FixedWindow::new(5, minute), FixedWindow::new(10, minute * 3)]), secs(360));
    // Prepaid, with nothing stored, and a queue: one each 12 s from the first.
    assert_eq!(took(SmoothBursty::new(rate)), secs(288));
    assert_eq!(took(LeakyBucket::new(rate, 5)), secs(288));
}

/// Time that is moved by hand while a place in flight is taken.
#[test]
fn tokios_paused_clock_ends_the_wait_for_a_place_in_flight() {
    let (took, retry_after) = finishes(|| {
        paused().block_on(async {
            let limiter = RateLimiter::with_clock(InFlight::new(1), Clock::tokio());
            let _out = limiter.try_acquire(1).expect("free");
            let start = tokio::time::Instant::now();
            let error = limiter.try_acquire_timeout(1, secs(3600)).await.expect_err("taken");
            (start.elapsed(), error.retry_after())
        })
    });
    assert_eq!((took, retry_after), (secs(3600), None));
}

/// A timer that ticks each millisecond is late by 0.7 ms at each grant, and each caller comes when the
/// one before it has been woken: half the rate, if each wait began when the caller comes.
#[test]
fn one_per_millisecond_runs_at_a_thousand_a_second() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let took = finishes(|| {
            paused().block_on(async {
                tokio::time::advance(Duration::from_micros(300)).await;
                let limiter = RateLimiter::with_clock(policy, Clock::tokio());
                let start = tokio::time::Instant::now();
                for _ in 0..=1000 {
                    limiter.acquire(1).await.expect("a grant");
                }
                start.elapsed()
            })
        });
        // The last one is woken a tick late.
        assert!((ms(1000)..=ms(1001)).contains(&took), "{took:?}");
    }

    let rate = Rate::every(ms(1));
    check(SmoothBursty::new(rate).max_burst(Duration::ZERO));
    check(TokenBucket::new(rate, 1));
    check(Gcra::new(0, 1, ms(1)));
    // Room for the one that is being served and the one that comes meanwhile.
    check(LeakyBucket::new(rate, 2));
    check(LeakyBucket::meter(rate, 1));
    check([TokenBucket::new(rate, 1), TokenBucket::new(Rate::per_second(2000.0), 10)]);
}

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
