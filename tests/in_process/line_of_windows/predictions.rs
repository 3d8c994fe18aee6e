//! The wait that is predicted at the end of the queue is the wait that a caller there has, if no
//! waiter leaves. A timeout shorter by one nanosecond is refused at once; a timeout of exactly the
//! wait succeeds.

use std::fmt::Debug;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tollgate::{
    Error, FixedWindow, Gcra, LeakyBucket, LockOut, Policy, Rate, Reservation, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::{NANOSECOND, on_hold};
use crate::support::{is_waiting, ms, poll, secs};

#[derive(Clone, Debug)]
enum Op {
    Try(u32),
    Reserve(u32),
    Leave(usize),
    Refund(usize),
    Settle(usize, u32),
    Advance(Duration),
    Pause(Duration),
    /// To the other policy.
    Change,
    /// Walks the queue, or not.
    Ask(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (n, which) = (1u32..=10, 0usize..16);
    let time = prop_oneof![(0u64..30).prop_map(|n| ms(100 * n)), (0u64..3000).prop_map(ms)];
    let op = prop_oneof![
        4 => n.clone().prop_map(Op::Try),
        5 => n.clone().prop_map(Op::Reserve),
        2 => which.clone().prop_map(Op::Leave),
        1 => which.clone().prop_map(Op::Refund),
        1 => (which, n.clone()).prop_map(|(which, n)| Op::Settle(which, n)),
        5 => time.clone().prop_map(Op::Advance),
        1 => time.prop_map(Op::Pause),
        1 => Just(Op::Change),
        3 => n.prop_map(Op::Ask),
    ];
    proptest::collection::vec(op, 1..40)
}

/// `slack` is zero for policies that never round. Rates may round: the prediction is computed in
/// one step, and each grant is rounded up to a whole nanosecond.
fn run<P: Policy<Cost = u32> + Debug>(
    policies: &[P; 2],
    slack: Duration,
    ops: Vec<Op>,
    n: u32,
) -> Result<(), TestCaseError> {
    let (clock, limiter) = on_hold(policies[0].clone());
    let (mut grants, mut changes) = (Vec::new(), 0);
    let mut line: Vec<Reservation<tollgate::RateLimiter<P>>> = Vec::new();
    for op in ops {
        match op {
            Op::Try(n) => grants.extend(limiter.try_acquire(n)),
            Op::Reserve(n) => line.extend(limiter.reserve(n)),
            Op::Leave(which) if !line.is_empty() => drop(line.remove(which % line.len())),
            Op::Refund(which) if !grants.is_empty() => {
                grants.remove(which % grants.len()).refund();
            }
            Op::Settle(which, n) if !grants.is_empty() => {
                let which = which % grants.len();
                grants[which].settle(n).expect("a few permits");
            }
            Op::Advance(time) => clock.advance(time),
            Op::Pause(time) => limiter.pause_for(time),
            Op::Change => {
                changes += 1;
                limiter.set_policy(policies[changes % 2].clone());
            }
            Op::Ask(n) => drop(limiter.try_acquire(n)),
            _ => {}
        }
    }
    let error = match limiter.try_acquire(n) {
        Err(error) => error,
        Ok(_) => return Ok(()),
    };
    let Error::Denied { retry_after: Some(wait), .. } = error else { panic!("{error}") };
    prop_assert!(!wait.is_zero(), "refused with a wait of zero");
    let mut refused = limiter.try_acquire_timeout(n, wait - NANOSECOND);
    prop_assert!(!is_waiting(&mut refused));
    let mut timed = limiter.try_acquire_timeout(n, wait + slack);
    if !is_waiting(&mut timed) {
        // The queue is bounded.
        return Ok(());
    }
    let early = wait.saturating_sub(slack + NANOSECOND);
    clock.advance(early);
    if let Poll::Ready(result) = poll(&mut timed) {
        let waited = result.map(|grant| grant.waited());
        prop_assert!(false, "predicted {wait:?}, {waited:?} earlier by {policies:?}");
    }
    clock.advance(wait + slack - early);
    let Poll::Ready(result) = poll(&mut timed) else {
        prop_assert!(false, "predicted {wait:?}, nothing by then by {policies:?}");
        return Ok(());
    };
    let waited = result.map(|grant| grant.waited());
    prop_assert!(waited.is_ok(), "predicted {wait:?}, {waited:?} by {policies:?}");
    Ok(())
}

/// `one` and the policies to which it can be changed.
fn prove<P: Policy<Cost = u32> + Debug>(one: P, other: P, slack: Duration) {
    let policies = [one, other];
    let config = ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    };
    let property = |(ops, n)| run(&policies, slack, ops, n);
    if let Err(error) = TestRunner::new(config).run(&(ops(), 1u32..=10), property) {
        panic!("{error}");
    }
}

#[test]
fn by_windows() {
    let exact = Duration::ZERO;
    prove(FixedWindow::new(10, secs(2)), FixedWindow::new(12, ms(1500)), exact);
    let grid = |n, window| FixedWindow::new(n, window).aligned(ms(700));
    prove(grid(10, secs(2)), grid(15, ms(900)), exact);
    prove(SlidingWindowLog::new(10, secs(2)), SlidingWindowLog::new(11, ms(1300)), exact);
    let counter = |n, window| SlidingWindowCounter::new(n, window, 8);
    prove(counter(10, secs(2)), counter(13, ms(1600)), exact);
}

#[test]
fn by_buckets() {
    // A change of the rate rounds the store or the debt.
    let slack = Duration::from_nanos(50);
    let bucket = |n, interval| TokenBucket::new(Rate::every(interval), n);
    prove(bucket(10, ms(200)), bucket(20, ms(70)), slack);
    let steps = |n, interval| bucket(n, interval).refill_every(ms(500));
    prove(steps(10, ms(200)), steps(20, ms(70)), slack);
    prove(Gcra::new(9, 5, secs(1)), Gcra::new(30, 3, secs(1)), slack);
    let meter = |n, interval| LeakyBucket::meter(Rate::every(interval), n);
    prove(meter(10, ms(200)), meter(20, ms(70)), slack);
}

#[test]
fn by_queues() {
    let slack = Duration::from_nanos(50);
    let queue = |n, interval| LeakyBucket::new(Rate::every(interval), n);
    prove(queue(40, ms(200)), queue(90, ms(70)), slack);
    let smooth = |interval| SmoothBursty::new(Rate::every(interval));
    prove(smooth(ms(200)), smooth(ms(70)), slack);
    let warming = |interval| SmoothWarmingUp::new(Rate::every(interval), secs(3));
    prove(warming(ms(200)), warming(ms(70)), Duration::from_nanos(500));
}

#[test]
fn by_several_rules() {
    let slack = Duration::from_nanos(50);
    let array = |n| [SlidingWindowLog::new(n, secs(1)), SlidingWindowLog::new(20, secs(5))];
    prove(array(10), array(14), Duration::ZERO);
    let bucket = |interval| TokenBucket::new(Rate::every(interval), 10);
    let both = |interval| Same((bucket(interval), FixedWindow::new(12, secs(2))));
    prove(both(ms(200)), both(ms(70)), slack);
    let lock = |n| LockOut::new(FixedWindow::new(n, secs(1)), ms(1500));
    prove(lock(10), lock(12), Duration::ZERO);
}
