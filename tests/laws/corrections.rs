//! Law 10: with corrections, law 1 holds over the true costs, and little is lost.
//!
//! The oracle keeps all calls with the costs that are known so far, and plays them anew for each grant.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Gcra, Grant, KeyedRateLimiter, LeakyBucket, ManualClock, Policy, Rate, RateLimiter, TokenBucket,
};

use crate::oracle::{CASES, prove};

/// Permits of the bucket, and the nanoseconds of one.
const CAPACITY: u32 = 100;
const INTERVAL: i128 = 8_000_000;

#[derive(Clone, Copy, Debug)]
enum Op {
    Try(u32),
    Advance(u64),
    Settle { which: usize, percent: u32 },
    Refund(usize),
    Drop(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => prop_oneof![1u32..4, 1u32..60].prop_map(Op::Try),
        5 => prop_oneof![0u64..40, 0u64..400].prop_map(Op::Advance),
        3 => (any::<usize>(), 0u32..140).prop_map(|(which, percent)| Op::Settle { which, percent }),
        1 => any::<usize>().prop_map(Op::Refund),
        1 => any::<usize>().prop_map(Op::Drop),
    ];
    prop::collection::vec(op, 1..120)
}

/// All charges in their order: when, and how many permits they are known to have cost.
#[derive(Default)]
struct History(Vec<(i128, i128)>);

impl History {
    /// What is missing from the bucket now.
    fn level(&self, now: i128) -> i128 {
        let mut last = (0, 0);
        for &(at, cost) in self.0.iter().chain([&(now, 0)]) {
            last = (at, (last.1 - (at - last.0)).max(0) + cost * INTERVAL);
        }
        last.1
    }
}

/// Runs a script. Returns how many permits were there when it looked, and how many there would have been had
/// all calls been made at their true costs.
fn run<'a, P: Policy<Cost = u32>>(
    ops: &[Op],
    clock: &ManualClock,
    ask: impl Fn(u32) -> Option<Grant<'a, P>>,
    available: impl Fn() -> u32,
) -> Result<(i128, i128), TestCaseError> {
    let mut history = History::default();
    let mut grants: Vec<(usize, Grant<'a, P>)> = Vec::new();
    let (mut there, mut exact) = (0, 0);
    for &op in ops {
        let now = i128::try_from(clock.elapsed().as_nanos()).expect("a time");
        let count = grants.len();
        match op {
            Op::Advance(millis) => clock.advance(Duration::from_millis(millis)),
            Op::Try(n) => {
                if let Some(grant) = ask(n) {
                    grants.push((history.0.len(), grant));
                    history.0.push((now, i128::from(n)));
                    // No span ends with a grant and exceeds its share.
                    let level = history.level(now);
                    prop_assert!(level <= i128::from(CAPACITY) * INTERVAL + 8, "{level} {ops:?}");
                }
            }
            Op::Settle { which, percent } if count > 0 => {
                let (index, grant) = &mut grants[which % count];
                let before = grant.cost();
                let actual = before * percent / 100;
                grant.settle(actual).expect("small");
                if actual > before {
                    // The rest is owed from now on.
                    history.0.push((now, i128::from(actual - before)));
                } else {
                    let returned = i128::from(before - actual);
                    // What was added later does not come back with it.
                    history.0[*index].1 = (history.0[*index].1 - returned).max(0);
                }
            }
            Op::Refund(which) if count > 0 => {
                let (index, grant) = grants.swap_remove(which % count);
                grant.refund();
                history.0[index].1 = 0;
            }
            Op::Drop(which) if count > 0 => drop(grants.swap_remove(which % count)),
            Op::Settle { .. } | Op::Refund(_) | Op::Drop(_) => {}
        }
        let now = i128::try_from(clock.elapsed().as_nanos()).expect("a time");
        let free = (i128::from(CAPACITY) * INTERVAL - history.level(now)).max(0);
        let ours = i128::from(available());
        prop_assert!(ours <= (free + 8) / INTERVAL, "{ours} of {free} {ops:?}");
        there += ours;
        exact += free / INTERVAL;
    }
    Ok((there, exact))
}

/// The shares of what would be there at the true costs that are there, for a limiter and a key.
fn hold<P: Policy<Cost = u32>>(policy: &P) -> [f64; 2] {
    let shares = std::cell::Cell::new([(0, 0); 2]);
    prove(4 * CASES, &ops(), |ops| {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy.clone(), &clock);
        let word = run(&ops, &clock, |n| limiter.try_acquire(n).ok(), || limiter.available())?;
        let clock = ManualClock::new();
        let keys: KeyedRateLimiter<u8, P> = KeyedRateLimiter::with_clock(policy.clone(), &clock);
        let key = run(&ops, &clock, |n| keys.try_acquire(&1, n).ok(), || keys.available(&1))?;
        let mut all = shares.get();
        for (all, one) in all.iter_mut().zip([word, key]) {
            *all = (all.0 + one.0, all.1 + one.1);
        }
        shares.set(all);
        Ok(())
    });
    #[allow(clippy::cast_precision_loss)] // millions
    let shares = shares.get().map(|(there, exact)| there as f64 / exact as f64);
    println!("{shares:?}");
    shares
}

#[test]
fn law_10_the_true_costs_keep_the_limit_and_little_is_lost() {
    let rate = Rate::every(Duration::from_millis(8));
    let bucket = hold(&TokenBucket::new(rate, CAPACITY));
    let gcra = hold(&Gcra::new(CAPACITY - 1, 125, Duration::from_secs(1)));
    let meter = hold(&LeakyBucket::meter(rate, CAPACITY));
    for share in [bucket, gcra, meter].concat() {
        assert!(share > 0.97, "{bucket:?} {gcra:?} {meter:?}");
    }
}
