//! One policy for a key in the whole fleet.
//!
//! The higher rank is in force: the version that the code gives, then the generation of the policy that was set.
//! Of two policies of equal rank the one in the key is in force, as long as a process that has it in its code
//! uses the key. The script decides, because only there is one order of events; this module acts on its reply.

use super::change::{Claim, KeyChange};
use super::flight::RequestKind;
use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::policy::PolicyExt;
use crate::redis::context::Context;
use crate::redis::script::Scripted;
use crate::redis::script::wire::{self, Answer, KeyPolicy, PolicyHeader, Terms};
use crate::units::Nanos;

/// Seconds without a call by a process that has the policy of the key in its code: after the first number a
/// process that started later than the one that brought the policy takes the key over; after the second, any.
const QUIET: [u32; 2] = [10, 600];

pub(super) struct Agreement<P> {
    /// The policy in force here.
    pub(super) policy: P,
    pub(super) header: PolicyHeader,
    /// The policy that this process has in its code.
    base: PolicyHeader,
    /// What a policy that was set here replaces, until a reply confirms it.
    unheard: Option<Terms>,
    /// How many times the policy has changed here.
    pub(super) number: u32,
    /// The policy of the key, if only its state was asked for: the next caller takes the key over.
    looks_at: Option<(P, PolicyHeader)>,
}

/// What follows when the key holds another policy than ours.
pub(super) enum Ruling {
    /// It holds something unknown.
    Foreign,
    /// Ours is in force, because it was set: it has to be set again.
    Set,
    /// Ours is in force by the rule of the fleet: it has to be claimed.
    Claim,
    /// The state of the key is asked for under its own policy.
    Look,
    /// That of the key is in force.
    Adopt(Adopted),
}

/// Whether the policy of the key is another than the one before; if so, its rank.
type Adopted = Option<wire::Rank>;

impl<P: Scripted> Agreement<P> {
    pub(super) fn new(policy: P, header: PolicyHeader) -> Self {
        let (base, unheard, number, looks_at) = (header.clone(), None, 0, None);
        Self { policy, header, base, unheard, number, looks_at }
    }

    /// The limit of the key's policy that a caller waits for.
    pub(super) fn part(&self, answer: &Answer) -> Option<Part> {
        self.policy_of_key().part(answer.part?)
    }

    /// The policy of the key, as far as it is known.
    pub(super) fn policy_of_key(&self) -> &P {
        self.looks_at.as_ref().map_or(&self.policy, |(policy, _)| policy)
    }

    /// The same as the first argument of requests.
    pub(super) fn header_of_key(&self) -> &PolicyHeader {
        self.looks_at.as_ref().map_or(&self.header, |(_, header)| header)
    }

    /// Whether the policy in force is as in the code. If Redis loses one that was set, only a process that knows it
    /// can restore it.
    pub(super) fn is_own(&self) -> bool {
        self.unheard.is_none() && self.header.rank == self.base.rank
    }

    /// Whether a policy was set and is not confirmed.
    pub(super) fn is_unheard(&self) -> bool {
        self.unheard.is_some()
    }

    /// Whether a cost can never be granted.
    pub(super) fn check(&self, now: Nanos) -> impl Fn(P::Cost) -> Result<(), ExceedsCapacity> {
        let idle = self.policy.idle(now);
        move |cost| self.policy.ready_at(&idle, now, cost).map(drop)
    }

    /// Sets a new policy. Returns whether it is another.
    pub(super) fn set(&mut self, context: &Context<P>, policy: P) -> bool {
        let terms = Terms::new(&policy, self.header.terms.idle);
        self.unheard.get_or_insert_with(|| self.header.terms.clone());
        let is_new = terms != self.header.terms;
        if is_new {
            let header = context.header(&policy, terms, self.header.rank, u32::MAX);
            self.change(policy, header);
        }
        is_new
    }

