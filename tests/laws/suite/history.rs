//! What was granted, as law 1 looks at it, and the kinds of limit that it is held against.

use crate::oracle::{TICKS, Time};

/// Permits that were granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    /// The how-manieth of all events this was.
    pub(crate) turn: u32,
    /// The one by which a grant that was held had been dropped.
    pub(crate) dropped: Option<u32>,
    pub(crate) at: Time,
    pub(crate) n: u32,
    /// The version of the policy in force then.
    pub(crate) version: usize,
    /// Nobody has used them.
    pub(crate) given_back: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    /// In the order in which they were granted.
    pub(crate) all: Vec<Granted>,
    /// Since which turn which version was in force.
    pub(crate) versions: Vec<(u32, usize)>,
    /// So many permits more are let pass.
    pub(crate) slack: u32,
    /// Only what was granted after a pause that began in this turn is looked at, from the end of
    /// the pause on, when nothing is stored.
    pub(crate) resumed: Option<(u32, Time)>,
}

impl History {
    /// What of it concerns one of several rules.
    pub(crate) fn share(&self, share: fn(u32) -> u32) -> Self {
        let all = self.all.iter().map(|grant| Granted { n: share(grant.n), ..*grant });
        Self { all: all.filter(|grant| grant.n > 0).collect(), ..self.clone() }
    }

    /// What was granted and not given back.
    fn kept(&self) -> Vec<Granted> {
        let first = self.resumed.map_or(0, |(turn, _)| turn);
        let kept = self.all.iter().filter(|grant| !grant.given_back && grant.turn >= first);
        kept.copied().collect()
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
        let until = self.versions.iter().map(|&(since, _)| since).skip(1).chain([u32::MAX]);
        let spans = self.versions.iter().zip(until);
        // What came before the first grant counts, too, where that is not where the span begins.
        let earlier = u32::from(self.resumed.is_some());
        let meets = move |&(&(since, _), until): &(&(u32, usize), u32)| {
            since <= last && first < until.saturating_add(earlier)
        };
        spans.filter(meets).map(|(&(_, version), _)| version)
    }

    /// What was granted in a span, without its last request, is worth no more than the span and what
    /// could be stored. Each permit counts at the price in force when it was granted, which is
    /// stricter than the law, where all count at the greatest rate in force.
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

    /// What was granted in a span is no more than the greatest capacity in force, and what came at
    /// the greatest rate; in steps, one step more. `bucket` says what one permit takes, the capacity
    /// in permits, and the step. In a bucket that `grows`, what is added to the capacity is there
    /// at once.
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
            let share = stored * fastest + (end - start + step + 2) * TICKS;
            if permits * fastest > share {
                let share = share / fastest;
                return Err(format!("{permits} permits in {start}..={end}, share {share}"));
            }
        }
        Ok(())
    }

    /// Whenever something is granted, all that counts together with it is within the limit.
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
