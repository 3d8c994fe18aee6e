//! What a policy must bring to be held to the laws: itself, and the same rule written slowly.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tollgate::{Rate, Rated};

/// Whole nanoseconds since the clock's origin, or a span of them. Signed, so that nothing stops at
/// zero by accident.
pub(crate) type Time = i128;

/// `permits` in `nanos`. The permits divide [`TICKS`], so that an interval is a whole number of
/// ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fraction {
    pub(crate) permits: u64,
    pub(crate) nanos: u64,
}

/// Ticks in a nanosecond: divisible by all numbers up to 16.
pub(crate) const TICKS: i128 = 720_720;

impl Fraction {
    pub(crate) fn rate(self) -> Rate {
        Rate::new(self.permits, Duration::from_nanos(self.nanos))
    }

    /// Ticks from one permit to the next.
    pub(crate) fn interval(self) -> i128 {
        i128::from(self.nanos) * TICKS / i128::from(self.permits)
    }

    /// Whole nanoseconds from one permit to the next, at least one.
    pub(crate) fn nanos_each(self) -> Time {
        (self.interval() / TICKS).max(1)
    }
}

/// What one policy and its oracle are made from.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The first is in force at the start.
    pub(crate) rates: Vec<Fraction>,
    pub(crate) max_burst: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) cold_factor: f64,
    pub(crate) catch_up: Duration,
    /// By how many nanoseconds the oracle and the limiter may differ. Zero where neither rounds:
    /// there events are let fall on the very moment of a grant.
    pub(crate) tolerance: Time,
}

/// A policy's rule on a state of its own, as plainly as it can be written.
pub(crate) trait Oracle: Clone + Debug {
    /// What one charge cost.
    type Price: Copy + Debug;

    /// When the next free ticket has come, rounded up to a whole nanosecond.
    fn due(&self) -> Time;

    fn charge(&mut self, at: Time, n: u32) -> Self::Price;

    /// Takes back a charge made at `at`: all of it if it is the last one, else what time has not
    /// given back anyway.
    fn refund(&mut self, now: Time, at: Time, price: Self::Price, last: bool);

    /// Nothing is granted before `until` and no credit accrues.
    fn pause(&mut self, now: Time, until: Time);

    fn set_rate(&mut self, now: Time, rate: Fraction);
}

/// A policy that is held to the laws.
pub(crate) trait Conforms: Rated<Cost = u32> + Debug {
    type Oracle: Oracle;

    fn setups() -> BoxedStrategy<Setup>;

    fn policy(setup: &Setup) -> Self;

    fn oracle(setup: &Setup) -> Self::Oracle;

    /// How much unused time law 1 lets a span use besides its own.
    fn stored_time(setup: &Setup) -> Time;

    /// How long it takes at most until the whole rate is reached.
    fn ramp(setup: &Setup) -> Time;
}

/// Runs a property on the same random values each time.
pub(crate) fn prove<S: Strategy>(
    cases: u32,
    values: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(values, property) {
        panic!("{error}");
    }
}

/// Rates whose permits are whole numbers of ticks apart: from one in ten seconds to one in some
/// nanoseconds.
pub(crate) fn fractions() -> impl Strategy<Value = Fraction> {
    (1u64..=16, 2u32..34, 0u64..1 << 33).prop_map(|(permits, exponent, rest)| {
        let nanos = (1u64 << exponent) + rest % (1 << exponent);
        Fraction { permits, nanos: nanos.max(4) * permits + rest % permits }
    })
}

/// Rates of which neither the crate nor an oracle ever has to round anything.
pub(crate) fn powers_of_two() -> impl Strategy<Value = Fraction> {
    (3u32..34).prop_map(|exponent| Fraction { permits: 1, nanos: 1 << exponent })
}

/// Three rates of about the same size, so that a change leaves something to be seen.
pub(crate) fn related(
    rate: impl Strategy<Value = Fraction> + 'static,
    factors: impl Strategy<Value = u64> + Clone + 'static,
) -> impl Strategy<Value = Vec<Fraction>> {
    (rate, factors.clone(), factors).prop_map(|(first, second, third)| {
        let slower = |factor| Fraction { nanos: first.nanos * factor, ..first };
        vec![first, slower(second), slower(third)]
    })
}

pub(crate) fn nanos(time: Time) -> Duration {
    Duration::from_nanos(u64::try_from(time).expect("a time on the clock"))
}

pub(crate) fn time(duration: Duration) -> Time {
    i128::try_from(duration.as_nanos()).expect("a time on the clock")
}
