//! `SlidingWindowLog` and `SlidingWindowCounter`: a list of all grants, from which the windows are
//! counted anew each time.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{SlidingWindowCounter, SlidingWindowLog};

use crate::history::History;
use crate::measure;
use crate::oracle::{Conforms, Oracle, Scale, Time, When, nanos};

/// All versions have windows of one length: how much of the past a longer one counts depends on the
/// grants already forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) limit: u32,
    pub(crate) window: Time,
    /// Into how many parts a counter cuts it.
    pub(crate) parts: Option<u32>,
}

#[derive(Clone, Debug)]
struct Grants {
    versions: Vec<Version>,
    version: Version,
    /// The caller, the permits, and the time of each grant.
    grants: Vec<(usize, Time, u32)>,
}

impl Version {
    /// How long one part of the window is; a nanosecond where there are none.
    fn part(&self) -> Time {
        let parts = i128::from(self.parts.unwrap_or(1));
        if self.parts.is_some() { -(-self.window).div_euclid(parts) } else { 1 }
    }

    /// Of how many parts a window is made.
    fn all(&self) -> Time {
        self.parts.map_or(self.window, i128::from)
    }

    /// Whether a grant at `at` counts at `now`: it is in the current part, or in one of the earlier
    /// parts of the window.
    fn counts(&self, at: Time, now: Time) -> bool {
        at / self.part() > now / self.part() - self.all()
    }

    /// When it stops counting.
    fn end(&self, at: Time) -> Time {
        (at / self.part() + self.all()) * self.part()
    }
}

impl Grants {
    fn new(versions: &[Version]) -> Self {
        Self { versions: versions.to_vec(), version: versions[0], grants: Vec::new() }
    }

    fn granted(&self, now: Time) -> u32 {
        let counts = self.grants.iter().filter(|&&(_, at, _)| self.version.counts(at, now));
        counts.map(|&(.., n)| n).sum()
    }
}

impl Oracle for Grants {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    /// Now, or one of the moments at which something stops counting.
    fn ready(&self, now: Time, n: u32) -> When {
        let ends = self.grants.iter().map(|&(_, at, _)| self.version.end(at));
        let mut moments: Vec<Time> = ends.filter(|&end| end > now).chain([now]).collect();
        moments.sort_unstable();
        let ready = moments.into_iter().find(|&at| self.granted(at) + n <= self.version.limit);
        ready.map_or(When::Never, When::At)
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        self.grants.push((id, at, n));
    }

    fn refund(&mut self, id: usize, _: Time) {
        self.grants.retain(|&(other, ..)| other != id);
    }

    fn set_policy(&mut self, index: usize, _: Time) {
        self.version = self.versions[index];
    }
}

fn version(scale: Scale) -> impl Strategy<Value = Version> {
    prop_oneof![6 => 1u32..12, 2 => Just(40u32), 1 => Just(0)].prop_map(move |limit| Version {
        limit,
        window: scale.span,
        parts: None,
    })
}

impl Conforms for SlidingWindowLog {
    type Policy = Self;
    type Version = Version;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        version(scale).boxed()
    }

    fn policy(version: &Version, _: Duration) -> Self {
        Self::new(version.limit, nanos(version.window))
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        Box::new(Grants::new(versions))
    }

    /// No half-open window holds more, wherever it ends: it is enough to look where one ends with a
    /// grant.
    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        history.together(
            |version| versions[version].limit,
            |earlier, grant| earlier.at > grant.at - versions[grant.version].window,
        )
    }

    fn cost(n: u32) -> u32 {
        n
    }
}

impl Conforms for SlidingWindowCounter {
    type Policy = Self;
    type Version = Version;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        // The same number for all versions.
        let parts = u32::try_from(scale.span % 7 + 1).expect("a few");
        let over = scale.span % i128::from(parts);
        let window =
            if measure::WHOLE_PARTS { scale.span + i128::from(parts) - over } else { scale.span };
        let of = move |version| Version { parts: Some(parts), window, ..version };
        version(scale).prop_map(of).boxed()
    }

    fn policy(version: &Version, _: Duration) -> Self {
        let parts = version.parts.expect("parts of a counter");
        Self::new(version.limit, nanos(version.window), parts)
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        Box::new(Grants::new(versions))
    }

    /// No span of a window less one part holds more.
    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        history.together(
            |version| versions[version].limit,
            |earlier, grant| {
                let version = versions[grant.version];
                let span = (version.all() - 1) * version.part();
                earlier.at > grant.at - span.max(1)
            },
        )
    }

    fn cost(n: u32) -> u32 {
        n
    }
}
