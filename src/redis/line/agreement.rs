//! One policy for a key in the whole fleet.
//!
//! The higher rank is in force: the version that the code gives, then the generation of the policy that was set.
//! Of two policies of equal rank the one in the key is in force, as long as a process that has it in its code
//! uses the key. The script decides, because only there is one order of events; this module acts on its reply.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::KeyLine;
use super::change::{Claim, Done, KeyChange};
use super::flight::RequestKind;
use super::request::Rest;
use crate::error::store::StoreError;
use crate::observe::Event;
use crate::redis::context::Context;
use crate::redis::script::Scripted;
use crate::redis::script::wire::{self, KeyPolicy, PolicyHeader, Terms};
use crate::units::Nanos;

/// Seconds without a call by a process that has the policy of the key in its code: after the first number a
/// process that started later than the one that brought the policy takes the key over; after the second, any.
const QUIET: [u32; 2] = [10, 600];

impl<P: Scripted> KeyLine<P> {
    /// Sets a new policy, here and for the fleet.
    pub(crate) fn set_policy(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        policy: P,
    ) -> oneshot::Receiver<Done<P::Cost>> {
        let terms = Terms::new(&policy, self.header.terms.idle);
        self.unheard.get_or_insert_with(|| self.header.terms.clone());
        if terms != self.header.terms {
            let header = context.header(&policy, terms, self.header.rank, u32::MAX);
            self.change_policy(policy, header);
            self.turn_away_the_too_large(now);
        }
        self.request(Self::setting())
    }

    /// Sets the policy again if that is not confirmed: the request may have been lost.
    pub(super) fn set_again(&mut self) {
        if self.unheard.is_some() && !self.changes.iter().any(|change| change.claim == Claim::Set) {
            self.changes.push_front(KeyChange { made: self.time.latest(), ..Self::setting() });
        }
    }

    fn setting() -> KeyChange<P::Cost> {
        KeyChange { claim: Claim::Set, ..KeyChange::of(vec![b'N']) }
    }

    /// The policy that was set here is in force; the key says under which number.
    pub(super) fn is_set(&mut self, context: &Context<P>, generation: i64) {
        self.unheard = None;
        let generation = u32::try_from(generation).unwrap_or_default();
        self.rank((self.header.rank.0, generation), context, 0);
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

    fn change_policy(&mut self, policy: P, header: PolicyHeader) {
        self.policy = policy;
        self.header = header;
        self.policies = self.policies.wrapping_add(1);
    }

    /// The key holds another policy than ours, or something unknown. Decides which policy is in force.
    pub(super) fn disagree(
        &mut self,
        context: &Context<P>,
        kind: &mut RequestKind<P::Cost>,
        (word, number, bytes): (&str, i64, &[u8]),
    ) -> Rest {
        self.ask_again();
        self.looks_at = None;
        let known = KeyPolicy::of(&context.scripts, number, bytes).filter(|_| word == "other");
        let read = |line: &Self, terms: &Terms| {
            line.policy.clone().read(&mut terms.parameters.iter().copied())
        };
        let known = known.and_then(|known| Some((read(self, &known.terms)?, known)));
        let Some((policy, known)) = known else {
            context.counters.foreign.add(1);
            let format = wire::other_format(&context.scripts.kind, number, bytes);
            return Rest::Refuse(StoreError::foreign(&self.key, format, None));
        };
        if self.unheard.is_some() && known.terms != self.header.terms {
            let is_set = |change: &KeyChange<_>| change.claim == Claim::Set;
            if !matches!(kind, RequestKind::Change(changes) if changes.iter().any(is_set)) {
                self.set_again();
            }
            // Only a version that is at least that of the key replaces it.
            self.rank(self.header.rank.max((known.rank.0, 0)), context, 0);
            return Rest::Repeat;
        }
        let is_ours = known.terms == self.base.terms;
        let is_over =
            known.quiet > QUIET[1] || known.quiet > QUIET[0] && context.age() < known.since;
        let is_later = known.rank < self.header.rank;
        if !(is_later || known.rank == self.base.rank && is_over && !is_ours) {
            self.adopt(context, kind, policy, known);
        } else if kind.only_looks() && self.header.rank <= self.base.rank {
            // A policy that was set and lost is restored; otherwise this request is under the policy of the key.
            let header = context.header(&policy, known.terms, known.rank, u32::MAX);
            self.looks_at = Some((policy, header));
        } else {
            if !is_later && let Some(policy) = read(self, &self.base.terms) {
                self.change_policy(policy, self.base.clone());
            }
            let (claim, made) = (Claim::ByRule, self.time.latest());
            self.changes.push_front(KeyChange { claim, made, ..KeyChange::of(vec![b'N']) });
        }
        Rest::Repeat
    }

    /// The policy of the key is in force here.
    fn adopt(
        &mut self,
        context: &Context<P>,
        kind: &mut RequestKind<P::Cost>,
        policy: P,
        known: KeyPolicy,
    ) {
        // These were for another policy.
        let asked = match kind {
            RequestKind::Change(changes) => changes.as_mut_slice(),
            _ => &mut [],
        };
        for change in self.changes.iter_mut().chain(asked) {
            if change.claim == Claim::ByRule {
                change.claim = Claim::None;
            }
        }
        self.unheard = None;
        let (rank, since) = (known.rank, known.since);
        if known.terms == self.header.terms {
            self.rank(rank, context, since);
            return;
        }
        let grace = self.grace(context, &known.terms, rank, since);
        let header = context.header(&policy, known.terms, rank, grace);
        self.change_policy(policy, header);
        let (version, generation) = rank;
        let key = Arc::clone(&self.key);
        self.events.push(Event::PolicyAdopted { key, version, generation });
    }
}
