//! A FIFO whose members can leave from anywhere in constant time: a slab with links.
//!
//! A member that has been taken out of the order keeps its entry until its owner removes it, so a
//! key is never reused while somebody holds it.

use slab::Slab;

/// Names an entry for as long as it is not removed.
pub(crate) type WaiterId = usize;

/// Keep this many free entries; after a crowd has left, give the memory back.
const KEEP: usize = 1024;

#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: Slab<Entry<T>>,
    front: Option<WaiterId>,
    back: Option<WaiterId>,
    len: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    previous: Option<WaiterId>,
    next: Option<WaiterId>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Slab::new(), front: None, back: None, len: 0 }
    }

    /// How many are in line; entries taken out of the order do not count.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn front(&self) -> Option<WaiterId> {
        self.front
    }

    pub(crate) fn push_back(&mut self, value: T) -> WaiterId {
        let key = self.entries.insert(Entry { value, previous: self.back, next: None });
        match self.back.replace(key) {
            Some(back) => self.entries[back].next = Some(key),
            None => self.front = Some(key),
        }
        self.len += 1;
        key
    }

    /// Takes a member out of the order; its entry stays. Once only for each.
    pub(crate) fn unlink(&mut self, key: WaiterId) {
        let entry = &mut self.entries[key];
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
    pub(crate) fn remove(&mut self, key: WaiterId) -> T {
        let value = self.entries.remove(key).value;
        if self.entries.is_empty() && self.entries.capacity() > KEEP {
            self.entries = Slab::new();
        }
        value
    }

    /// Who stands behind a member.
    #[cfg(feature = "redis")]
    pub(crate) fn behind(&self, key: WaiterId) -> Option<WaiterId> {
        self.entries[key].next
    }

    /// The members from the front on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WaiterId, &T)> {
        std::iter::successors(self.front, |&key| self.entries[key].next)
            .map(|key| (key, &self.entries[key].value))
    }
}

impl<T> std::ops::Index<WaiterId> for Queue<T> {
    type Output = T;

    fn index(&self, key: WaiterId) -> &T {
        &self.entries[key].value
    }
}

impl<T> std::ops::IndexMut<WaiterId> for Queue<T> {
    fn index_mut(&mut self, key: WaiterId) -> &mut T {
        &mut self.entries[key].value
    }
}
