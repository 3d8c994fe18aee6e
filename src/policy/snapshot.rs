//! What a limiter does at one moment, to be looked at.

use std::fmt;
use std::time::Duration;

use super::{Cost, Policy, Quota};
use crate::units::{Nanos, Rate, to_millis};

/// What a limiter does now, from [`Limiter::snapshot`](crate::Limiter::snapshot): its limit, its queue and its pause.
///
/// It prints in a line, for logs, and so does the `Debug` of a limiter.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, PausedBy, Rate, RateLimiter, TokenBucket};
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(5.0), 10), &clock);
/// limiter.try_acquire(4)?;
/// assert_eq!(limiter.snapshot().to_string(), "6 of 10 left, all in 800ms; 5/s");
///
/// let first = limiter.reserve(10)?;
/// clock.advance(Duration::from_millis(300));
/// let second = limiter.reserve(1)?;
/// limiter.pause_for(Duration::from_secs(30));
/// let now = limiter.snapshot();
/// assert_eq!((now.waiting, now.ages[0].as_millis()), (2, 300));
/// assert_eq!(now.pause.map(|pause| pause.by), Some(PausedBy::Program));
/// assert_eq!(
///     now.to_string(),
///     "0 of 10 left, all in 32s; 5/s; 2 wait, for 300ms, 0ns; paused for 30s by the program",
/// );
/// # drop((first, second)); Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot<C> {
    /// The limit and what remains of it.
    pub quota: Quota<C>,
    /// The steady rate: of several limits the lowest, of a tuple the first. `None` of places in flight, and without a
    /// limit.
    pub rate: Option<Rate>,
    /// The callers of this process that wait.
    pub waiting: usize,
    /// How long the first four of them have waited, in the order of the queue.
    pub ages: Vec<Duration>,
    /// Why nothing is granted, whatever remains.
    pub pause: Option<Pause>,
}

/// A pause of a limiter.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{InFlight, ManualClock, PausedBy, RateLimiter};
///
/// let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
/// limiter.pause_for(Duration::from_secs(7));
/// let pause = limiter.snapshot().pause.expect("it is paused");
/// assert_eq!((pause.ends_in.as_secs(), pause.by), (7, PausedBy::Program));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// When it ends, from now.
    pub ends_in: Duration,
    /// Who asked for it.
    pub by: PausedBy,
}

/// Who asked for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PausedBy {
    /// A call of `pause_for`.
    Program,
    /// A server that refused a call.
    Server,
}

impl Pause {
    /// `None` if it is over.
    pub(crate) fn of(ends_in: Duration, by: PausedBy) -> Option<Self> {
        (!ends_in.is_zero()).then_some(Self { ends_in, by })
    }
}

impl<C> Snapshot<C> {
    /// How many ages it has.
    pub(crate) const AGES: usize = 4;

    /// With callers that wait elsewhere, in the order of their ages.
    #[must_use]
    pub(crate) fn with_waiting(mut self, waiting: usize, ages: &[Duration]) -> Self {
        self.waiting += waiting;
        self.ages.extend(ages);
        self.ages.sort_by_key(|&age| std::cmp::Reverse(age));
        self.ages.truncate(Self::AGES);
        self
    }

    /// With another rate and pause: the lower rate counts, and the longer pause.
    #[must_use]
    pub(crate) fn held_by(mut self, rate: Option<Rate>, pause: Option<Pause>) -> Self {
        self.rate = lowest([self.rate, rate]);
        let pauses = [self.pause, pause].into_iter().flatten();
        self.pause = pauses.max_by_key(|pause| pause.ends_in);
        self
    }
}

impl<C: Cost> Snapshot<C> {
    /// While no caller waits.
    pub(crate) fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, now: Nanos) -> Self {
        let quota = Quota::of(policy, state, now);
        Self { quota, rate: (P::HOOKS.rate)(policy), waiting: 0, ages: Vec::new(), pause: None }
    }

    /// Of two limiters with one decision.
    #[must_use]
    pub(crate) fn and(self, second: &Self) -> Self {
        let quota = self.quota.and(second.quota);
        let both = self.with_waiting(second.waiting, &second.ages);
        Self { quota, ..both.held_by(second.rate, second.pause) }
    }
}

/// The lowest of the rates that there are.
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
        if let Some(Pause { ends_in, by }) = self.pause {
            let by = match by {
                PausedBy::Program => "the program",
                PausedBy::Server => "the server",
            };
            write!(f, "; paused for {:?} by {by}", to_millis(ends_in))?;
        }
        Ok(())
    }
}
