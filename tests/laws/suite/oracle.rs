//! What a policy needs for the laws: itself, and a slow version of the same rule.

use std::env;
use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestError, TestRunner};
use tollgate::{Policy, Rate};

use crate::history::History;
use crate::measure;

/// Whole nanoseconds, or another [unit](measure::UNIT), since the clock's origin, or a span of
/// them. Signed, so that nothing stops at zero by accident.
pub(crate) type Time = i128;

/// Ticks in a nanosecond: divisible by all numbers up to 16, and by 32, the largest factor between the rates
/// of exact versions.
pub(crate) const TICKS: i128 = 1_441_440;

/// When permits are ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// From then on.
    At(Time),
    /// Not before then, and not before something is given back either.
    NotBefore(Time),
    /// Exceeds the capacity.
    Never,
}

/// A policy's rule with a history of its own, written as plainly as possible.
pub(crate) trait Oracle: Debug {
    fn copy(&self) -> Box<dyn Oracle>;

    /// When `n` are ready if nothing else is charged; a moment before `now` means "now".
    fn ready(&self, now: Time, n: u32) -> When;

    /// Caller `id` takes `n`, which is not zero.
    fn charge(&mut self, id: usize, at: Time, n: u32);

    /// Takes back the charge of caller `id`: all of it if there was no charge since, and otherwise
    /// the part that the rule allows.
    fn refund(&mut self, id: usize, now: Time);

    /// Puts version `index` of the policy into force.
    fn set_policy(&mut self, index: usize, now: Time);

    /// Nothing is granted before `until` and no credit accrues. A rule without credit has nothing
    /// to do: the queue handles the rest.
    fn pause(&mut self, _now: Time, _until: Time) {}

    /// Whether a grant is held, so that its drop is a [`release`](Self::release).
    fn holds(&self) -> bool {
        false
    }

    fn release(&mut self, _id: usize) {}

    /// A call for `n` was refused on arrival.
    fn refused(&mut self, _now: Time, _n: u32) {}

    /// Whether a refund may have returned less than the rule allows.
    fn is_doubtful(&self) -> bool {
        false
    }

    /// Whether it can be full. Then `room` is the time from which there is room for `n` behind the
    /// queue.
    fn is_bounded(&self) -> bool {
        false
    }

    fn room(&self, _now: Time, _queued: &[u32], _n: u32) -> Time {
        Time::MIN
    }
}

impl Clone for Box<dyn Oracle> {
    fn clone(&self) -> Self {
        self.copy()
    }
}

/// A policy that is tested by the laws. Most types stand for themselves; where one type is several
/// policies, each has a name of its own.
pub(crate) trait Conforms: Debug + 'static {
    type Policy: Policy + Debug;

    /// The parameters, in the oracle's terms.
    type Version: Clone + Debug;

    fn version(scale: Scale) -> BoxedStrategy<Self::Version>;

    fn policy(version: &Self::Version, catch_up: Duration) -> Self::Policy;

    /// In force is the first version.
    fn oracle(versions: &[Self::Version]) -> Box<dyn Oracle>;

    /// Law 1: that the rule was kept.
    fn kept(versions: &[Self::Version], history: &History) -> Result<(), String>;

    /// The cost for a script's `n`; nothing if `n` is zero.
    fn cost(n: u32) -> <Self::Policy as Policy>::Cost;

    /// Whether the policy credits the lateness of a wake-up. Otherwise the times of grants are
    /// checked.
    const CATCHES_UP: bool = false;

    /// Whether no caller waits for its own permits, so that a leaver has delayed no other.
    const PREPAID: bool = false;

    /// Whether a window begins with a grant, and not by the clock or by each grant anew.
    const BEGINS_WITH_A_GRANT: bool = false;

    /// Whether the grant that begins a window of one rule may have to wait for another rule.
    const SHIFTS: bool = false;

    /// Whether a pause makes later permits dearer if nothing is owed before it.
    const COOLS: bool = false;

    /// Whether a refusal changes the state.
    const PUNISHES: bool = false;

    /// Whether a waiter learns how long it has to wait when another gives something back.
    const HOLDS: bool = false;

    /// Whether the times of refusals are compared.
    const EXACT_REFUSALS: bool = measure::EXACT_REFUSALS || !(Self::PUNISHES || Self::HOLDS);

    /// Whether it notices that the clock has gone back before a refund: the one word in which a bucket
    /// is kept does not say when it was last drawn.
    const KNOWS_LAST: bool = true;

    /// The rates at which the oracle and the crate are compared.
    const SCALES: Scales = Scales::Exact;

    /// The nanoseconds by which they may differ if one of them rounds. If neither does, events may
    /// fall on the exact time of a grant.
    const TOLERANCE: Time = 8;

    /// The largest factor by which other versions are slower. A difference of a nanosecond grows by
    /// this factor after a change that keeps a number of permits.
    const SLOWER: u64 = 20;

    /// Permits come at the multiples of this only.
    fn step(_: &Self::Version) -> Time {
        1
    }

    /// The longest time until the whole rate is reached.
    fn ramp(_: &Self::Version) -> Time {
        0
    }

    /// At a rate, with a store for a thousand permits: for policies that are made of these.
    fn with_thousand(_: Fraction) -> Option<Self::Version> {
        None
    }
}

