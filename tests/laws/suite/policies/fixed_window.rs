//! `FixedWindow`: a list of all past windows, with their grants.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::FixedWindow;

use crate::history::History;
use crate::oracle::{Conforms, Oracle, Scale, Time, When, nanos};

/// A `FixedWindow` that is aligned to a grid.
#[derive(Debug)]
pub(crate) struct Aligned;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) limit: u32,
    pub(crate) length: Time,
    /// A window began this long before the clock's origin.
    pub(crate) epoch: Option<Time>,
}

#[derive(Clone, Debug)]
struct Windows {
    versions: Vec<Version>,
    version: Version,
    windows: Vec<Window>,
}

#[derive(Clone, Debug)]
struct Window {
    start: Time,
    /// The callers granted in it, each with its permits.
    grants: Vec<(usize, u32)>,
}

impl Windows {
    fn new(versions: &[Version]) -> Self {
        Self { versions: versions.to_vec(), version: versions[0], windows: Vec::new() }
    }

    /// The window in which something lies that happens now, if it has begun already. The last to
    /// begin is as long as the policy says now.
    fn present(&self, now: Time) -> Option<&Window> {
        self.windows.last().filter(|window| now < window.start + self.version.length)
    }
}

impl Oracle for Windows {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, now: Time, n: u32) -> When {
        if n > self.version.limit {
            return When::Never;
        }
        When::At(match self.present(now) {
            Some(window) => {
                let granted: u32 = window.grants.iter().map(|&(_, n)| n).sum();
                let fits = granted + n <= self.version.limit;
                if fits { now } else { window.start + self.version.length }
            }
            None => now,
        })
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        if self.present(at).is_none() {
            let epoch = self.version.epoch;
            let into = epoch.map_or(0, |epoch| (at + epoch).rem_euclid(self.version.length));
            self.windows.push(Window { start: at - into, grants: Vec::new() });
        }
        self.windows.last_mut().expect("one that has begun").grants.push((id, n));
    }

    /// A window that has begun stays one, even if nothing is left in it.
    fn refund(&mut self, id: usize, _: Time) {
        for window in &mut self.windows {
            window.grants.retain(|&(other, _)| other != id);
        }
    }

    fn set_policy(&mut self, index: usize, _: Time) {
        self.version = self.versions[index];
    }
}

fn version(scale: Scale) -> impl Strategy<Value = Version> {
    let limits = prop_oneof![6 => 1u32..12, 2 => Just(40u32), 1 => Just(0)];
    (limits, 1u32..100, 0i128..3).prop_map(move |(limit, eighths, nanos)| {
        let length = (scale.rate.eighths(eighths) + nanos).max(1);
        Version { limit, length, epoch: None }
    })
}

/// Any grant, with all others of its window, is within the limit. Windows as they come out of the
/// grants themselves; none that is begun under one version goes on under another, which is not for
/// this law to decide. Where a window may be longer, because a server sets its start forward when its
/// clock goes back, a grant after its length belongs to it or to the next, which may have begun
/// before: some assignment keeps the limit.
fn kept(versions: &[Version], history: &History) -> Result<(), String> {
    let is_exact = history.longer == 0;
    let mut windows = vec![(None, 0)];
    let mut last = None;
    let mut all: Vec<_> = history.debts.iter().chain(&history.all).collect();
    all.sort_by_key(|grant| grant.turn);
    for grant in all {
        let Version { limit, length, epoch } = versions[grant.version];
        let permits = u64::from(grant.cost());
        let begins =
            epoch.map_or(grant.at, |epoch| grant.at - (grant.at + epoch).rem_euclid(length));
        let mut next: Vec<(Option<Time>, u64)> = Vec::new();
        for (start, granted) in windows {
            let end = start.map_or(Time::MIN, |start| start + length);
            if grant.at < end.saturating_add(history.longer) {
                let counted = if last == Some(grant.version) { granted } else { 0 };
                next.push((start, counted + permits));
            }
            if grant.at >= end {
                let earliest = if is_exact { begins } else { end.max(grant.at - length + 1) };
                next.extend([earliest, begins].map(|start| (Some(start), permits)));
            }
        }
        next.sort_unstable();
        next.dedup();
        let most = next.iter().map(|&(_, granted)| granted).max().unwrap_or(0);
        next.retain(|&(_, granted)| granted <= u64::from(limit));
        if next.is_empty() {
            return Err(format!("{most} of {limit} in the window from {begins}"));
        }
        (windows, last) = (next, Some(grant.version));
    }
    Ok(())
}

impl Conforms for FixedWindow {
    type Policy = Self;
    type Version = Version;

    const BEGINS_WITH_A_GRANT: bool = true;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        version(scale).boxed()
    }

    fn policy(version: &Version, _: Duration) -> Self {
        Self::new(version.limit, nanos(version.length))
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        Box::new(Windows::new(versions))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        kept(versions, history)
    }

    fn cost(n: u32) -> u32 {
        n
    }
}

impl Conforms for Aligned {
    type Policy = FixedWindow;
    type Version = Version;

    fn version(scale: Scale) -> BoxedStrategy<Version> {
        (version(scale), 0i128..1 << 40)
            .prop_map(|(version, epoch)| Version { epoch: Some(epoch), ..version })
            .boxed()
    }

    fn policy(version: &Version, _: Duration) -> FixedWindow {
        let epoch = version.epoch.expect("the epoch to which it is aligned");
        FixedWindow::new(version.limit, nanos(version.length)).aligned(nanos(epoch))
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        Box::new(Windows::new(versions))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        kept(versions, history)
    }

    fn cost(n: u32) -> u32 {
        n
    }
}
