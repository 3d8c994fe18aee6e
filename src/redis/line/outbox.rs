//! The changes of a key that wait to be sent.

use std::collections::VecDeque;

use super::change::{Claim, KeyChange};
use super::flight::BATCH;

#[derive(Default)]
pub(super) struct Outbox<C> {
    changes: VecDeque<KeyChange<C>>,
    /// How many have joined so far.
    pub(super) made: u64,
}

impl<C> Outbox<C> {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many of those that have joined do not wait any longer.
    pub(super) fn sent(&self) -> u64 {
        self.made.saturating_sub(self.changes.len() as u64)
    }

    /// Whether the policy is to be set.
    pub(super) fn sets(&self) -> bool {
        self.changes.iter().any(|change| change.claim == Claim::Set)
    }

    pub(super) fn push(&mut self, change: KeyChange<C>) {
        self.changes.push_back(change);
        self.made += 1;
    }

    /// Adds a change that no caller has made, ahead of all.
    pub(super) fn push_first(&mut self, change: KeyChange<C>) {
        self.changes.push_front(change);
    }

    /// The changes of a request that had no effect.
    pub(super) fn take_back(&mut self, changes: Vec<KeyChange<C>>) {
        for change in changes.into_iter().rev() {
            self.changes.push_front(change);
        }
    }

    /// The changes of the next request.
    pub(super) fn take_batch(&mut self) -> Vec<KeyChange<C>> {
        let first = self.changes.iter().position(KeyChange::deletes).map_or(BATCH, |at| at + 1);
        let first = first.min(BATCH).min(self.changes.len());
        self.changes.drain(..first).collect()
    }

    pub(super) fn take_all(&mut self) -> VecDeque<KeyChange<C>> {
        std::mem::take(&mut self.changes)
    }

    /// Another policy is in force: none is claimed by the rule of the fleet.
    pub(super) fn forget_claims(&mut self) {
        self.changes.iter_mut().for_each(KeyChange::forget_claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was set is still to be set where the rule of the fleet is for another policy.
    #[test]
    fn a_claim_by_the_rule_is_forgotten_and_what_was_set_is_not() {
        let mut outbox = Outbox::<u32>::default();
        outbox.push(KeyChange::setting());
        outbox.push_first(KeyChange::claiming());
        outbox.forget_claims();
        let claims = outbox.take_all().into_iter().map(|change| change.claim);
        assert_eq!(claims.collect::<Vec<_>>(), [Claim::None, Claim::Set]);
    }

    #[test]
    fn changes_are_counted_as_they_join_and_as_they_are_sent() {
        let mut outbox = Outbox::<u32>::default();
        assert!(!outbox.sets());
        for made in 1..=3 {
            outbox.push(KeyChange::of(vec![b'N']));
            assert_eq!((outbox.made, outbox.sent()), (made, 0));
        }
        assert!(!outbox.sets());
        assert_eq!(outbox.take_batch().len(), 3);
        assert_eq!((outbox.made, outbox.sent()), (3, 3));
        outbox.push(KeyChange::setting());
        assert!(outbox.sets());
        // One that no caller has made does not count.
        outbox.push_first(KeyChange::claiming());
        assert_eq!(outbox.made, 4);
    }

    #[test]
    fn what_follows_a_deletion_goes_into_another_request() {
        let mut outbox = Outbox::<u32>::default();
        for what in [b'P', b'X', b'P', b'P'] {
            outbox.push(KeyChange::of(vec![what]));
        }
        assert_eq!([(); 3].map(|()| outbox.take_batch().len()), [2, 2, 0]);
    }
}
