//! Law 10: with corrections, law 1 holds over the true costs, and little is lost.
//!
//! The oracle keeps all calls with the costs that are known so far, and plays them anew for each grant.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Gcra, LeakyBucket, Limiter, ManualClock, Policy, Rate, TokenBucket};

use crate::measure;
use crate::oracle::{CASES, Time, prove};
use crate::subject::{Permits, Subject, at_once};

/// Permits of the bucket, and the nanoseconds of one.
const CAPACITY: u32 = 100;
const INTERVAL: Time = 8_000_000;

fn nanos(duration: Duration) -> Time {
    i128::try_from(duration.as_nanos()).expect("a time")
}

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
struct History(Vec<(Time, Time)>);

impl History {
    /// What is missing from the bucket now.
    fn level(&self, now: Time) -> Time {
        let mut last = (0, 0);
        for &(at, cost) in self.0.iter().chain([&(now, 0)]) {
            last = (at, (last.1 - (at - last.0)).max(0) + cost * INTERVAL);
        }
        last.1
    }
}

/// Runs a script. Returns how many permits were there when it looked, and how many there would have been had
/// all calls been made at their true costs.
fn run<P: Policy<Cost = u32>, S: Subject<P>>(
    ops: &[Op],
    policy: P,
) -> Result<(Time, Time), TestCaseError> {
    let clock = ManualClock::new();
    let subject = S::new(policy, &clock);
    // A sum of rounded times.
    let rounding = 8 * nanos(measure::UNIT);
    let mut history = History::default();
    let mut grants: Vec<(usize, Box<dyn Permits<u32> + '_>)> = Vec::new();
    let (mut there, mut exact) = (0, 0);
    for &op in ops {
        let now = nanos(clock.elapsed());
        let count = grants.len();
        match op {
            Op::Advance(millis) => clock.advance(Duration::from_millis(millis)),
            Op::Try(n) => {
                if let Ok(grant) = subject.try_acquire(n) {
                    grants.push((history.0.len(), grant));
                    history.0.push((now, i128::from(n)));
                    // No span ends with a grant and exceeds its share.
                    let level = history.level(now);
                    let most = i128::from(CAPACITY) * INTERVAL + rounding;
                    prop_assert!(level <= most, "{level} {ops:?}");
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
        let now = nanos(clock.elapsed());
        let free = (i128::from(CAPACITY) * INTERVAL - history.level(now)).max(0);
        let ours = i128::from(at_once(subject.limiter().available()).expect("it answers"));
        prop_assert!(ours <= (free + rounding) / INTERVAL, "{ours} of {free} {ops:?}");
        there += ours;
        exact += free / INTERVAL;
    }
    Ok((there, exact))
}

/// For each of the rules that keep what time has paid.
pub(crate) fn the_true_costs_keep_the_limit<
    B: Subject<TokenBucket>,
    G: Subject<Gcra>,
    M: Subject<LeakyBucket>,
>() {
    let rate = Rate::every(Duration::from_millis(8));
    hold::<_, B>(&TokenBucket::new(rate, CAPACITY));
    hold::<_, G>(&Gcra::new(CAPACITY - 1, 125, Duration::from_secs(1)));
    hold::<_, M>(&LeakyBucket::meter(rate, CAPACITY));
}

fn hold<P: Policy<Cost = u32>, S: Subject<P>>(policy: &P) {
    let all = Cell::new((0, 0));
    prove(2 * CASES, &ops(), |ops| {
        let (there, exact) = run::<P, S>(&ops, policy.clone())?;
        all.set((all.get().0 + there, all.get().1 + exact));
        Ok(())
    });
    #[allow(clippy::cast_precision_loss)] // millions
    let share = all.get().0 as f64 / all.get().1 as f64;
    println!("{share}");
    assert!(share > 0.97, "{share} of what would be there at the true costs");
}
