//! What a sliding window of the server counts of our own calls.
//!
//! A sliding window gives a permit back one window after it has counted the call. The server names neither the time at which
//! it counted a call nor, if its resets are rounded, the length of its window. Both are bounded by what is seen:
//!
//! - A call was counted between its sending and the arrival of its answer.
//! - The window is at most as long as the longest reset. If more remains than our own calls in such a window allow, one of
//!   them is no longer counted, and the window is at most as long as that call is old.

use std::collections::VecDeque;
use std::time::Duration;

use crate::feedback::answer::Meter;
use crate::units::Nanos;

/// Calls within one part of this of the window are one group.
const GROUPS: u32 = 64;

/// No more groups are kept. They are more than `GROUPS` where a window seems to be shorter than it was.
const MOST: usize = 128;

/// The number of round trips that show the shortest.
const TRIPS: u32 = 64;

/// Accepted calls that the server may still count.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnCalls {
    groups: VecDeque<Group>,
    /// The longest time to a reset.
    longest: Duration,
    /// The age of the youngest call that was no longer counted.
    over: Option<Duration>,
    /// A call was refused by that length. A window that counts in coarse steps gives some calls back early.
    is_longest: bool,
    /// The shortest round trip, and of how many.
    fastest: Option<Duration>,
    trips: u32,
    /// What others had used by the newest answer, at least.
    others: u64,
    /// Our calls of the longest window are all that was used by the newest answer.
    is_ours: bool,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    sent: Nanos,
    answered: Nanos,
    cost: u64,
}

impl OwnCalls {
    /// The length of the window.
    fn length(&self) -> Duration {
        self.over.map_or(self.longest, |over| over.min(self.longest))
    }

    /// No round trip is shorter. The first calls also open connections, so they do not tell.
    fn trip(&self) -> Duration {
        self.fastest.filter(|_| self.trips >= TRIPS).unwrap_or_default()
    }

    /// Permits return much earlier than a sliding window gives them back: it is none.
    pub(super) fn are_back_early(&self) -> bool {
        self.over.is_some_and(|over| over < self.longest / 2)
    }

    /// A call was refused: the window is longer than it seemed, or a call was faster than all before. Returns false if the
    /// window already counted as long as stated.
    pub(super) fn was_early(&mut self) -> bool {
        (self.over, self.fastest) = (None, Some(Duration::ZERO));
        !std::mem::replace(&mut self.is_longest, true)
    }

    /// Whether calls have shown how long the window is.
    pub(super) fn is_shown(&self) -> bool {
        self.over.is_some()
    }

    /// What remains of a limit beside our calls that are counted at a time. `None` if others use more than a little of it.
    pub(super) fn leave(&self, limit: u64, at: Nanos) -> Option<u64> {
        let ours = limit.saturating_sub(self.others);
        (self.others <= 1.max(limit / 64)).then(|| ours.saturating_sub(self.held(at)))
    }

    /// Records the answer to an accepted call for `cost`, which was sent and answered then, while `out` others are in flight.
    /// `reset`: the time to its reset.
    pub(super) fn record(
        &mut self,
        (sent, answered): (Nanos, Nanos),
        meter: Meter,
        (cost, out): (u64, u64),
        reset: Duration,
    ) {
        self.longest = self.longest.max(reset);
        let trip = answered.since(sent);
        self.fastest = Some(self.fastest.map_or(trip, |fastest| fastest.min(trip)));
        self.trips = self.trips.saturating_add(1);
        if cost == 0 {
            return;
        }
        if let (Some(limit), Some(remaining)) = (meter.limit, meter.remaining) {
            let used = limit.saturating_sub(remaining);
            // Of the calls that were answered before this one was sent, the server counts the youngest.
            let mut counted = cost;
            let mut before = self.groups.iter().rev().filter(|group| group.answered <= sent);
            let over = before.find(|group| {
                counted = counted.saturating_add(group.cost);
                counted > used
            });
            if let Some(group) = over.filter(|_| !self.is_longest) {
                let age = answered.since(group.sent).saturating_sub(self.trip());
                self.over = Some(self.over.map_or(age, |over| over.min(age)));
            }
            self.others = used.saturating_sub(self.held(sent) + cost + out);
            let all: u64 = self.groups.iter().map(|group| group.cost).sum();
            self.is_ours = used <= all + cost + out;
        }
        self.count((sent, answered), cost);
    }

    /// Counts a call that the server counts, or may count.
    pub(super) fn count(&mut self, (sent, answered): (Nanos, Nanos), cost: u64) {
        let longest = self.longest;
        while self
            .groups
            .front()
            .is_some_and(|group| group.answered.saturating_add(longest) <= sent)
        {
            self.groups.pop_front();
        }
        let near = answered.saturating_sub(self.length() / GROUPS);
        let is_full = self.groups.len() >= MOST;
        match self.groups.back_mut().filter(|group| is_full || group.sent >= near) {
            Some(group) => (group.answered, group.cost) = (answered, group.cost + cost),
            None => self.groups.push_back(Group { sent, answered, cost }),
        }
    }

    /// From when on a new call arrives after this group is no longer counted. A group was counted at most as long before its
    /// answer as the fastest round trip leaves for the way of the new call.
    fn back(&self, group: &Group) -> Nanos {
        group.answered.saturating_add(self.length()).saturating_sub(self.trip())
    }

    /// The cost of the calls that are counted at a time.
    fn held(&self, at: Nanos) -> u64 {
        let held = self.groups.iter().filter(|group| self.back(group) > at);
        held.map(|group| group.cost).sum()
    }

    /// When the first of those is back, with those soon after it.
    pub(super) fn next_back(&self, at: Nanos) -> Option<Nanos> {
        let mut back = self.groups.iter().map(|group| self.back(group)).filter(|&back| back > at);
        let first = back.next()?;
        let soon = first.saturating_add(self.length() / GROUPS);
        Some(back.take_while(|&back| back <= soon).last().unwrap_or(first))
    }

    /// Until when any window counts the last calls that fill `limit`. `None` if others use it too, or a call was too early.
    pub(super) fn full_until(&self, limit: u64) -> Option<Nanos> {
        let mut counted = 0;
        let oldest = self.groups.iter().rev().find(|group| {
            counted += group.cost;
            counted >= limit
        })?;
        (self.is_ours && !self.is_longest).then(|| oldest.answered.saturating_add(self.longest))
    }

    /// When all are back.
    pub(super) fn all_back(&self) -> Option<Nanos> {
        self.groups.back().map(|group| self.back(group))
    }
}
