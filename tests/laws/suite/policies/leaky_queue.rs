//! `LeakyBucket` as a queue: an even outflow, and a bounded room.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::LeakyBucket;

use super::bucket::{Bucket, Keeps, Terms};
use crate::history::History;
use crate::oracle::{Conforms, Fraction, Oracle, Scale, Scales};

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) rate: Fraction,
    pub(crate) capacity: u32,
}

impl Conforms for LeakyBucket {
    type Policy = Self;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const SCALES: Scales = Scales::Both;

    fn version(Scale { rate, is_lean, .. }: Scale) -> BoxedStrategy<Version> {
        let capacities = if is_lean {
            Just(30u32).boxed()
        } else {
            prop_oneof![1 => 1u32..4, 4 => 4u32..40, 1 => Just(400)].boxed()
        };
        capacities.prop_map(move |capacity| Version { rate, capacity }).boxed()
    }

    fn policy(version: &Version, catch_up: Duration) -> Self {
        Self::new(version.rate.rate(), version.capacity).with_catch_up(catch_up)
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        let terms = versions.iter().map(|version| Terms {
            interval: version.rate.interval(),
            store: 0,
            strict: None,
            room: Some(version.capacity),
            step: None,
            keeps: Keeps::Time,
        });
        Box::new(Bucket::new(terms.collect(), 0))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        history.prepaid(|version| versions[version].rate.interval(), |_| 0)
    }

    fn cost(n: u32) -> u32 {
        n
    }

    fn with_thousand(rate: Fraction) -> Option<Version> {
        Some(Version { rate, capacity: 1000 })
    }
}
