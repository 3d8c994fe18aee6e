//! Callers join, leave while they wait, drop granted futures without polling them, drop grants,
//! refund and settle them and run out of time. When all are gone and time has passed, every part is
//! whole again; and meanwhile none of them had more out, or in its window, than its limit.

use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tollgate::{
    Acquire, FixedWindow, Gcra, Grant, InFlight, LeakyBucket, LockOut, Policy, Quota, Rate, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use super::on_hold;
use crate::support::{ms, outcome, poll, secs};

/// One step of a run. A number chooses a cost, a waiter, or a holder of a grant.
#[derive(Clone, Debug)]
enum Op {
    Try(usize),
    Join(usize),
    JoinFor(usize, Duration),
    /// Reserves a place, and then waits for it.
    Reserve(usize),
    Poll(usize),
    /// Whether it was granted meanwhile or not.
    Leave(usize),
    Drop(usize),
    Refund(usize),
    Settle(usize, usize),
    Own(usize),
    Advance(Duration),
    Pause(Duration),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let which = 0usize..16;
    // Often on the very moment at which something ends.
    let time = prop_oneof![(0u64..30).prop_map(|n| ms(100 * n)), (0u64..3000).prop_map(ms)];
    let op = prop_oneof![
        3 => which.clone().prop_map(Op::Try),
        4 => which.clone().prop_map(Op::Join),
        4 => (which.clone(), time.clone()).prop_map(|(n, time)| Op::JoinFor(n, time)),
        1 => which.clone().prop_map(Op::Reserve),
        5 => which.clone().prop_map(Op::Poll),
        3 => which.clone().prop_map(Op::Leave),
        4 => which.clone().prop_map(Op::Drop),
        2 => which.clone().prop_map(Op::Refund),
        2 => (which.clone(), which.clone()).prop_map(|(n, cost)| Op::Settle(n, cost)),
        1 => which.prop_map(Op::Own),
        6 => time.clone().prop_map(Op::Advance),
        1 => time.prop_map(|time| Op::Pause(time / 4)),
    ];
    proptest::collection::vec(op, 1..120)
}

/// A part's limit, as a slow log can check it.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Out(u32),
    /// In any window.
    Sliding(u32, Duration),
    /// In each window on the clock's grid.
    Grid(u32, Duration),
    /// Some at once, and one more each interval.
    Bucket(u32, Duration),
}

struct Subject<P: Policy> {
    policy: P,
    limits: Vec<Limit>,
    costs: Vec<P::Cost>,
    /// The cost for each part.
    split: fn(P::Cost) -> Vec<u32>,
}

/// A grant that was not given back: what law 1 counts of it. An excess that was settled later is owed,
/// and not counted.
#[derive(Debug)]
struct Kept {
    at: Duration,
    parts: Vec<u32>,
}

struct Held<'a, P: Policy> {
    grant: Grant<'a, P>,
    kept: usize,
}

impl Limit {
    fn check(self, part: usize, kept: &[Kept]) -> Result<(), TestCaseError> {
        let mut times: Vec<_> = kept.iter().map(|kept| (kept.at, kept.parts[part])).collect();
        times.sort_unstable();
        for (first, &(start, _)) in times.iter().enumerate() {
            let mut sum = 0;
            for &(at, n) in &times[first..] {
                let most = match self {
                    Self::Out(_) => continue,
                    Self::Sliding(limit, window) if at < start + window => limit,
                    Self::Grid(limit, window)
                        if at.as_nanos() / window.as_nanos()
                            == start.as_nanos() / window.as_nanos() =>
                    {
                        limit
                    }
                    Self::Bucket(capacity, interval) => {
                        let came = (at - start).as_nanos() / interval.as_nanos();
                        capacity + u32::try_from(came).expect("few")
                    }
                    Self::Sliding(..) | Self::Grid(..) => break,
                };
                sum += n;
                prop_assert!(sum <= most, "{sum} from {start:?} to {at:?} in {self:?}: {times:?}");
            }
        }
        Ok(())
    }
}

