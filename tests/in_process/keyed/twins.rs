//! A keyed limiter decides as one permanent limiter for each key would. Forgotten keys and keys
//! never used make no difference.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tollgate::{
    FixedWindow, Gcra, Grant, InFlight, KeyedRateLimiter, LeakyBucket, LockOut, ManualClock,
    Policy, Rate, RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

use crate::support::{ms, secs};

#[derive(Clone, Copy, Debug)]
enum Op {
    Try { key: u8, n: u32, keep: bool },
    Timed { key: u8, n: u32, wait: u64 },
    Advance(u64),
    Drop(usize),
    Settle { which: usize, n: u32 },
    Refund(usize),
    SetPolicy(bool),
    Look(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0u8..6, 0u32..6, any::<bool>()).prop_map(|(key, n, keep)| Op::Try { key, n, keep }),
        3 => (0u8..6, 1u32..4, 0u64..300).prop_map(|(key, n, wait)| Op::Timed { key, n, wait }),
        6 => prop_oneof![0u64..400, 0u64..3000].prop_map(Op::Advance),
        2 => any::<usize>().prop_map(Op::Drop),
        2 => (any::<usize>(), 0u32..9).prop_map(|(which, n)| Op::Settle { which, n }),
        1 => any::<usize>().prop_map(Op::Refund),
        1 => any::<bool>().prop_map(Op::SetPolicy),
        3 => (0u8..6).prop_map(Op::Look),
    ];
    prop::collection::vec(op, 1..120)
}

/// The answers to all ops, by one limiter each and by a keyed one.
fn agree<P: Policy<Cost = u32> + Debug>(policies: [P; 2]) {
    let config = ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x6b_65_79),
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&ops(), |ops| {
        // Waits move each.
        let clocks = [ManualClock::auto_advance(), ManualClock::auto_advance()];
        let limiter = |key| (key, RateLimiter::with_clock(policies[0].clone(), &clocks[0]));
        let each: HashMap<u8, RateLimiter<P>> = (0..6).map(limiter).collect();
        // Long enough for a new limiter to be an idle one.
        clocks.iter().for_each(|clock| clock.advance(secs(3600)));
        // So few that some are forgotten all the time.
        let keyed =
            KeyedRateLimiter::builder(policies[0].clone()).clock(&clocks[1]).max_keys(6).build();
        let mut kept: Vec<(Grant<'_, P>, Grant<'_, P>)> = Vec::new();
        for op in ops {
            // A visit to the mutex: the word of a limiter does not record levels.
            each.values().for_each(|limiter| limiter.pause_for(Duration::ZERO));
            match op {
                Op::Try { key, n, keep } => {
                    let (one, other) = (each[&key].try_acquire(n), keyed.at(&key).try_acquire(n));
                    prop_assert_eq!(one.as_ref().err(), other.as_ref().err(), "{:?}", op);
                    if let (Ok(one), Ok(other), true) = (one, other, keep) {
                        kept.push((one, other));
                    }
                }
                Op::Timed { key, n, wait } => {
                    let one = each[&key].try_acquire_timeout(n, ms(wait)).blocking_wait();
                    let other = keyed.at(&key).try_acquire_timeout(n, ms(wait)).blocking_wait();
                    let waited = |grant: Grant<'_, P>| grant.waited();
                    prop_assert_eq!(one.map(waited), other.map(waited), "{:?}", op);
                    prop_assert_eq!(clocks[0].elapsed(), clocks[1].elapsed(), "{:?}", op);
                }
                Op::Advance(millis) => {
                    clocks.iter().for_each(|clock| clock.advance(ms(millis)));
                }
                Op::Drop(which) if !kept.is_empty() => {
                    kept.swap_remove(which % kept.len());
                }
                Op::Settle { which, n } if !kept.is_empty() => {
                    let which = which % kept.len();
                    let (one, other) = &mut kept[which];
                    prop_assert_eq!(one.settle(n), other.settle(n));
                }
                Op::Refund(which) if !kept.is_empty() => {
                    let (one, other) = kept.swap_remove(which % kept.len());
                    one.refund();
                    other.refund();
                }
                Op::SetPolicy(second) => {
                    let policy = &policies[usize::from(second)];
                    each.values().for_each(|limiter| limiter.set_policy(policy.clone()));
                    keyed.set_policy(policy.clone());
                }
                Op::Look(key) => {
                    prop_assert_eq!(each[&key].available(), keyed.at(&key).available(), "{:?}", op);
                }
                Op::Drop(_) | Op::Settle { .. } | Op::Refund(_) => {}
            }
            prop_assert!(keyed.len() <= 6);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{policies:?}: {error}");
    }
}

fn rate(per_second: f64) -> Rate {
    Rate::per_second(per_second)
}

#[test]
fn smooth_bursty() {
    // Of rates that are a power of two apart, a change rounds nothing.
    agree([4.0, 8.0].map(|n| SmoothBursty::new(rate(n))));
    agree([5.0, 8.0].map(|n| SmoothBursty::new(rate(n)).max_burst(Duration::ZERO)));
}

#[test]
fn smooth_warming_up() {
    agree([5.0, 8.0].map(|n| SmoothWarmingUp::new(rate(n), ms(700))));
}

#[test]
fn token_bucket() {
    agree([4.0, 8.0].map(|n| TokenBucket::new(rate(n), 4)));
}

#[test]
fn gcra() {
    agree([4, 8].map(|n| Gcra::new(3, n, secs(1))));
}

#[test]
fn leaky_bucket() {
    agree([LeakyBucket::new(rate(5.0), 4), LeakyBucket::new(rate(8.0), 3)]);
    agree([4.0, 8.0].map(|n| LeakyBucket::meter(rate(n), 4)));
}

#[test]
fn windows() {
    agree([FixedWindow::new(4, ms(500)), FixedWindow::new(3, ms(500))]);
    agree([4, 3].map(|limit| FixedWindow::new(limit, ms(500)).aligned(ms(77))));
    agree([SlidingWindowLog::new(4, ms(500)), SlidingWindowLog::new(3, ms(500))]);
    agree([4, 3].map(|limit| SlidingWindowCounter::new(limit, ms(500), 5)));
}

#[test]
fn in_flight() {
    agree([InFlight::new(4), InFlight::new(2)]);
}

#[test]
fn lock_out() {
    agree([4, 3].map(|limit| LockOut::new(FixedWindow::new(limit, ms(500)), secs(1))));
}

#[test]
fn composed() {
    agree([4, 3].map(|n| Same((TokenBucket::new(rate(5.0), 4), FixedWindow::new(n, ms(900))))));
    agree([4, 3].map(|n| Same((SlidingWindowLog::new(n, ms(500)), InFlight::new(3)))));
    agree(
        [4, 3]
            .map(|n| Same((SlidingWindowLog::new(n, ms(500)), SlidingWindowLog::new(9, secs(2))))),
    );
}
