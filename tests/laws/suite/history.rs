//! The grants, as law 1 checks them, and the kinds of limit that it checks.

use crate::oracle::{TICKS, Time};

/// Permits that were granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    /// The position of this grant among all events.
    pub(crate) turn: u32,
    /// The event by which a held grant was dropped.
    pub(crate) dropped: Option<u32>,
    pub(crate) at: Time,
    pub(crate) n: u32,
    /// What it has cost in the end: what is more than `n` is owed, and does not count.
    pub(crate) settled: u32,
    /// The version of the policy in force then.
    pub(crate) version: usize,
    /// Refunded unused.
    pub(crate) given_back: bool,
}

impl Granted {
    /// What it has cost of what was granted.
    pub(crate) fn cost(&self) -> u32 {
        if self.given_back { 0 } else { self.n.min(self.settled) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    /// In the order in which they were granted.
    pub(crate) all: Vec<Granted>,
    /// When settlements charged more, which may begin a window: grants of nothing.
    pub(crate) debts: Vec<Granted>,
    /// The versions of the policy, each with the turn and the time from which it was in force.
    pub(crate) versions: Vec<(u32, Time, usize)>,
    /// By how much a window may be longer by the clock of the callers, because that of the server went back; in a
    /// pause, it begins at its end.
    pub(crate) longer: Time,
    /// Extra permits that are allowed.
    pub(crate) slack: u32,
    /// Only grants after a pause that began in this turn are checked, from the end of the pause on,
    /// when nothing is stored.
    pub(crate) resumed: Option<(u32, Time)>,
}

impl History {
    /// The part that concerns one of several policies.
    pub(crate) fn share(&self, share: fn(u32) -> u32) -> Self {
        let part = |grant: &Granted| Granted {
            n: share(grant.n),
            settled: share(grant.settled),
            ..*grant
        };
        let all = self.all.iter().map(part);
        Self { all: all.filter(|grant| grant.n > 0).collect(), ..self.clone() }
    }

    /// Grants that were not given back, with what they have cost of what was granted.
    fn kept(&self) -> Vec<Granted> {
        let first = self.resumed.map_or(0, |(turn, _)| turn);
        let kept = self.all.iter().filter(|grant| !grant.given_back && grant.turn >= first);
        kept.map(|grant| Granted { n: grant.cost(), ..*grant }).collect()
    }

    /// All spans from one grant to another, and the grants in them.
    fn spans(&self) -> impl Iterator<Item = (Time, Time, Vec<Granted>)> {
        let kept = self.kept();
        let times: Vec<Time> = kept.iter().map(|grant| grant.at).collect();
        let starts = self.resumed.map_or_else(|| times.clone(), |(_, end)| vec![end]);
        starts.into_iter().flat_map(move |start| {
            let ends = times.clone().into_iter().filter(move |&end| end >= start);
            let kept = kept.clone();
            ends.map(move |end| {
                let inside = |grant: &&Granted| (start..=end).contains(&grant.at);
                (start, end, kept.iter().filter(inside).copied().collect())
            })
        })
    }

    /// Versions in force from the first to the last of some grants. By turns, because time may go
    /// back.
    fn in_force(&self, grants: &[Granted]) -> impl Iterator<Item = usize> {
        let turns = || grants.iter().map(|grant| grant.turn);
        let first = self.resumed.map(|(turn, _)| turn).or_else(|| turns().min()).unwrap_or(0);
        let last = turns().max().unwrap_or(u32::MAX);
        let until = self.versions.iter().map(|&(since, ..)| since).skip(1).chain([u32::MAX]);
        let spans = self.versions.iter().zip(until);
        // Versions before the first grant count too if the span does not begin there.
        let earlier = u32::from(self.resumed.is_some());
        let meets = move |&(&(since, ..), until): &(&(u32, Time, usize), u32)| {
            since <= last && first < until.saturating_add(earlier)
        };
        spans.filter(meets).map(|(&(.., version), _)| version)
    }

    /// The grants in a span, without the last, are worth no more than the span and the store. Each
    /// permit counts at the price in force when it was granted, which is stricter than the law,
    /// where all count at the greatest rate in force.
    pub(crate) fn prepaid(
        &self,
        interval: impl Fn(usize) -> i128,
        stored: impl Fn(usize) -> i128,
    ) -> Result<(), String> {
        for (start, end, grants) in self.spans() {
            let worth = |grant: &Granted| interval(grant.version) * i128::from(grant.n);
            let (_, before) = grants.split_last().expect("that at the end");
            let worth: i128 = before.iter().map(worth).sum();
            let stored = self.in_force(&grants).map(&stored).max().expect("a version");
            let stored = if self.resumed.is_some() { 0 } else { stored };
            // Due times are rounded up to nanoseconds, which a store makes good.
            let share = (end - start + 2) * TICKS + stored;
            if worth > share {
                let (worth, share) = (worth / TICKS, share / TICKS);
                return Err(format!("{worth} ns worth in {start}..={end}, share {share}"));
            }
        }
        Ok(())
    }

    /// The permits granted in a span are at most the greatest capacity in force, plus the permits
    /// that came at the greatest rate; with steps, one step more. `bucket` gives the interval of
    /// one permit, the capacity in permits, and the step. In a bucket that `grows`, added capacity
    /// is available at once.
    pub(crate) fn stored(
        &self,
        grows: bool,
        bucket: impl Fn(usize) -> (i128, u32, Time),
    ) -> Result<(), String> {
        for (start, end, grants) in self.spans() {
            let in_force: Vec<_> = self.in_force(&grants).map(&bucket).collect();
            let fastest = in_force.iter().map(|&(interval, ..)| interval).min();
            let capacity = in_force.iter().map(|&(_, capacity, _)| capacity).max();
            let least = in_force.iter().map(|&(_, capacity, _)| capacity).min();
            let step = in_force.iter().map(|&(.., step)| step).max();
            let (Some(fastest), Some(capacity), Some(step)) = (fastest, capacity, step) else {
                unreachable!("some version is in force");
            };
            let unused = if grows { capacity - least.unwrap_or(0) } else { 0 };
            let stored = if self.resumed.is_some() { unused } else { capacity };
            let permits: i128 = grants.iter().map(|grant| i128::from(grant.n)).sum();
            let stored = i128::from(stored + self.slack);
            // What had come by a change keeps its number if the clock goes back behind it.
            let (first, last) = (grants.first(), grants.last());
            let turns = first.map_or(0, |grant| grant.turn)..=last.map_or(0, |grant| grant.turn);
            let changes = self.versions.iter().skip(1).filter(|change| turns.contains(&change.0));
            let until = changes.fold(end, |end, &(_, at, _)| end.max(at));
            let share = stored * fastest + (until - start + step + 2) * TICKS;
            if permits * fastest > share {
                let share = share / fastest;
                return Err(format!("{permits} permits in {start}..={end}, share {share}"));
            }
        }
        Ok(())
    }

    /// At each grant, the permits that count together with it are within the limit.
    pub(crate) fn together(
        &self,
        limit: impl Fn(usize) -> u32,
        count: impl Fn(&Granted, &Granted) -> bool,
    ) -> Result<(), String> {
        let kept = self.kept();
        for (index, grant) in kept.iter().enumerate() {
            let counts = kept[..=index].iter().filter(|earlier| count(earlier, grant));
            let permits: u64 = counts.map(|grant| u64::from(grant.n)).sum();
            let limit = limit(grant.version);
            if permits > u64::from(limit) {
                return Err(format!("{permits} of {limit} permits at {}", grant.at));
            }
        }
        Ok(())
    }
}