impl<P: Policy> Subject<P> {
    fn run(&self, ops: Vec<Op>) -> Result<(), TestCaseError> {
        let (clock, limiter) = on_hold(self.policy.clone());
        let cost = |n: usize| self.costs[n % self.costs.len()];
        let mut line: Vec<(Duration, Acquire<tollgate::RateLimiter<P>>)> = Vec::new();
        let mut grants: Vec<Held<'_, P>> = Vec::new();
        let mut kept: Vec<Kept> = Vec::new();
        let keep = |kept: &mut Vec<Kept>, joined: Duration, grant: &Grant<'_, P>| {
            kept.push(Kept { at: joined + grant.waited(), parts: (self.split)(grant.cost()) });
            kept.len() - 1
        };
        for op in ops {
            let now = clock.elapsed();
            match op {
                Op::Try(n) => {
                    let before = limiter.quota();
                    match limiter.try_acquire(cost(n)) {
                        Ok(grant) => {
                            let kept = keep(&mut kept, now, &grant);
                            grants.push(Held { grant, kept });
                        }
                        Err(error) => {
                            prop_assert!(
                                error.part().is_none_or(|part| part.index() < self.limits.len())
                            );
                            prop_assert_eq!(limiter.quota(), before);
                        }
                    }
                }
                Op::Join(n) => {
                    let mut future = limiter.acquire_owned(cost(n));
                    match poll(&mut future) {
                        Poll::Ready(grant) => {
                            let grant = grant.expect("a cost that fits");
                            let kept = keep(&mut kept, now, &grant);
                            grants.push(Held { grant, kept });
                        }
                        Poll::Pending => line.push((now, future)),
                    }
                }
                Op::JoinFor(n, time) => {
                    let mut future =
                        tollgate::Limiter::try_acquire_timeout(&limiter.clone(), cost(n), time);
                    match poll(&mut future) {
                        Poll::Ready(Ok(grant)) => {
                            let kept = keep(&mut kept, now, &grant);
                            grants.push(Held { grant, kept });
                        }
                        Poll::Ready(Err(_)) => {}
                        Poll::Pending => line.push((now, future)),
                    }
                }
                Op::Reserve(n) => {
                    line.push((now, limiter.reserve(cost(n)).expect("a place").wait()));
                }
                Op::Poll(n) if !line.is_empty() => {
                    let n = n % line.len();
                    if let Poll::Ready(outcome) = poll(&mut line[n].1) {
                        let (joined, _future) = line.remove(n);
                        if let Ok(grant) = outcome {
                            let kept = keep(&mut kept, joined, &grant);
                            grants.push(Held { grant, kept });
                        }
                    }
                }
                Op::Leave(n) if !line.is_empty() => drop(line.remove(n % line.len())),
                Op::Drop(n) if !grants.is_empty() => drop(grants.remove(n % grants.len())),
                Op::Refund(n) if !grants.is_empty() => {
                    let held = grants.remove(n % grants.len());
                    held.grant.refund();
                    kept[held.kept].parts.fill(0);
                }
                Op::Settle(n, actual) if !grants.is_empty() => {
                    let n = n % grants.len();
                    let held = &mut grants[n];
                    held.grant.settle(cost(actual)).expect("not in 146 years");
                    let parts = kept[held.kept].parts.iter_mut();
                    parts.zip((self.split)(cost(actual))).for_each(|(n, now)| *n = now.min(*n));
                }
                Op::Own(n) if !grants.is_empty() => {
                    let Held { grant, kept } = grants.remove(n % grants.len());
                    grants.push(Held { grant: grant.into_owned(), kept });
                }
                Op::Advance(time) => clock.advance(time),
                Op::Pause(time) => limiter.pause_for(time),
                _ => {}
            }
            self.check_out(&grants, &kept)?;
            let quota = limiter.quota();
            self.check_quota(&quota)?;
        }
        for (part, limit) in self.limits.iter().enumerate() {
            limit.check(part, &kept)?;
        }

