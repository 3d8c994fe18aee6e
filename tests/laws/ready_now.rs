//! When a request is ready: at the time that the policy tells, and not before.
//!
//! Each policy runs through random histories of calls, refunds, pauses and changes, and is asked
//! after each event: at that moment, and just before and after the time at which it is ready.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tollgate::state::PolicyExt;
use tollgate::{
    Cost, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Nanos, Policy, Rate, Rated, Ready,
    Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::oracle::at_most_asked;

const CASES: u32 = 20_000;

/// Encodes the kind of an event, a span, and the costs asked for. Numbers are cheaper to generate
/// than the values they stand for, and small ones are simple.
type Event = (u8, u64, [u32; 3]);

/// A policy under way.
struct Run<P: Policy> {
    policy: P,
    state: P::State,
    now: Nanos,
    /// Charges that may be refunded.
    grants: Vec<(P::Cost, P::Receipt)>,
}

impl<P: Policy> Run<P> {
    /// When `cost` is ready, if it is known and within the clock's times.
    fn ready(&self, cost: P::Cost) -> Option<Nanos> {
        match self.policy.ready_at(&self.state, self.now, cost) {
            Ok(Ready::At(at)) if at <= Nanos::END => Some(at),
            _ => None,
        }
    }

    fn pass_time(&mut self, how: u8, far: u64, cost: P::Cost) {
        let (now, size) = (self.now.get(), far % 64);
        let some = far >> size;
        let then = match how % 8 {
            0 => now,
            1 => now.saturating_sub(some >> 20),
            2 => now.saturating_add(some),
            3 => now.saturating_add(far % 1000),
            // At the very moment, or beside it.
            4..7 => match self.ready(cost) {
                Some(at) => (at.get() + far % 3).saturating_sub(1).max(now),
                None => now,
            },
            _ => now.saturating_add(some >> 20),
        };
        self.now = Nanos::new(then.min(Nanos::END.get()));
    }

    fn happen(&mut self, what: u8, far: u64, cost: P::Cost, others: &[P]) {
        let span = Duration::from_nanos((far >> (far % 64)) >> 2);
        let Self { policy, state, now, grants } = self;
        match what % 8 {
            0..4 if !cost.is_zero() => {
                // Permits that are not ready may be owed.
                let is_ready = policy.ready_at(state, *now, cost) == Ok(Ready::At(*now));
                if is_ready || policy.check_debt(state, *now, cost).is_ok() {
                    grants.push((cost, policy.charge(state, *now, cost)));
                }
            }
            4 => {
                if let Some((held, receipt)) = grants.pop() {
                    let part = held.saturating_sub(cost);
                    let receipt = policy.refund(state, *now, part, receipt);
                    grants.push((held.saturating_sub(part), receipt));
                    policy.release(state, *now, part);
                }
            }
            5 if !grants.is_empty() => {
                let any = usize::try_from(far % 1000).unwrap_or_default() % grants.len();
                policy.release(state, *now, grants.swap_remove(any).0);
            }
            6 if far.is_multiple_of(2) => policy.pause(state, *now, now.saturating_add(span)),
            6 | 7 if far.is_multiple_of(3) => _ = policy.refused(state, *now, cost),
            _ => {
                let other = usize::try_from(far % 1000).unwrap_or_default() % others.len();
                let old = std::mem::replace(policy, others[other].clone());
                policy.migrate(&old, state, *now);
            }
        }
    }

    /// Now, and on both sides of when it is ready.
    fn check(&self, cost: P::Cost) -> Result<(), TestCaseError> {
        self.check_at(self.now, cost)?;
        if let Some(ready) = self.ready(cost) {
            self.check_at(Nanos::new(ready.get().saturating_sub(1)), cost)?;
            self.check_at(ready, cost)?;
            self.check_at(Nanos::new((ready.get() + 1).min(Nanos::END.get())), cost)?;
            // It is the first moment.
            let before = self.now.max(Nanos::new(ready.get().saturating_sub(1)));
            prop_assert!(self.policy.is_ready(&self.state, ready.max(self.now), cost));
            prop_assert!(before >= ready || !self.policy.is_ready(&self.state, before, cost));
        }
        Ok(())
    }

    fn check_at(&self, time: Nanos, cost: P::Cost) -> Result<(), TestCaseError> {
        let ready = self.policy.ready_at(&self.state, time, cost);
        let by_time = matches!(ready, Ok(Ready::At(at)) if at <= time);
        let at_once = self.policy.is_ready(&self.state, time, cost);
        prop_assert_eq!(at_once, by_time, "{:?} at {:?}: {:?}", cost, time, ready);
        Ok(())
    }
}

/// `cost`: the cost for an event's numbers.
fn says_the_same<P: Policy + Debug>(
    policies: impl Strategy<Value = P>,
    cost: impl Fn([u32; 3]) -> P::Cost,
) {
    let config = ProptestConfig {
        cases: at_most_asked(CASES),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
        ..ProptestConfig::default()
    };
    let events = prop::collection::vec(any::<Event>(), 0..10);
    let values = (prop::collection::vec(policies, 2), any::<u64>(), events);
    let property = |(policies, start, events): (Vec<P>, u64, Vec<Event>)| {
        let (policy, now) = (policies[0].clone(), Nanos::new((start >> (start % 64)) >> 1));
        // Half of them new, half of them long idle.
        let state = if start.is_multiple_of(2) { policy.start(now) } else { policy.idle(now) };
        let mut run = Run { policy, state, now, grants: Vec::new() };
        for (what, far, numbers) in events {
            let cost = cost(numbers);
            run.pass_time(what / 8, far, cost);
            run.happen(what, far, cost, &policies);
            run.check(cost)?;
        }
        Ok(())
    };
    if let Err(error) = TestRunner::new(config).run(&values, property) {
        panic!("{error}");
    }
}

/// Mostly few permits, and any number up to the most.
fn some(number: u32) -> u32 {
    let size = (number % 32).max(number / 7 % 32);
    (number >> size).max(1)
}

fn one_cost([number, ..]: [u32; 3]) -> u32 {
    some(number)
}

/// A part of each tuple often asks for nothing.
fn or_nothing(number: u32) -> u32 {
    if number.is_multiple_of(3) { 0 } else { some(number) }
}

fn rates() -> impl Strategy<Value = Rate> {
    (-4.95f64..=9.05).prop_map(|exponent| {
        // The ends themselves, too.
        Rate::per_second(10f64.powf(exponent).clamp(1.0 / 86_400.0, 1e9))
    })
}

/// From nothing to the horizon, of each size as often.
fn spans_or_nothing() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(|bits| Duration::from_nanos(bits >> (bits % 64)).min(Nanos::HORIZON))
}