/// The parameters of one run.
#[derive(Clone, Debug)]
pub(crate) struct Setup<P: Conforms> {
    /// The first is in force at the start.
    pub(crate) versions: Vec<P::Version>,
    pub(crate) scale: Scale,
    pub(crate) catch_up: Duration,
}

impl<P: Conforms> Setup<P> {
    pub(crate) fn policy(&self, index: usize) -> P::Policy {
        P::policy(&self.versions[index], self.catch_up)
    }

    pub(crate) fn oracle(&self) -> Box<dyn Oracle> {
        P::oracle(&self.versions)
    }

    pub(crate) fn tolerance(&self) -> Time {
        if self.scale.is_exact { 0 } else { P::TOLERANCE }
    }
}

/// About how fast a policy is to be, whatever its rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) rate: Fraction,
    /// A parameter that all versions share, in multiples of one permit's interval.
    pub(crate) span: Time,
    /// Neither the crate nor an oracle has to round anything.
    pub(crate) is_exact: bool,
    /// As little as possible is stored.
    pub(crate) is_lean: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scales {
    Exact,
    Rounded,
    Both,
}

impl Scale {
    fn slower(self, factor: u64) -> Self {
        let rate = Fraction { nanos: self.rate.nanos * factor, ..self.rate };
        Self { rate, ..self }
    }
}

/// `permits` in `nanos`. The permits divide [`TICKS`], so that an interval is a whole number of
/// ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fraction {
    pub(crate) permits: u64,
    pub(crate) nanos: u64,
}

impl Fraction {
    pub(crate) fn rate(self) -> Rate {
        Rate::new(self.permits, nanos(i128::from(self.nanos)))
    }

    /// Ticks from one permit to the next.
    pub(crate) fn interval(self) -> i128 {
        i128::from(self.nanos) * TICKS / i128::from(self.permits)
    }

    /// Whole nanoseconds from one permit to the next, at least one.
    pub(crate) fn nanos_each(self) -> Time {
        (self.interval() / TICKS).max(1)
    }

    pub(crate) fn eighths(self, eighths: u32) -> Time {
        i128::from(self.nanos) * i128::from(eighths) / i128::from(self.permits) / 8
    }
}

/// Rates whose permits are whole numbers of ticks apart: from one in ten seconds to one in some
/// nanoseconds.
fn fractions() -> impl Strategy<Value = Fraction> {
    (1u64..=16, 2..measure::LONGEST, 0u64..1 << 33).prop_map(|(permits, exponent, rest)| {
        let nanos = (1u64 << exponent) + rest % (1 << exponent);
        Fraction { permits, nanos: nanos.max(4) * permits + rest % permits }
    })
}

/// Rates of which neither the crate nor an oracle ever has to round anything.
fn powers_of_two() -> impl Strategy<Value = Fraction> {
    (3..measure::LONGEST).prop_map(|exponent| Fraction { permits: 1, nanos: 1 << exponent })
}

