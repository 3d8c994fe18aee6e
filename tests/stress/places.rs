//! Places in flight, counted by their holders.

use std::sync::atomic::{AtomicI64, Ordering};

use tollgate::Policy;

/// The data that a scenario needs of a policy of calls in flight.
#[derive(Debug)]
pub(crate) struct Places<P: Policy> {
    /// The greatest limit in force.
    pub(crate) max: u32,
    /// How many places a caller of `n` permits holds.
    pub(crate) share: fn(u32) -> u32,
    /// That part of a cost.
    pub(crate) part: fn(P::Cost) -> u32,
    held: AtomicI64,
}

impl<P: Policy> Places<P> {
    pub(crate) fn new(max: u32, share: fn(u32) -> u32, part: fn(P::Cost) -> u32) -> Self {
        Self { max, share, part, held: AtomicI64::new(0) }
    }

    /// Called after the grant. A granted caller that has not called this yet is not counted, so
    /// that this never exceeds the places really held.
    #[track_caller]
    pub(crate) fn take(&self, n: u32) {
        let share = i64::from((self.share)(n));
        let held = self.held.fetch_add(share, Ordering::SeqCst) + share;
        assert!(held <= i64::from(self.max), "{held} in flight, at most {}", self.max);
    }

    /// Called before the grant is dropped or reduced.
    pub(crate) fn give_back(&self, n: u32, keep: Option<u32>) {
        let keep = keep.map_or(0, self.share);
        self.held.fetch_sub(i64::from((self.share)(n)) - i64::from(keep), Ordering::SeqCst);
    }

    pub(crate) fn held(&self) -> i64 {
        self.held.load(Ordering::SeqCst)
    }
}
