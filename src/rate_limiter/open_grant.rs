//! The last grant of a shard of keys: most are dropped before the next one, by one exchange and without a lock.

use crate::sync::{AtomicU64, Ordering};

/// A grant of a table of keys: a number that is not used again, and is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrantId(u64);

impl GrantId {
    /// What stands before the first grant of a shard. `shard` is less than `shards`.
    pub(crate) fn before(shard: usize, shards: usize) -> Self {
        Self((shards + shard) as u64)
    }

    /// The next one of this shard.
    #[inline]
    pub(crate) fn next(self, shards: usize) -> Self {
        Self(self.0.wrapping_add(shards as u64))
    }

    /// How many grants of this shard there are with this one.
    pub(crate) fn count(self, shards: usize) -> u64 {
        self.0 / shards as u64 - 1
    }

    pub(crate) fn shard(self, shards: usize) -> usize {
        usize::try_from(self.0 % shards as u64).unwrap_or_default()
    }
}

/// The grant that was made last, if it has not been dropped or recorded. Only a thread with the lock of the shard opens
/// or takes it; any thread closes it.
#[derive(Debug)]
pub(crate) struct OpenGrant(AtomicU64);

impl OpenGrant {
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A grant is made. There must be no other one, which [`take`](Self::take) takes out.
    #[inline]
    pub(crate) fn open(&self, id: GrantId) {
        self.0.store(id.0, Ordering::Relaxed);
    }

    /// A grant is dropped. Returns whether nothing is left to do: if not, it has been recorded.
    // Relaxed: the next owner of the lock needs to know only that it was dropped, and not what was done before.
    #[inline]
    pub(crate) fn close(&self, id: GrantId) -> bool {
        self.0.compare_exchange(id.0, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The last grant, if it has not been dropped. From now on it has to be recorded.
    #[inline]
    pub(crate) fn take(&self) -> Option<GrantId> {
        if self.0.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = self.0.swap(0, Ordering::Relaxed);
        (id != 0).then_some(GrantId(id))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_closed_or_taken_and_not_both() {
        let cell = OpenGrant::none();
        assert_eq!(cell.take(), None);
        let first = GrantId::before(5, 256).next(256);
        let second = first.next(256);
        assert_eq!([first.shard(256), second.shard(256)], [5, 5]);
        assert_eq!([first.count(256), second.count(256)], [1, 2]);
        cell.open(first);
        assert!(cell.close(first) && !cell.close(first));
        assert_eq!(cell.take(), None);
        cell.open(second);
        assert!(!cell.close(first));
        assert_eq!(cell.take(), Some(second));
        assert!(!cell.close(second));
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom {
    use ::loom::sync::Arc;
    use ::loom::thread;

    use super::*;

    /// One is dropped while the shard is locked for the next one: it is either over, or recorded.
    #[test]
    fn a_grant_is_closed_or_taken_and_the_next_one_is_not_lost() {
        ::loom::model(|| {
            let first = GrantId::before(0, 1).next(1);
            let second = first.next(1);
            let cell = Arc::new(OpenGrant::none());
            cell.open(first);
            let drops = thread::spawn({
                let cell = Arc::clone(&cell);
                move || cell.close(first)
            });
            let taken = cell.take();
            cell.open(second);
            let is_over = drops.join().expect("no panic");
            assert_eq!(taken, (!is_over).then_some(first));
            assert_eq!(cell.take(), Some(second));
        });
    }
}
