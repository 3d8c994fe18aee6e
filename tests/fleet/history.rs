//! The grants that the callers of all processes saw, and their laws.

use std::fmt::Write;

use crate::job::{HORIZON, Rule, micros};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// When the caller resumed.
    pub(crate) seen: u64,
    /// Its due time by its process.
    pub(crate) due: u64,
    pub(crate) permits: u64,
    pub(crate) waited: u64,
    pub(crate) process: usize,
}

/// The time of a change for all, and the number of waiters in its process then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    pub(crate) called: u64,
    pub(crate) confirmed: u64,
    pub(crate) waiting: u64,
}

/// All times in microseconds.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) start: u64,
    /// In the order in which they were due.
    pub(crate) grants: Vec<Grant>,
    pub(crate) changes: Vec<Changed>,
    /// The longest duration of a request and of the start of a call: two grants can be noted this much closer
    /// to each other than they were by the server.
    pub(crate) trip: u64,
    /// The same of each process.
    pub(crate) trips: Vec<u64>,
    /// The number of callers that left, and of those that left after a request for them.
    pub(crate) left: u64,
    pub(crate) given_up: u64,
    pub(crate) requests: u64,
    /// How long callers had their grants, all together.
    pub(crate) held: u64,
}

/// The greatest rate in force at each time: the time from which it holds, and the permits a second.
pub(crate) type Rates = Vec<(u64, f64)>;

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

/// The permits that come from `from` to `to`.
fn come(rates: &Rates, from: u64, to: u64) -> f64 {
    let ends = rates.iter().skip(1).map(|&(since, _)| since).chain([u64::MAX]);
    let pieces = rates
        .iter()
        .zip(ends)
        .map(|(&(since, rate), end)| rate * seconds(to.min(end).saturating_sub(from.max(since))));
    pieces.sum()
}

fn count(permits: u64) -> f64 {
    u32::try_from(permits).expect("a run lasts seconds").into()
}

impl History {
    /// The largest delay of a caller's wake-up.
    pub(crate) fn wake(&self) -> u64 {
        self.grants.iter().map(|grant| grant.seen.saturating_sub(grant.due)).max().unwrap_or(0)
    }

    /// The permits in the fullest span beyond those that came, if grants are up to `late` after
    /// their due times by the server. Law 1: at most a burst and one prepaid request.
    fn excess(mut times: Vec<(u64, u64)>, rates: &Rates, late: u64) -> f64 {
        times.sort_unstable();
        let Some(&(first, _)) = times.first() else { return 0.0 };
        let origin = first.saturating_sub(late);
        let (mut before, mut least, mut most) = (0, f64::INFINITY, 0.0_f64);
        for (time, permits) in times {
            least = least.min(count(before) - come(rates, origin, time.saturating_sub(late)));
            before += permits;
            most = most.max(count(before) - come(rates, origin, time) - least);
        }
        most
    }

    /// Law 1 over all grants of the fleet: when they were due, and when callers resumed. Returns
    /// the excess of both.
    #[track_caller]
    pub(crate) fn keeps_law_1(&self, rates: &Rates, burst: f64) -> (f64, f64) {
        let due = self.grants.iter().map(|grant| (grant.due, grant.permits)).collect();
        let seen = self.grants.iter().map(|grant| (grant.seen, grant.permits)).collect();
        let due = Self::excess(due, rates, self.trip);
        let seen = Self::excess(seen, rates, self.trip + self.wake());
        // A millionth for the sums of floats.
        assert!(due <= burst + 1e-6, "due: {due:.3} too many in a span, {burst} may be");
        assert!(seen <= burst + 1e-6, "seen: {seen:.3} too many in a span, {burst} may be");
        (due, seen)
    }

