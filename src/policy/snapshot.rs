//! What a limiter does at one moment, to be looked at.

use std::fmt;
use std::time::Duration;

use super::{Cost, Policy, PolicyExt, Quota};
use crate::units::{Nanos, Rate, to_millis};

/// What a limiter does now, as its `Debug` shows it.
pub(crate) struct Snapshot<C> {
    pub(crate) quota: Quota<C>,
    /// The steady rate: of several limits the lowest, of a tuple the first. `None` of places in flight, and without a
    /// limit.
    pub(crate) rate: Option<Rate>,
    pub(crate) waiting: usize,
    /// How long the first four callers have waited, in the order of the queue.
    pub(crate) ages: Vec<Duration>,
    /// For how long nothing is granted, whatever remains.
    pub(crate) paused: Duration,
}

impl<C: Cost> Snapshot<C> {
    /// While no caller waits.
    pub(crate) fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, now: Nanos) -> Self {
        let (quota, rate) = (Quota::of(policy, state, now), policy.steady_rate());
        Self { quota, rate, waiting: 0, ages: Vec::new(), paused: Duration::ZERO }
    }
}

/// The lowest of the rates that there are.
#[cfg(feature = "metrics")]
pub(crate) fn lowest(rates: impl IntoIterator<Item = Option<Rate>>) -> Option<Rate> {
    let rates = rates.into_iter().flatten();
    rates.min_by(|one, other| one.as_per_second().total_cmp(&other.as_per_second()))
}

impl<C: Cost> Quota<C> {
    /// Of two limits that both hold.
    pub(crate) fn and(self, second: Self) -> Self {
        Self {
            limit: self.limit.each(second.limit, u32::min),
            remaining: self.remaining.each(second.remaining, u32::min),
            reset_after: self.reset_after.zip(second.reset_after).map(|(a, b)| a.max(b)),
            window: self.window.max(second.window),
        }
    }
}

/// In a line, for logs: "6 of 10 left, all in 800ms". A rate that stores nothing prints when the next permit comes: "none
/// stored, the next in 200ms".
impl<C: Cost> fmt::Display for Quota<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_all = |number| self.limit.numbers().all(|limit| limit == number);
        let (stores_nothing, wait) = (is_all(0), self.reset_after.unwrap_or_default());
        if is_all(u32::MAX) && self.remaining == self.limit {
            return f.write_str("no limit");
        }
        match (stores_nothing, wait.is_zero()) {
            (true, true) => f.write_str("none stored, the next at once"),
            (true, false) => write!(f, "none stored, the next in {:?}", to_millis(wait)),
            (false, _) => {
                write!(f, "{:?} of {:?} left", self.remaining, self.limit)?;
                if wait.is_zero() {
                    return Ok(());
                }
                write!(f, ", all in {:?}", to_millis(wait))
            }
        }
    }
}

impl<C: Cost> fmt::Display for Snapshot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quota.fmt(f)?;
        if let Some(rate) = self.rate {
            write!(f, "; {rate}")?;
        }
        if self.waiting > 0 {
            write!(f, "; {} wait", self.waiting)?;
        }
        for (index, age) in self.ages.iter().enumerate() {
            let before = if index == 0 { ", for" } else { "," };
            write!(f, "{before} {:?}", to_millis(*age))?;
        }
        if self.waiting > self.ages.len() && !self.ages.is_empty() {
            f.write_str(", ..")?;
        }
        if !self.paused.is_zero() {
            write!(f, "; paused for {:?}", to_millis(self.paused))?;
        }
        Ok(())
    }
}