    /// The policy that was set here is in force; the key says under which number.
    pub(super) fn confirm(&mut self, context: &Context<P>, generation: i64) {
        self.unheard = None;
        let generation = u32::try_from(generation).unwrap_or_default();
        self.rank((self.header.rank.0, generation), context, 0);
    }

    /// A request is made.
    pub(super) fn asks(&mut self, kind: &RequestKind<P::Cost>) {
        self.looks_at.take_if(|_| !kind.only_looks());
    }

    /// The last argument of `change.lua`.
    pub(super) fn claim(&self, context: &Context<P>, changes: &[KeyChange<P::Cost>]) -> Vec<u8> {
        match changes.iter().map(|change| change.claim).max() {
            None | Some(Claim::None) => Vec::new(),
            Some(Claim::ByRule) => wire::claim(context.age(), None),
            Some(Claim::Set) => {
                wire::claim(context.age(), self.unheard.as_ref().or(Some(&self.header.terms)))
            }
        }
    }

    /// The key holds another policy than ours, or something unknown. Decides which policy is in force.
    pub(super) fn accept(
        &mut self,
        context: &Context<P>,
        kind: &RequestKind<P::Cost>,
        (word, number, bytes): (&str, i64, &[u8]),
    ) -> Ruling {
        self.looks_at = None;
        let known = KeyPolicy::of(&context.scripts, number, bytes).filter(|_| word == "other");
        let read = |agreement: &Self, terms: &Terms| {
            agreement.policy.clone().read(&mut terms.parameters.iter().copied())
        };
        let known = known.and_then(|known| Some((read(self, &known.terms)?, known)));
        let Some((policy, known)) = known else {
            return Ruling::Foreign;
        };
        if self.unheard.is_some() && known.terms != self.header.terms {
            // Only a version that is at least that of the key replaces it.
            self.rank(self.header.rank.max((known.rank.0, 0)), context, 0);
            return Ruling::Set;
        }
        let is_ours = known.terms == self.base.terms;
        let is_over =
            known.quiet > QUIET[1] || known.quiet > QUIET[0] && context.age() < known.since;
        let is_later = known.rank < self.header.rank;
        if !(is_later || known.rank == self.base.rank && is_over && !is_ours) {
            return Ruling::Adopt(self.adopt(context, policy, known));
        }
        if kind.only_looks() && self.header.rank <= self.base.rank {
            // A policy that was set and lost is restored; otherwise this request is under the policy of the key.
            let header = context.header(&policy, known.terms, known.rank, u32::MAX);
            self.looks_at = Some((policy, header));
            return Ruling::Look;
        }
        if !is_later && let Some(policy) = read(self, &self.base.terms) {
            self.change(policy, self.base.clone());
        }
        Ruling::Claim
    }

    /// The policy of the key is in force here.
    fn adopt(&mut self, context: &Context<P>, policy: P, known: KeyPolicy) -> Adopted {
        self.unheard = None;
        let (rank, since) = (known.rank, known.since);
        if known.terms == self.header.terms {
            self.rank(rank, context, since);
            return None;
        }
        let grace = self.grace(context, &known.terms, rank, since);
        let header = context.header(&policy, known.terms, rank, grace);
        self.change(policy, header);
        Some(rank)
    }

    fn change(&mut self, policy: P, header: PolicyHeader) {
        self.policy = policy;
        self.header = header;
        self.number = self.number.wrapping_add(1);
    }

    /// The same policy under another rank.
    fn rank(&mut self, rank: wire::Rank, context: &Context<P>, since: u32) {
        let grace = self.grace(context, &self.header.terms, rank, since);
        self.header = context.header(&self.policy, self.header.terms.clone(), rank, grace);
    }

    /// How long a policy is in force here without a call by a process that has it in its code.
    fn grace(&self, context: &Context<P>, terms: &Terms, rank: wire::Rank, since: u32) -> u32 {
        match (rank.cmp(&self.base.rank).is_gt(), *terms == self.base.terms) {
            (true, _) => u32::MAX,
            (false, true) => 0,
            (false, false) => QUIET[usize::from(context.age() >= since)],
        }
    }
}