        drop(line);
        drop(grants);
        prop_assert_eq!(limiter.queue_len(), 0);
        let quota = limiter.quota();
        prop_assert!(quota.reset_after.is_some(), "a place is still out");
        clock.advance(quota.reset_after.unwrap_or_default().max(ms(1000)));
        prop_assert_eq!(limiter.available(), quota.limit);
        clock.advance(secs(1_000_000));
        let quota = limiter.quota();
        prop_assert_eq!(quota.remaining, quota.limit);
        prop_assert_eq!(quota.reset_after, Some(Duration::ZERO));
        Ok(())
    }

    /// Held permits count, at their settled cost.
    fn check_out(&self, held: &[Held<'_, P>], kept: &[Kept]) -> Result<(), TestCaseError> {
        for (part, limit) in self.limits.iter().enumerate() {
            if let Limit::Out(max) = limit {
                let out: u32 = held.iter().map(|held| kept[held.kept].parts[part]).sum();
                prop_assert!(out <= *max, "{out} of {max} out in part {part}");
            }
        }
        Ok(())
    }

    fn check_quota(&self, quota: &Quota<P::Cost>) -> Result<(), TestCaseError> {
        let (remaining, limit) = ((self.split)(quota.remaining), (self.split)(quota.limit));
        prop_assert!(remaining.iter().zip(&limit).all(|(n, most)| n <= most), "{quota:?}");
        Ok(())
    }

    /// On the same random calls each time.
    fn prove(&self) {
        let config = ProptestConfig {
            cases: 100,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
            max_shrink_iters: 2_000,
            ..ProptestConfig::default()
        };
        if let Err(error) = TestRunner::new(config).run(&ops(), |ops| self.run(ops)) {
            panic!("{error}");
        }
    }
}

fn log(limit: u32, window: Duration) -> (SlidingWindowLog, Limit) {
    (SlidingWindowLog::new(limit, window), Limit::Sliding(limit, window))
}

/// Windows on a grid, so that a slow log knows where they begin.
fn fixed(limit: u32, window: Duration) -> (FixedWindow, Limit) {
    (FixedWindow::new(limit, window).aligned(Duration::ZERO), Limit::Grid(limit, window))
}

fn bucket(capacity: u32, interval: Duration) -> (TokenBucket, Limit) {
    (TokenBucket::new(Rate::every(interval), capacity), Limit::Bucket(capacity, interval))
}

fn in_flight(max: u32) -> (InFlight, Limit) {
    (InFlight::new(max), Limit::Out(max))
}

#[test]
fn in_flight_a_log_and_a_bucket() {
    let ((a, x), (b, y), (c, z)) = (in_flight(4), log(5, secs(2)), bucket(10, ms(300)));
    Subject {
        policy: (a, b, c),
        limits: vec![x, y, z],
        costs: vec![(1, 1, 1), (1, 2, 7), (2, 1, 10), (0, 1, 3), (1, 0, 0), (4, 5, 0), (3, 0, 2)],
        split: |(a, b, c)| vec![a, b, c],
    }
    .prove();
}

#[test]
fn a_fixed_window_and_in_flight() {
    let ((a, x), (b, y)) = (fixed(5, secs(1)), in_flight(3));
    Subject {
        policy: (a, b),
        limits: vec![x, y],
        costs: vec![(1, 1), (2, 1), (5, 3), (0, 1), (1, 0), (3, 2)],
        split: |(a, b)| vec![a, b],
    }
    .prove();
}

#[test]
fn an_array_of_in_flight() {
    let ((a, x), (b, y)) = (in_flight(4), in_flight(3));
    Subject {
        policy: [a, b],
        limits: vec![x, y],
        costs: vec![1, 2, 3, 1, 0],
        split: |n| vec![n, n],
    }
    .prove();
}