    /// The part of the rate that was used between two times after the start.
    pub(crate) fn utilisation(&self, rates: &Rates, from: u64, to: u64) -> f64 {
        let (from, to) = (self.start + from, self.start + to);
        let mut within = self.grants.iter().filter(|grant| (from..to).contains(&grant.due));
        let Some(first) = within.next() else { return 0.0 };
        let (mut permits, mut last) = (0, first.due);
        for grant in within {
            permits += grant.permits;
            last = grant.due;
        }
        // No caller arrives after the end: that time is not used either, but for the last interval.
        let rate = rates[0].1;
        let end = if count(permits) < rate * seconds(to - first.due) * 0.9 { to } else { last };
        count(permits) / come(rates, first.due, end)
    }

    /// The part of the time in which places were in use.
    pub(crate) fn places_used(&self, places: u32, lasts: u64) -> f64 {
        seconds(self.held) / (seconds(lasts) * f64::from(places))
    }

    /// Whether the machine delayed a process for longer than the bookings ahead last.
    pub(crate) fn was_held_up(&self) -> bool {
        self.trip + self.wake() >= micros(HORIZON)
    }

    /// What it costs at most, as a part of a time, if the machine delayed all processes, perhaps repeatedly.
    pub(crate) fn cost_of_delays(&self, time: u64) -> f64 {
        3.0 * seconds(self.trip + self.wake()) / seconds(time)
    }

    /// At least 98 % of the rate was used in a time of that length, and not more than the rate, but for the
    /// cost of delays.
    #[track_caller]
    pub(crate) fn uses(&self, used: f64, time: u64) {
        let cost = if self.was_held_up() { self.cost_of_delays(time) } else { 0.0 };
        let timeline = self.timeline();
        assert!(used >= 0.98 - cost, "{used:.4} of the rate, -{cost:.2}: {timeline:?}");
        assert!(used <= 1.02 + cost, "{used:.4} of the rate, +{cost:.2}: {timeline:?}");
    }

    /// The smallest share of a process; 1 is an equal share.
    pub(crate) fn least_share(&self, processes: usize) -> f64 {
        self.shares(processes, 0).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// The share of each process from a time after the start on; 1 is an equal share.
    pub(crate) fn shares(&self, processes: usize, from: u64) -> Vec<f64> {
        let mut shares = vec![0; processes];
        for grant in self.grants.iter().filter(|grant| grant.due >= self.start + from) {
            shares[grant.process] += grant.permits;
        }
        let total: u64 = shares.iter().sum();
        let processes = f64::from(u32::try_from(processes).expect("few"));
        let equal = count(total.max(1)) / processes;
        shares.into_iter().map(|share| count(share) / equal).collect()
    }

    /// The permits due in each tenth of a second, to diagnose a law that is broken.
    pub(crate) fn timeline(&self) -> Vec<u64> {
        let mut tenths = Vec::new();
        for grant in &self.grants {
            let tenth = usize::try_from(grant.due.saturating_sub(self.start) / 100_000);
            let tenth = tenth.expect("a run lasts seconds");
            tenths.resize(tenths.len().max(tenth + 1), 0);
            tenths[tenth] += grant.permits;
        }
        tenths
    }

    pub(crate) fn left_count(&self) -> f64 {
        count(self.left)
    }

    /// A row of the table of measurements.
    pub(crate) fn row(&self, rule: &Rule, rest: &str) -> String {
        let mut row = format!("{:?} {:>6}/s", rule.kind, rule.rate);
        let permits: u64 = self.grants.iter().map(|grant| grant.permits).sum();
        let _ = write!(row, "  granted {permits:>6}  requests {:>6}", self.requests);
        let ms = |micros: u64| seconds(micros) * 1e3;
        let _ = write!(row, "  trip {:>5.1} ms  wake {:>5.1} ms", ms(self.trip), ms(self.wake()));
        row + "  " + rest
    }
}

/// A row about callers that all do the same.
pub(crate) fn table_row(
    history: &History,
    rule: &Rule,
    (due, seen): (f64, f64),
    used: f64,
    share: f64,
) {
    let (most, used) = (rule.most_at_once(1), 100.0 * used);
    let rest =
        format!("excess {due:.1}/{seen:.1} of {most:.1}  used {used:.2} %  least share {share:.2}");
    println!("{}", history.row(rule, &rest));
}
