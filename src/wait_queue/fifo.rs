//! A FIFO whose members join and leave anywhere in constant time: a slab with links.
//!
//! A member that was taken out of the order keeps its entry until its owner removes it, so an id is not
//! reused while it is in use.

use std::num::NonZeroU32;

use slab::Slab;

use crate::clock::{KEEP, Timed};

/// Names an entry until it is removed: its place in the slab, plus one. Half the size of a `usize`, because an
/// entry has two of them: what a waiter takes is what a crowd takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(NonZeroU32);

impl EntryId {
    pub(crate) fn new(place: usize) -> Self {
        let id = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Self(id.expect("fewer than 2^32 waiters"))
    }

    pub(crate) fn place(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The entry at a time in an order.
    pub(super) fn at(self, time: u64) -> Timed {
        Timed::new(time, 0, self.0.get())
    }

    /// The entry of a time in an order.
    pub(super) fn of(timed: Timed) -> Self {
        Self(NonZeroU32::new(timed.id()).unwrap_or_else(|| unreachable!("an entry has a number")))
    }
}

/// A full slab grows by this part of its size: doubled, it would be half empty after it has grown.
const GROWTH: usize = 16;

#[derive(Debug)]
pub(super) struct Fifo<T> {
    entries: Slab<Entry<T>>,
    front: Option<EntryId>,
    back: Option<EntryId>,
    len: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    previous: Option<EntryId>,
    next: Option<EntryId>,
}

impl<T> Fifo<T> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), front: None, back: None, len: 0 }
    }

    /// How many members are in order; entries taken out of it do not count.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn front(&self) -> Option<EntryId> {
        self.front
    }

    pub(super) fn back(&self) -> Option<EntryId> {
        self.back
    }

    pub(super) fn push_back(&mut self, value: T) -> EntryId {
        let id = self.insert(Entry { value, previous: self.back, next: None });
        match self.back.replace(id) {
            Some(back) => self.entry(back).next = Some(id),
            None => self.front = Some(id),
        }
        self.len += 1;
        id
    }

    fn insert(&mut self, entry: Entry<T>) -> EntryId {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(4.max(self.entries.len() / GROWTH));
        }
        EntryId::new(self.entries.insert(entry))
    }

    fn entry(&mut self, id: EntryId) -> &mut Entry<T> {
        &mut self.entries[id.place()]
    }

    /// Adds a member in front of another one.
    pub(super) fn insert_before(&mut self, next: EntryId, value: T) -> EntryId {
        let id = self.insert(Entry { value, previous: None, next: None });
        self.link_before(next, id);
        id
    }

    /// Puts a member that is out of the order in front of another one.
    pub(super) fn link_before(&mut self, next: EntryId, id: EntryId) {
        let previous = self.entry(next).previous.replace(id);
        match previous {
            Some(previous) => self.entry(previous).next = Some(id),
            None => self.front = Some(id),
        }
        let entry = self.entry(id);
        (entry.previous, entry.next) = (previous, Some(next));
        self.len += 1;
    }

    /// Takes a member out of the order; its entry stays. Once only for each.
    pub(super) fn unlink(&mut self, id: EntryId) {
        let entry = self.entry(id);
        let (previous, next) = (entry.previous.take(), entry.next.take());
        match previous {
            Some(previous) => self.entry(previous).next = next,
            None => self.front = next,
        }
        match next {
            Some(next) => self.entry(next).previous = previous,
            None => self.back = previous,
        }
        self.len -= 1;
    }

    /// Forgets an entry that has been unlinked.
    pub(super) fn remove(&mut self, id: EntryId) -> T {
        let value = self.entries.remove(id.place()).value;
        if self.entries.is_empty() && self.entries.capacity() > KEEP {
            self.entries = Slab::new();
        }
        value
    }

    /// The member behind another one.
    pub(super) fn behind(&self, id: EntryId) -> Option<EntryId> {
        self.entries[id.place()].next
    }

    /// The member in front of another one.
    pub(super) fn before(&self, id: EntryId) -> Option<EntryId> {
        self.entries[id.place()].previous
    }

    /// The members from the front on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &T)> {
        std::iter::successors(self.front, |&id| self.behind(id)).map(|id| (id, &self[id]))
    }
}

impl<T> std::ops::Index<EntryId> for Fifo<T> {
    type Output = T;

    fn index(&self, id: EntryId) -> &T {
        &self.entries[id.place()].value
    }
}

impl<T> std::ops::IndexMut<EntryId> for Fifo<T> {
    fn index_mut(&mut self, id: EntryId) -> &mut T {
        &mut self.entry(id).value
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A million tasks wait in 300 MB with it, of which tokio's tasks take 256.
    #[test]
    fn a_waiter_takes_40_bytes() {
        struct Waiter {
            _waker: Waker,
            _value: (u32, i64),
        }
        // The slab needs no room to tell free entries from others.
        assert_eq!(size_of::<Option<Entry<Waiter>>>(), 40);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_crowd_takes_little_more_than_its_entries_and_leaves_nothing() {
        let mut fifo = Fifo::new();
        let ids: Vec<_> = (0..100_000).map(|place| fifo.push_back(place)).collect();
        assert!(fifo.entries.capacity() <= 100_000 + 100_000 / GROWTH);
        assert!(fifo.iter().map(|(_, &place)| place).eq(0..100_000));
        for id in ids {
            fifo.unlink(id);
            fifo.remove(id);
        }
        assert_eq!((fifo.len(), fifo.entries.capacity()), (0, 0));
    }
}
