//! `InFlight`: a list of all places in flight.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::InFlight;

use crate::history::History;
use crate::oracle::{Conforms, Oracle, Scale, Time, When};

#[derive(Clone, Debug)]
struct Out {
    versions: Vec<u32>,
    max: u32,
    /// The callers in flight, each with its permits.
    out: Vec<(usize, u32)>,
}

impl Oracle for Out {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, now: Time, n: u32) -> When {
        let out: u32 = self.out.iter().map(|&(_, n)| n).sum();
        if n > self.max {
            When::Never
        } else if out + n <= self.max {
            When::At(now)
        } else {
            When::NotBefore(now)
        }
    }

    fn charge(&mut self, id: usize, _: Time, n: u32) {
        self.out.push((id, n));
    }

    /// That comes with the release.
    fn refund(&mut self, _: usize, _: Time) {}

    fn set_policy(&mut self, index: usize, _: Time) {
        self.max = self.versions[index];
    }

    fn holds(&self) -> bool {
        true
    }

    fn release(&mut self, id: usize) {
        self.out.retain(|&(other, _)| other != id);
    }
}

impl Conforms for InFlight {
    type Policy = Self;
    type Version = u32;

    const HOLDS: bool = true;

    fn version(_: Scale) -> BoxedStrategy<u32> {
        prop_oneof![8 => 1u32..12, 2 => Just(40u32), 1 => Just(0)].boxed()
    }

    fn policy(&max: &u32, _: Duration) -> Self {
        Self::new(max)
    }

    fn oracle(versions: &[u32]) -> Box<dyn Oracle> {
        Box::new(Out { versions: versions.to_vec(), max: versions[0], out: Vec::new() })
    }

    fn kept(versions: &[u32], history: &History) -> Result<(), String> {
        history.together(
            |version| versions[version],
            |earlier, grant| earlier.dropped.is_none_or(|dropped| dropped > grant.turn),
        )
    }

    fn cost(n: u32) -> u32 {
        n
    }
}
