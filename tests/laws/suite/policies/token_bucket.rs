//! `TokenBucket`, `Gcra` and the meter of `LeakyBucket`: up to a capacity at once, all of which
//! must be available. They differ in their parameters, and in the state they keep when those
//! change.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Gcra, LeakyBucket, TokenBucket};

use super::bucket::{Bucket, Keeps, Terms};
use crate::history::History;
use crate::oracle::{Conforms, Fraction, Oracle, Scale, Scales, Time, nanos};

/// A `TokenBucket` with `refill_every`.
#[derive(Debug)]
pub(crate) struct Stepwise;

/// A `LeakyBucket::meter`.
#[derive(Debug)]
pub(crate) struct Meter;

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) rate: Fraction,
    pub(crate) capacity: u32,
    pub(crate) initial: u32,
    pub(crate) step: Time,
}

impl Version {
    fn terms(&self, keeps: Keeps) -> Terms {
        let interval = self.rate.interval();
        let (store, strict) = (interval * i128::from(self.capacity), Some(self.capacity));
        Terms { interval, store, strict, room: None, step: None, keeps }
    }

    fn full(rate: Fraction, capacity: u32) -> Self {
        Self { rate, capacity, initial: capacity, step: 0 }
    }
}

/// Buckets that are full at first.
fn version(Scale { rate, is_lean, .. }: Scale) -> BoxedStrategy<Version> {
    let capacities = if is_lean {
        Just(30u32).boxed()
    } else {
        prop_oneof![1 => 1u32..4, 4 => 4u32..40, 1 => Just(400)].boxed()
    };
    capacities.prop_map(move |capacity| Version::full(rate, capacity)).boxed()
}

fn oracle(versions: &[Version], keeps: Keeps) -> Box<dyn Oracle> {
    let terms = versions.iter().map(|version| version.terms(keeps)).collect();
    Box::new(Bucket::new(terms, versions[0].initial))
}

fn kept(versions: &[Version], keeps: Keeps, history: &History) -> Result<(), String> {
    history.stored(keeps == Keeps::Missing, |index| {
        let version = &versions[index];
        (version.rate.interval(), version.capacity, version.step)
    })
}

fn with_thousand(rate: Fraction) -> Option<Version> {
    Some(Version::full(rate, 1000))
}

/// What each form of a bucket has, which keeps its content by `$keeps`.
macro_rules! of_bucket {
    ($keeps:expr) => {
        fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
            oracle(versions, $keeps)
        }

        fn kept(versions: &[Version], history: &History) -> Result<(), String> {
            kept(versions, $keeps, history)
        }

        fn cost(n: u32) -> u32 {
            n
        }

        fn with_thousand(rate: Fraction) -> Option<Version> {
            with_thousand(rate)
        }
    };
}

impl Conforms for TokenBucket {
    type Policy = Self;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const KNOWS_LAST: bool = false;
    const SCALES: Scales = Scales::Both;
    const TOLERANCE: Time = 48;
    const SLOWER: u64 = 4;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        (version(scale), any::<Option<u32>>())
            .prop_map(|(version, initial)| {
                let initial = initial.map_or(version.capacity, |some| some % 8);
                Version { initial, ..version }
            })
            .boxed()
    }

    fn policy(version: &Version, catch_up: Duration) -> Self {
        let policy = Self::new(version.rate.rate(), version.capacity);
        policy.initial(version.initial).with_catch_up(catch_up)
    }

    of_bucket!(Keeps::Number);
}

/// Only exact rates: where rounding makes a permit a nanosecond late, a step makes it a step late.
impl Conforms for Stepwise {
    type Policy = TokenBucket;
    type Version = Version;

    const CATCHES_UP: bool = true;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        version(scale).prop_map(move |version| Version { step: scale.span, ..version }).boxed()
    }

    fn policy(version: &Version, catch_up: Duration) -> TokenBucket {
        <TokenBucket as Conforms>::policy(version, catch_up).refill_every(nanos(version.step))
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        let stepwise = |version: &Version| {
            let step = Some(version.step * crate::oracle::TICKS);
            Terms { step, ..version.terms(Keeps::Number) }
        };
        Box::new(Bucket::new(versions.iter().map(stepwise).collect(), versions[0].initial))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        kept(versions, Keeps::Number, history)
    }

    fn cost(n: u32) -> u32 {
        n
    }

    fn step(version: &Version) -> Time {
        version.step
    }

    fn with_thousand(rate: Fraction) -> Option<Version> {
        Some(Version { step: 1_000_000, ..Version::full(rate, 1000) })
    }
}

impl Conforms for Gcra {
    type Policy = Self;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const KNOWS_LAST: bool = false;
    const SCALES: Scales = Scales::Both;
    const TOLERANCE: Time = 48;
    const SLOWER: u64 = 4;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        version(scale)
    }

    fn policy(version: &Version, catch_up: Duration) -> Self {
        let Fraction { permits, nanos } = version.rate;
        let count = u32::try_from(permits).expect("some permits");
        Self::new(version.capacity - 1, count, crate::oracle::nanos(i128::from(nanos)))
            .with_catch_up(catch_up)
    }

    of_bucket!(Keeps::Number);
}

impl Conforms for Meter {
    type Policy = LeakyBucket;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const SCALES: Scales = Scales::Both;
    const TOLERANCE: Time = 48;
    const SLOWER: u64 = 4;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        version(scale)
    }

    fn policy(version: &Version, catch_up: Duration) -> LeakyBucket {
        LeakyBucket::meter(version.rate.rate(), version.capacity).with_catch_up(catch_up)
    }

    of_bucket!(Keeps::Missing);
}
