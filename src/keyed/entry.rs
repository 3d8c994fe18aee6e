//! What a table keeps of a key: one word if that is enough, otherwise the number of a record.

use std::sync::Arc;

use crate::line::Line;
use crate::policy::Policy;

pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) word: Word,
}

/// A state in 63 bits, or the number of a [`Record`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

const RECORD: u64 = 1 << 63;

/// What does not fit in a word: other states, a queue, an own policy, and grants that can be settled.
pub(super) struct Record<P: Policy> {
    pub(super) slot: Slot<P>,
    /// The key's own policy, if each key has one.
    pub(super) own: Option<Box<P>>,
    /// The number of grants that may still be settled. They keep the key in the table.
    pub(super) pins: u32,
}

pub(super) enum Slot<P: Policy> {
    Quiet(P::State),
    Busy(Arc<Line<P>>),
}

impl Word {
    /// `state` has 63 bits.
    #[inline]
    pub(super) fn packed(state: u64) -> Self {
        Self(state & !RECORD)
    }

    pub(super) fn record(index: u32) -> Self {
        Self(RECORD | u64::from(index))
    }

    /// The packed state, or the number of the record.
    #[allow(clippy::cast_possible_truncation)] // as it was put in
    #[inline]
    pub(super) fn read(self) -> Result<u64, u32> {
        if self.0 < RECORD { Ok(self.0) } else { Err(self.0 as u32) }
    }
}

impl<P: Policy> Record<P> {
    pub(super) fn quiet(state: P::State, own: Option<Box<P>>) -> Self {
        Self { slot: Slot::Quiet(state), own, pins: 0 }
    }
}