#[test]
fn in_flight_and_a_log_with_one_cost() {
    let ((a, x), (b, y)) = (in_flight(4), log(6, secs(2)));
    Subject {
        policy: Same((a, b)),
        limits: vec![x, y],
        costs: vec![1, 2, 3, 4, 1],
        split: |n| vec![n, n],
    }
    .prove();
}

#[test]
fn tuples_within_tuples() {
    let ((a, w), (b, x)) = (in_flight(3), fixed(6, ms(1500)));
    let ((c, y), (d, z)) = (bucket(5, ms(200)), log(7, secs(3)));
    let (e, v) = in_flight(5);
    Subject {
        policy: ((a, b), [Same((c.clone(), d.clone())), Same((c, d))], LockOut::new(e, secs(0))),
        limits: vec![w, x, y, z, v],
        costs: vec![((1, 1), 1, 1), ((0, 2), 3, 0), ((2, 0), 0, 1), ((3, 6), 5, 5), ((1, 0), 2, 0)],
        split: |((a, b), c, e)| vec![a, b, c, c, e],
    }
    .prove();
}

#[test]
fn six_parts_of_all_kinds() {
    let ((a, u), (b, v), (c, w)) = (in_flight(3), fixed(6, ms(1500)), bucket(5, ms(200)));
    let (d, x) = log(7, secs(3));
    let interval = ms(250);
    let counter = SlidingWindowCounter::new(5, secs(2), 4);
    let policy = (a, b, c, d, Gcra::new(3, 4, secs(1)), counter);
    Subject {
        policy,
        limits: vec![u, v, w, x, Limit::Bucket(4, interval), Limit::Sliding(5, ms(1500))],
        costs: vec![(1, 1, 1, 1, 1, 1), (0, 2, 0, 3, 1, 0), (1, 0, 5, 0, 4, 5), (3, 6, 0, 7, 0, 1)],
        split: |(a, b, c, d, e, f)| vec![a, b, c, d, e, f],
    }
    .prove();
}

/// Rules alone, by the same calls: what holds for parts holds for them.
#[test]
fn each_rule_by_itself() {
    fn prove<P: Policy<Cost = u32>>((policy, limit): (P, Limit)) {
        let costs = vec![1, 2, 3, 5, 1];
        Subject { policy, limits: vec![limit], costs, split: |n| vec![n] }.prove();
    }

    prove(in_flight(5));
    prove(log(5, secs(2)));
    prove(fixed(5, secs(2)));
    prove((SlidingWindowCounter::new(5, secs(2), 8), Limit::Sliding(5, ms(1750))));
    prove((LockOut::new(in_flight(5).0, Duration::ZERO), Limit::Out(5)));
    // Exact but for the credit for late wake-ups, which never occur on a manual clock.
    prove(bucket(5, ms(300)));
    prove((LeakyBucket::meter(Rate::every(ms(300)), 5), Limit::Bucket(5, ms(300))));
    prove((Gcra::new(4, 5, ms(1500)), Limit::Bucket(5, ms(300))));
}

/// A part that grants on credit is full again when its debt has been paid.
#[test]
fn a_smooth_part_and_in_flight() {
    let policy = (SmoothBursty::new(Rate::per_second(5.0)), InFlight::new(3));
    let (clock, limiter) = on_hold(policy);
    clock.advance(secs(5));
    let mut held = limiter.try_acquire((20, 2)).expect("on credit");
    held.settle((30, 1)).expect("owed");
    let waiting = limiter.reserve((1, 3)).expect("a place");
    clock.advance(secs(10));
    assert_eq!(limiter.queue_len(), 1);
    drop(held);
    let granted = outcome(&mut waiting.wait()).expect("a grant");
    assert_eq!(granted.waited(), secs(10));
    granted.refund();
    let wait = limiter.quota().reset_after.expect("a time");
    clock.advance(wait);
    assert_eq!(limiter.available(), (5, 3));
}
