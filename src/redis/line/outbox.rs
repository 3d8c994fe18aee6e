//! The changes of a key that wait to be sent.

use std::collections::VecDeque;

use super::change::KeyChange;
use super::flight::BATCH;
use crate::units::Nanos;

/// Maximum changes that wait to be sent. Refunds are not bounded: each of them ends a grant.
pub(super) const MOST_CHANGES: u32 = 100_000;

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

    pub(super) fn is_full(&self) -> bool {
        self.changes.len() >= MOST_CHANGES as usize
    }

    /// How many of those that have joined do not wait any longer.
    pub(super) fn sent(&self) -> u64 {
        self.made.saturating_sub(self.changes.len() as u64)
    }

    /// When the first of them was made.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.changes.front().map(|change| change.made)
    }

    /// Whether the policy is to be set.
    pub(super) fn sets(&self) -> bool {
        self.changes.iter().any(|change| change.sets)
    }

    /// Whether that is the first change.
    pub(super) fn sets_first(&self) -> bool {
        self.changes.front().is_some_and(|change| change.sets)
    }

    pub(super) fn push(&mut self, change: KeyChange<C>, now: Nanos) {
        self.changes.push_back(KeyChange { made: now, ..change });
        self.made += 1;
    }

    /// Adds a change that no caller has made, ahead of all.
    pub(super) fn push_first(&mut self, change: KeyChange<C>, now: Nanos) {
        self.changes.push_front(KeyChange { made: now, ..change });
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

    /// The changes from the first on that were made at such times.
    pub(super) fn take_while(&mut self, is_over: impl Fn(Nanos) -> bool) -> VecDeque<KeyChange<C>> {
        let kept = self.changes.iter().position(|change| !is_over(change.made));
        let kept = self.changes.split_off(kept.unwrap_or(self.changes.len()));
        std::mem::replace(&mut self.changes, kept)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<KeyChange<C>> {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_bounded() {
        let mut outbox = Outbox::<u32>::default();
        for _ in 0..MOST_CHANGES {
            assert!(!outbox.is_full());
            outbox.push(KeyChange::of(Vec::new()), Nanos::ZERO);
        }
        assert!(outbox.is_full());
        assert_eq!(outbox.take_batch().len(), BATCH);
        assert!(!outbox.is_full());
    }

    #[test]
    fn changes_are_counted_as_they_join_and_as_they_are_sent() {
        let mut outbox = Outbox::<u32>::default();
        let times = [5, 6, 7].map(Nanos::new);
        assert!(!outbox.sets());
        for (made, time) in (1..).zip(times) {
            outbox.push(KeyChange::of(vec![b'N']), time);
            assert_eq!((outbox.made, outbox.sent()), (made, 0));
        }
        assert!(!outbox.sets());
        assert_eq!(outbox.oldest(), Some(times[0]));
        assert_eq!(outbox.take_batch().len(), 3);
        assert_eq!((outbox.made, outbox.sent(), outbox.oldest()), (3, 3, None));
        outbox.push(KeyChange::setting(), times[1]);
        assert!(outbox.sets());
        // One that no caller has made does not count.
        outbox.push_first(KeyChange::setting(), times[2]);
        assert_eq!((outbox.made, outbox.oldest()), (4, Some(times[2])));
    }

    #[test]
    fn what_follows_a_deletion_goes_into_another_request() {
        let mut outbox = Outbox::<u32>::default();
        for what in [b'P', b'X', b'P', b'P'] {
            outbox.push(KeyChange::of(vec![what]), Nanos::ZERO);
        }
        assert_eq!([(); 3].map(|()| outbox.take_batch().len()), [2, 2, 0]);
    }
}