/// Three versions of about the same size, so that a change leaves something to be seen.
pub(crate) fn setups<P: Conforms>() -> BoxedStrategy<Setup<P>> {
    let exact = (powers_of_two(), prop_oneof![Just(2u64), Just(4), Just(32)], 2u64..5)
        .prop_map(|(rate, second, third)| (rate, [second, 1 << third], true));
    let rounded = (fractions(), 2..P::SLOWER, 2..P::SLOWER)
        .prop_map(|(rate, second, third)| (rate, [second, third], false));
    let rates = match P::SCALES {
        Scales::Exact => exact.boxed(),
        Scales::Rounded => rounded.boxed(),
        Scales::Both => prop_oneof![exact, rounded].boxed(),
    };
    let spans = (1u32..100, 0i128..3);
    (rates, spans, any::<bool>())
        .prop_flat_map(|((rate, factors, is_exact), (eighths, nanos), lenient)| {
            let span = rate.eighths(eighths) + nanos;
            let scale = Scale { rate, span: span.max(1), is_exact, is_lean: false };
            versions::<P>(scale, factors, lenient)
        })
        .boxed()
}

/// So fast, and almost without a store, that a nanosecond lost at each grant would be seen.
pub(crate) fn lean_setups<P: Conforms>() -> BoxedStrategy<Setup<P>> {
    (65u64..80, any::<bool>())
        .prop_flat_map(|(nanos, lenient)| {
            let rate = Fraction { permits: 16, nanos };
            let scale = Scale { rate, span: 7, is_exact: false, is_lean: true };
            versions::<P>(scale, [2, 2], lenient)
        })
        .boxed()
}

fn versions<P: Conforms>(
    scale: Scale,
    [second, third]: [u64; 2],
    lenient: bool,
) -> impl Strategy<Value = Setup<P>> {
    let versions =
        [P::version(scale), P::version(scale.slower(second)), P::version(scale.slower(third))];
    versions.prop_map(move |versions| {
        let lenient = lenient && P::CATCHES_UP && measure::CATCHES_UP;
        let catch_up = if lenient { Duration::from_millis(2) } else { Duration::ZERO };
        Setup { versions: versions.into(), scale, catch_up }
    })
}

pub(crate) const CASES: u32 = measure::CASES;

/// The number from an environment variable, if it is set.
fn asked(variable: &str) -> Option<u64> {
    let number = env::var(variable).ok()?;
    Some(number.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// `LAWS_TIMES` times as many cases, and no more than `PROPTEST_CASES`: a long run, and a short one.
pub(crate) fn at_most_asked(cases: u32) -> u32 {
    let times = asked("LAWS_TIMES").unwrap_or(1).try_into().expect("some times");
    let cases = cases.saturating_mul(times);
    match env::var_os("PROPTEST_CASES") {
        Some(_) => cases.min(ProptestConfig::default().cases),
        None => cases,
    }
}

/// Runs a property on the same random values each time; `LAWS_SEED` gives others.
pub(crate) fn prove<S: Strategy>(
    cases: u32,
    values: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let seed = asked("LAWS_SEED").unwrap_or(0x70_11_6a_7e);
    let cases = at_most_asked(cases);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: measure::SHRINKS,
        // In many scripts no waiter could leave.
        max_global_rejects: cases.max(20_000),
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(values, property) {
        let error = match error {
            TestError::Fail(reason, least) => format!("{reason}\nwith {least:?}"),
            TestError::Abort(reason) => reason.to_string(),
        };
        let thread = thread::current();
        let test = thread.name().unwrap_or_default();
        panic!("LAWS_SEED={seed}, {cases} cases of {test}: {error}");
    }
}

pub(crate) fn nanos(time: Time) -> Duration {
    let nanos = u128::try_from(time).expect("a time on the clock") * measure::UNIT.as_nanos();
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let seconds = u64::try_from(seconds).expect("a time on the clock");
    Duration::new(seconds, u32::try_from(nanos).expect("less than a second"))
}

pub(crate) fn time(duration: Duration) -> Time {
    let units = duration.as_nanos() / measure::UNIT.as_nanos();
    i128::try_from(units).expect("a time on the clock")
}
