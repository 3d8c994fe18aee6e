//! The policy of a key in this process and in the fleet.
//!
//! Each request decides by the policy of its process, unless the key has one of a higher rank: of a higher version, or of the
//! same version and set later. A process that reads it in a reply adopts it. The script decides, because only there is one order of
//! events.

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
    /// What a policy that was set here replaces, until a reply confirms it.
    unheard: Option<PolicyHeader>,
    /// How many times the policy has changed here.
    pub(super) number: u32,
}

impl<P: Scripted> Agreement<P> {
    pub(super) fn new(policy: P, header: PolicyHeader) -> Self {
        Self { policy, header, unheard: None, number: 0 }
    }

    /// The limit that a caller waits for.
    pub(super) fn part(&self, answer: &Answer) -> Option<Part> {
        self.policy.part(answer.part?)
    }

    /// Whether the policy in force is as in the code. If Redis loses one that was set, only a process that knows it
    /// can restore it.
    pub(super) fn is_own(&self, version: u32) -> bool {
        self.unheard.is_none() && self.header.rank == (version, 0)
    }

    /// Whether a policy was set and is not confirmed.
    pub(super) fn is_unheard(&self) -> bool {
        self.unheard.is_some()
    }

    /// The policy that the one in force here replaces.
    pub(super) fn replaced(&self) -> &PolicyHeader {
        self.unheard.as_ref().unwrap_or(&self.header)
    }

    /// Whether a cost can never be granted.
    pub(super) fn check(&self, now: Nanos) -> impl Fn(P::Cost) -> Result<(), ExceedsCapacity> {
        let idle = self.policy.idle(now);
        move |cost| self.policy.ready_at(&idle, now, cost).map(drop)
    }

    /// Sets a new policy. Returns whether it is another.
    pub(super) fn set(&mut self, policy: P) -> bool {
        self.unheard.get_or_insert_with(|| self.header.clone());
        self.change(policy, self.header.rank)
    }

    /// The policy that was set here is in force; the key says under which rank.
    pub(super) fn confirm(&mut self, rank: Rank) {
        self.unheard = None;
        self.header.rank = rank;
    }

    /// The policy of the key is in force here. Returns whether it is another than the one before.
    pub(super) fn adopt(&mut self, policy: P, rank: Rank) -> bool {
        self.change(policy, rank)
    }

    fn change(&mut self, policy: P, rank: Rank) -> bool {
        let header = PolicyHeader::of(&policy, rank);
        let is_new = header.rules != self.header.rules;
        if is_new {
            (self.policy, self.number) = (policy, self.number.wrapping_add(1));
        }
        self.header = header;
        is_new
    }
}
