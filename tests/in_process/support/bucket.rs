//! A custom policy: a strict token bucket, in which all permits asked for must be available.
//!
//! It differs from the smooth policies in a way that matters to a queue: a small request can be
//! ready while a big one ahead of it is not. It also has no lock-free state, so every call goes
//! through the mutex.

use std::time::Duration;

use tollgate::state::RuleEvent;
use tollgate::{ExceedsCapacity, Nanos, Policy, Ready};

/// One permit each `interval`, up to `capacity` kept. Starts empty.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) interval: Duration,
    pub(crate) capacity: u32,
}

impl Bucket {
    fn span(&self, permits: u64) -> Duration {
        Duration::from_nanos(u64::try_from(self.interval.as_nanos()).expect("short") * permits)
    }

    /// The bucket was empty at `empty`; when does it hold `permits`?
    fn filled(&self, empty: Nanos, permits: u64) -> Nanos {
        empty.saturating_add(self.span(permits))
    }
}

impl Policy for Bucket {
    type Cost = u32;
    /// When the bucket was, or will be, empty.
    type State = Nanos;
    type Receipt = ();

    fn start(&self, now: Nanos) -> Nanos {
        now
    }

    fn ready_at(&self, empty: &Nanos, _: Nanos, cost: u32) -> Result<Ready, ExceedsCapacity> {
        if cost > self.capacity {
            return Err(ExceedsCapacity::new(cost, u64::from(self.capacity)));
        }
        Ok(Ready::At(self.filled(*empty, u64::from(cost))))
    }

    fn charge(&self, empty: &mut Nanos, at: Nanos, cost: u32) {
        let full_since = at.saturating_sub(self.span(u64::from(self.capacity)));
        *empty = self.filled((*empty).max(full_since), u64::from(cost));
    }

    fn refund(&self, empty: &mut Nanos, _: Nanos, part: u32, (): ()) -> Self::Receipt {
        *empty = empty.saturating_sub(self.span(u64::from(part)));
    }

    fn event(&self, empty: &mut Nanos, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        if let RuleEvent::Paused(until) = event {
            *empty = (*empty).max(until);
        }
        now
    }

    fn migrate(&self, _: &Self, _: &mut Nanos, _: Nanos) {}

    fn available(&self, empty: &Nanos, now: Nanos) -> u32 {
        let there = now.since(*empty).as_nanos() / self.interval.as_nanos();
        u32::try_from(there).unwrap_or(u32::MAX).min(self.capacity)
    }
}
