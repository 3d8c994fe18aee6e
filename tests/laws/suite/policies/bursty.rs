//! `SmoothBursty`: a store of time, and no caller waits for its own permits.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::SmoothBursty;

use super::bucket::{Bucket, Keeps, Terms};
use crate::history::History;
use crate::oracle::{Conforms, Fraction, Oracle, Scale, Scales, TICKS, Time, nanos};

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) rate: Fraction,
    pub(crate) max_burst: Time,
}

impl Conforms for SmoothBursty {
    type Policy = Self;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const PREPAID: bool = true;
    const SCALES: Scales = Scales::Both;

    fn version(Scale { rate, is_lean, .. }: Scale) -> BoxedStrategy<Version> {
        if is_lean {
            return Just(Version { rate, max_burst: 0 }).boxed();
        }
        // One that is never full, too.
        prop_oneof![Just(0u32), 1u32..64, Just(400), Just(u32::MAX)]
            .prop_map(move |eighths| {
                let max_burst = if eighths == u32::MAX { 1 << 60 } else { rate.eighths(eighths) };
                Version { rate, max_burst }
            })
            .boxed()
    }

    fn policy(version: &Version, catch_up: Duration) -> Self {
        let policy = Self::new(version.rate.rate());
        policy.max_burst(nanos(version.max_burst)).with_catch_up(catch_up)
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        let terms = versions.iter().map(|version| Terms {
            interval: version.rate.interval(),
            store: version.max_burst * TICKS,
            strict: None,
            room: None,
            step: None,
            keeps: Keeps::Time,
        });
        Box::new(Bucket::new(terms.collect(), 0))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        history.prepaid(
            |version| versions[version].rate.interval(),
            |version| versions[version].max_burst * TICKS,
        )
    }

    fn cost(n: u32) -> u32 {
        n
    }

    fn with_thousand(rate: Fraction) -> Option<Version> {
        let max_burst = 1000 * rate.nanos_each();
        Some(Version { rate, max_burst })
    }
}
