//! What happens at a time, in order; and the time of what is decided under one lock.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Bound;

use crate::units::Nanos;

/// A number at a time. Those of one time are in the order of their ranks.
// As one number, which is compared at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timed(u128);

#[allow(clippy::cast_possible_truncation)] // it takes a word apart
impl Timed {
    pub(crate) fn new(time: u64, rank: u32, id: u32) -> Self {
        Self(u128::from(time) << 64 | u128::from(rank) << 32 | u128::from(id))
    }

    pub(crate) fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub(crate) fn id(self) -> u32 {
        self.0 as u32
    }

    /// The same at a later time.
    pub(crate) fn later(self, by: u64) -> Self {
        let time = self.time().saturating_add(by);
        Self(u128::from(time) << 64 | u128::from(self.0 as u64))
    }
}

/// One type for alarms, waiters and deadlines, because each type of ordered set adds 10 KB to a program.
#[derive(Debug, Default)]
pub(crate) struct TimeOrder {
    /// Apart from the others, because it is often the only one, and is asked for most.
    first: Option<Timed>,
    others: BTreeSet<Timed>,
}

impl TimeOrder {
    pub(crate) fn insert(&mut self, timed: Timed) {
        match &mut self.first {
            Some(first) => {
                let other = if timed < *first { mem::replace(first, timed) } else { timed };
                self.others.insert(other);
            }
            None => self.first = Some(timed),
        }
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, timed: Timed) -> bool {
        // An empty set would look at its memory.
        if self.first != Some(timed) {
            return !self.others.is_empty() && self.others.remove(&timed);
        }
        self.first = if self.others.is_empty() { None } else { self.others.pop_first() };
        true
    }

    pub(crate) fn first(&self) -> Option<Timed> {
        self.first
    }

    pub(crate) fn last(&self) -> Option<Timed> {
        self.others.last().copied().or(self.first)
    }

    /// The one behind another.
    pub(crate) fn after(&self, timed: Timed) -> Option<Timed> {
        if self.first.is_some_and(|first| timed < first) {
            return self.first;
        }
        self.others.range((Bound::Excluded(timed), Bound::Unbounded)).next().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Timed> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Time that does not go back, in the order of the decisions under one lock: the clock may be read before the lock
/// is taken, and on several processors.
#[derive(Debug)]
pub(crate) struct Monotone {
    latest: Nanos,
}

impl Monotone {
    pub(crate) fn new(now: Nanos) -> Self {
        Self { latest: now }
    }

    #[inline]
    pub(crate) fn latest(&self) -> Nanos {
        self.latest
    }

    /// The time, when the clock shows `now`.
    #[inline]
    pub(crate) fn read(&mut self, now: Nanos) -> Nanos {
        self.latest = self.latest.max(now);
        self.latest
    }
}
