//! The policy of a key in this process and in the fleet.
//!
//! Each request decides by the policy of its process, unless the key has one of a higher rank: of a higher version, or of the
//! same version and set later. A process that reads it in a reply adopts it, also one that has set it itself. The script decides,
//! because only there is one order of events.

use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::policy::PolicyExt;
use crate::redis::script::Scripted;
use crate::redis::script::wire::{Answer, PolicyHeader, Rank};
use crate::units::Nanos;

pub(super) struct Agreement<P> {
    /// The policy in force here.
    pub(super) policy: P,
    pub(super) header: PolicyHeader,
    /// How many times the policy has changed here.
    pub(super) number: u32,
}

impl<P: Scripted> Agreement<P> {
    pub(super) fn new(policy: P, version: u32) -> Self {
        Self { header: PolicyHeader::of(&policy, (version, 0)), policy, number: 0 }
    }

    /// The limit that a caller waits for.
    pub(super) fn part(&self, answer: &Answer) -> Option<Part> {
        self.policy.part(answer.part?)
    }

    /// Whether a cost can never be granted.
    pub(super) fn check(&self, now: Nanos) -> impl Fn(P::Cost) -> Result<(), ExceedsCapacity> {
        let idle = self.policy.idle(now);
        move |cost| self.policy.ready_at(&idle, now, cost).map(drop)
    }

    /// The policy of the key is in force here. Returns whether it is another than the one before.
    pub(super) fn adopt(&mut self, policy: P, rank: Rank) -> bool {
        let header = PolicyHeader::of(&policy, rank);
        let is_new = header.rules != self.header.rules;
        if is_new {
            (self.policy, self.number) = (policy, self.number.wrapping_add(1));
        }
        self.header = header;
        is_new
    }
}
