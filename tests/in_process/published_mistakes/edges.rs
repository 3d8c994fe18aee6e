//! Mistakes in counting: windows' edges, clones, chains.

use std::thread;
use std::time::Duration;

use tollgate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, ManualClock, Policy, Rate,
    RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use super::on_hold;
use crate::support::{finishes, ms, secs};

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

/// Any arrivals: no policy but the fixed window lets more through in any second than it says.
#[test]
fn no_second_holds_more_than_the_rule_says() {
    fn most_in_a_second<P: Policy<Cost = u32>>(policy: P) -> usize {
        let (clock, limiter) = on_hold(policy);
        let mut times = Vec::new();
        // Bursts at odd times, of all that can be had.
        for step in 0..400 {
            let asked = if step % 7 == 0 { 40 } else { step % 3 };
            for _ in 0..asked {
                times.extend(limiter.try_acquire(1).is_ok().then(|| clock.elapsed()));
            }
            clock.advance(ms(23 + step * 37 % 61));
        }
        assert!(times.len() > 150, "{}", times.len());
        let within = |from: Duration| {
            times.iter().filter(|&&time| time >= from && time < from + secs(1)).count()
        };
        times.iter().map(|&from| within(from)).max().unwrap_or(0)
    }

    let (second, rate) = (secs(1), Rate::per_second(20.0));
    assert!(most_in_a_second(FixedWindow::new(20, second)) > 20);
    assert_eq!(most_in_a_second(SlidingWindowLog::new(20, second)), 20);
    let both = [SlidingWindowLog::new(20, second), SlidingWindowLog::new(700, secs(60))];
    assert_eq!(most_in_a_second(both), 20);
    for most in [
        most_in_a_second(TokenBucket::new(rate, 20)),
        most_in_a_second(Gcra::new(19, 20, second)),
        most_in_a_second(LeakyBucket::meter(rate, 20)),
    ] {
        assert!((21..=40).contains(&most), "{most}");
    }
    assert!(most_in_a_second(LeakyBucket::new(rate, 20)) <= 21);
    // Ten tenths can hold a limit, and in the eleventh that a second touches there may be another.
    assert!(most_in_a_second(SlidingWindowCounter::new(20, second, 10)) <= 40);
}

/// Half of the calls by one clone, the rest by others and by their threads.
#[test]
fn the_limit_holds_when_the_limiter_is_cloned() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        finishes(|| {
            let limiter = RateLimiter::with_clock(policy, ManualClock::new());
            let spend = |limiter: &RateLimiter<P>| {
                let mut out = Vec::new();
                while out.len() < 60
                    && let Ok(grant) = limiter.try_acquire(1)
                {
                    out.push(grant.into_owned());
                }
                out
            };
            let mut out = spend(&limiter.clone());
            thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| spend(&limiter.clone()))).collect();
                for thread in threads {
                    out.extend(thread.join().expect("no panic"));
                }
            });
            out.extend(spend(&limiter.clone().clone()));
            assert_eq!(out.len(), 100);
        });
    }

    let rate = Rate::every(secs(86_400));
    check(TokenBucket::new(rate, 100));
    check(TokenBucket::new(rate, 100).refill_every(secs(1)));
    check(Gcra::new(99, 1, secs(86_400)));
    check(LeakyBucket::meter(rate, 100));
    check(FixedWindow::new(100, secs(1)));
    check(SlidingWindowLog::new(100, secs(1)));
    check(SlidingWindowCounter::new(100, secs(1), 10));
    check(InFlight::new(100));
    check(LockOut::new(InFlight::new(100), secs(1)));
    check([FixedWindow::new(100, secs(1)), FixedWindow::new(200, secs(1))]);
    check(Same((InFlight::new(200), TokenBucket::new(rate, 100))));
}

#[test]
fn a_chain_charges_no_part_if_one_part_refuses() {
    let rate = Rate::per_second(10.0);
    let chain = (
        TokenBucket::new(rate, 100),
        SlidingWindowLog::new(100, secs(10)),
        InFlight::new(100),
        FixedWindow::new(3, secs(10)),
    );
    let (clock, limiter) = on_hold(chain);
    drop(limiter.try_acquire((3, 3, 3, 3)).expect("a grant"));
    let before = limiter.quota();
    assert_eq!(before.remaining, (97, 97, 100, 0));
    for _ in 0..1000 {
        let error = limiter.try_acquire((1, 1, 1, 1)).expect_err("the last part is full");
        assert_eq!(
            (error.part().map(tollgate::Part::index), error.retry_after()),
            (Some(3), Some(secs(10)))
        );
        // Too much for one part that comes last, too.
        let error = limiter.try_acquire((1, 1, 1, 4)).expect_err("more than three");
        assert!(matches!(error, Error::ExceedsCapacity(_)), "{error:?}");
        assert_eq!(error.part().map(tollgate::Part::index), Some(3));
    }
    assert_eq!(limiter.quota(), before);
    clock.advance(secs(10));
    assert_eq!(limiter.available(), (100, 100, 100, 3));
}