fn spans() -> impl Strategy<Value = Duration> {
    spans_or_nothing().prop_map(|span| span.max(Duration::from_nanos(1)))
}

/// From nothing to the most, small ones more often.
fn limits() -> impl Strategy<Value = u32> {
    any::<u32>().prop_map(|number| number >> (number % 32))
}

fn bursty() -> impl Strategy<Value = SmoothBursty> {
    (rates(), spans_or_nothing())
        .prop_map(|(rate, max_burst)| SmoothBursty::new(rate).max_burst(max_burst))
}

fn warming_up() -> impl Strategy<Value = SmoothWarmingUp> {
    (rates(), spans(), 0.0..=9f64).prop_map(|(rate, warm_up, exponent)| {
        SmoothWarmingUp::new(rate, warm_up).cold_factor(10f64.powf(exponent).min(1e9))
    })
}

fn buckets() -> impl Strategy<Value = TokenBucket> {
    (rates(), limits(), limits())
        .prop_map(|(rate, capacity, initial)| TokenBucket::new(rate, capacity).initial(initial))
}

/// With the same steps, with others, and one in eight without.
fn stepwise() -> impl Strategy<Value = TokenBucket> {
    (buckets(), spans(), 0..8u8).prop_map(|(bucket, period, kind)| match kind {
        0 => bucket,
        1..4 => bucket.refill_every(Duration::from_millis(100)),
        _ => bucket.refill_every(period),
    })
}

