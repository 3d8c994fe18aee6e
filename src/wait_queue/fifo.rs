//! A FIFO whose members join and leave anywhere in constant time: a slab with links.
//!
//! A member that was taken out of the order keeps its entry until its owner removes it, so an id is not
//! reused while it is in use.

use slab::Slab;

/// Names an entry until it is removed.
pub(crate) type EntryId = usize;

/// Keep this many free entries; after a crowd has left, give the memory back.
const KEEP: usize = 1024;

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
        let id = self.entries.insert(Entry { value, previous: self.back, next: None });
        match self.back.replace(id) {
            Some(back) => self.entries[back].next = Some(id),
            None => self.front = Some(id),
        }
        self.len += 1;
        id
    }

    /// Adds a member in front of another one.
    pub(super) fn insert_before(&mut self, next: EntryId, value: T) -> EntryId {
        let id = self.entries.insert(Entry { value, previous: None, next: None });
        self.link_before(next, id);
        id
    }

    /// Puts a member that is out of the order in front of another one.
    pub(super) fn link_before(&mut self, next: EntryId, id: EntryId) {
        let previous = self.entries[next].previous.replace(id);
        match previous {
            Some(previous) => self.entries[previous].next = Some(id),
            None => self.front = Some(id),
        }
        let entry = &mut self.entries[id];
        (entry.previous, entry.next) = (previous, Some(next));
        self.len += 1;
    }

    /// Takes a member out of the order; its entry stays. Once only for each.
    pub(super) fn unlink(&mut self, id: EntryId) {
        let entry = &mut self.entries[id];
        let (previous, next) = (entry.previous.take(), entry.next.take());
        match previous {
            Some(previous) => self.entries[previous].next = next,
            None => self.front = next,
        }
        match next {
            Some(next) => self.entries[next].previous = previous,
            None => self.back = previous,
        }
        self.len -= 1;
    }

    /// Forgets an entry that has been unlinked.
    pub(super) fn remove(&mut self, id: EntryId) -> T {
        let value = self.entries.remove(id).value;
        if self.entries.is_empty() && self.entries.capacity() > KEEP {
            self.entries = Slab::new();
        }
        value
    }

    /// The member behind another one.
    pub(super) fn behind(&self, id: EntryId) -> Option<EntryId> {
        self.entries[id].next
    }

    /// The member in front of another one.
    pub(super) fn before(&self, id: EntryId) -> Option<EntryId> {
        self.entries[id].previous
    }

    /// The members from the front on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &T)> {
        std::iter::successors(self.front, |&id| self.entries[id].next)
            .map(|id| (id, &self.entries[id].value))
    }
}

impl<T> std::ops::Index<EntryId> for Fifo<T> {
    type Output = T;

    fn index(&self, id: EntryId) -> &T {
        &self.entries[id].value
    }
}

impl<T> std::ops::IndexMut<EntryId> for Fifo<T> {
    fn index_mut(&mut self, id: EntryId) -> &mut T {
        &mut self.entries[id].value
    }
}
