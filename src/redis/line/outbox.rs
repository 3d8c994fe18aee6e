//! The changes of a key that wait to be sent.

use std::collections::VecDeque;

use super::change::KeyChange;
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
        self.changes.iter().any(|change| change.sets)
    }

    /// Whether that is the first change.
    pub(super) fn sets_first(&self) -> bool {
        self.changes.front().is_some_and(|change| change.sets)
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
}