fn gcra() -> impl Strategy<Value = Gcra> {
    let new = |max_burst| Gcra::new(max_burst, 1, Duration::from_secs(1));
    (rates(), limits()).prop_map(move |(rate, max_burst)| new(max_burst).with_rate(rate))
}

fn leaky() -> impl Strategy<Value = LeakyBucket> {
    (rates(), limits()).prop_map(|(rate, capacity)| LeakyBucket::new(rate, capacity))
}

fn meters() -> impl Strategy<Value = LeakyBucket> {
    (rates(), limits()).prop_map(|(rate, capacity)| LeakyBucket::meter(rate, capacity))
}

fn windows() -> impl Strategy<Value = FixedWindow> {
    (limits(), spans()).prop_map(|(limit, window)| FixedWindow::new(limit, window))
}

fn aligned() -> impl Strategy<Value = FixedWindow> {
    (windows(), spans_or_nothing()).prop_map(|(window, epoch)| window.aligned(epoch))
}

fn logs() -> impl Strategy<Value = SlidingWindowLog> {
    (limits(), spans()).prop_map(|(limit, window)| SlidingWindowLog::new(limit, window))
}

fn counters() -> impl Strategy<Value = SlidingWindowCounter> {
    (limits(), spans(), limits()).prop_map(|(limit, window, buckets)| {
        SlidingWindowCounter::new(limit, window, buckets.max(1))
    })
}

fn in_flight() -> impl Strategy<Value = InFlight> {
    limits().prop_map(InFlight::new)
}

fn lock_out<P: Policy + Debug>(
    policies: impl Strategy<Value = P>,
) -> impl Strategy<Value = LockOut<P>> {
    (policies, spans_or_nothing()).prop_map(|(policy, duration)| LockOut::new(policy, duration))
}

/// A test for each policy, and what its events ask for.
macro_rules! says_the_same {
    ($($name:ident: $policies:expr, $cost:expr;)+) => {
        $(
            #[test]
            fn $name() {
                says_the_same($policies, $cost);
            }
        )+
    };
}

says_the_same! {
    smooth_bursty: bursty(), one_cost;
    smooth_warming_up: warming_up(), one_cost;
    token_bucket: buckets(), one_cost;
    token_bucket_in_steps: stepwise(), one_cost;
    generic_cell_rate: gcra(), one_cost;
    leaky_bucket: leaky(), one_cost;
    leaky_bucket_meter: meters(), one_cost;
    leaky_bucket_of_both_kinds: prop_oneof![leaky(), meters()], one_cost;
    fixed_window: windows(), one_cost;
    fixed_window_aligned: prop_oneof![aligned(), aligned(), windows()], one_cost;
    sliding_window_log: logs(), one_cost;
    sliding_window_counter: counters(), one_cost;
    calls_in_flight: in_flight(), one_cost;
    lock_out_of_a_window: lock_out(windows()), one_cost;
    lock_out_of_a_smooth_rate: lock_out(bursty()), one_cost;
    two_with_a_cost_each: (buckets(), windows()), |[a, b, _]| (or_nothing(a), or_nothing(b));
    three_with_a_cost_each: (bursty(), logs(), in_flight()),
        |[a, b, c]| (or_nothing(a), or_nothing(b), or_nothing(c));
    two_in_two_with_a_cost_each: ((warming_up(), gcra()), lock_out(counters())),
        |[a, b, c]| ((or_nothing(a), or_nothing(b)), or_nothing(c));
    two_with_the_same_cost: (stepwise(), logs()).prop_map(Same), one_cost;
    three_with_the_same_cost: (warming_up(), leaky(), in_flight()).prop_map(Same), one_cost;
    two_buckets: (buckets(), buckets()).prop_map(Same), one_cost;
    two_logs: (logs(), logs()).prop_map(Same), one_cost;
}
