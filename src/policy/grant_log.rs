//! The log of recent grants: the state of the sliding windows.

use std::collections::VecDeque;
use std::iter;

use crate::units::Nanos;

/// The state of a sliding window: grants with their times, oldest first. The grants of one part of the window
/// share an entry, with the time of the last one.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Made for the second entry: most of the keys of a large table have one.
    older: Option<Box<Older>>,
    last: Entry,
    /// The number of the last entry. Those before it have the numbers before it.
    number: u64,
}

/// The entries before the last one.
#[derive(Clone, Debug, Default)]
struct Older {
    entries: VecDeque<Entry>,
    /// The permits of all of them.
    granted: u64,
}

// Packed, because alignment to 8 bytes would cost each grant four.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
struct Entry {
    at: Nanos,
    permits: u32,
}

/// The receipt of a charge of a sliding window: the number of the entry that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReceipt {
    entry: u64,
}

/// The time for which a grant counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// The length of a part in nanoseconds. Grants count from the start of their part; parts of one nanosecond
    /// are exact.
    pub(crate) part: u64,
    /// In nanoseconds.
    pub(crate) window: u64,
}

impl Span {
    /// The start of the part that contains `at`.
    fn part_of(self, at: Nanos) -> Nanos {
        if self.part == 1 { at } else { Nanos::new(at.get() - at.get() % self.part) }
    }

    /// The time from which a grant made at `at` no longer counts.
    fn end(self, at: Nanos) -> Nanos {
        Nanos::new(self.part_of(at).get().saturating_add(self.window))
    }
}

/// Shrinking keeps room for this number of entries. The log shrinks after many entries have expired.
const KEEP: usize = 64;

impl Log {
    /// The permits of all entries.
    #[inline]
    fn granted(&self) -> u64 {
        u64::from(self.last.permits) + self.older.as_ref().map_or(0, |older| older.granted)
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> {
        let older = self.older.iter().flat_map(|older| older.entries.iter().copied());
        older.chain(iter::once(self.last))
    }

    /// The time from which no more than `others` permits count.
    #[inline]
    pub(crate) fn no_more_than_at(&self, others: u64, span: Span) -> Nanos {
        let mut left = self.granted();
        let mut at = Nanos::ZERO;
        if left > others {
            for entry in self.entries() {
                left -= u64::from(entry.permits);
                at = span.end(entry.at);
                if left <= others {
                    break;
                }
            }
        }
        at
    }

    /// The number of permits that count at `now`.
    pub(crate) fn granted_within(&self, span: Span, now: Nanos) -> u64 {
        let old = self.entries().take_while(|entry| span.end(entry.at) <= now);
        self.granted() - old.map(|entry| u64::from(entry.permits)).sum::<u64>()
    }

    /// The time from which no permit counts.
    pub(crate) fn empty_at(&self, span: Span) -> Nanos {
        let last = self.entries().rfind(|entry| entry.permits > 0);
        last.map_or(Nanos::ZERO, |entry| span.end(entry.at))
    }

    /// Adds `permits` at `at`, or at the time of the last entry if the clock was set back, and removes entries
    /// that no longer count then.
    #[inline]
    pub(crate) fn add(&mut self, at: Nanos, permits: u32, span: Span) -> LogReceipt {
        let at = at.max(self.last.at);
        if let Some(older) = &mut self.older {
            older.expire(at, span);
        }
        let is_same_part = span.part_of(self.last.at) == span.part_of(at);
        match self.last.permits.checked_add(permits) {
            // One whose permits all came back keeps nothing.
            Some(permits) if is_same_part || self.last.permits == 0 => {
                self.last = Entry { at, permits };
            }
            _ => {
                let last = std::mem::replace(&mut self.last, Entry { at, permits });
                self.number += 1;
                // If it has expired, all before it have, so no number of those that stay is left out.
                if at < span.end(last.at) {
                    self.older.get_or_insert_default().push(last);
                }
            }
        }
        LogReceipt { entry: self.number }
    }

    /// Takes `permits` out of an entry, if it has not been removed.
    pub(crate) fn take(&mut self, receipt: LogReceipt, permits: u32) {
        let Some(later) = self.number.checked_sub(receipt.entry) else { return };
        if later == 0 {
            self.last.permits = self.last.permits.saturating_sub(permits);
        } else if let Some(older) = &mut self.older {
            older.take(later, permits);
        }
    }
}

impl Older {
    #[inline]
    fn expire(&mut self, at: Nanos, span: Span) {
        while let Some(&entry) = self.entries.front()
            && span.end(entry.at) <= at
        {
            self.entries.pop_front();
            self.granted -= u64::from(entry.permits);
        }
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(KEEP.max(2 * self.entries.len()));
        }
    }

    fn push(&mut self, entry: Entry) {
        // The count never wraps: that would take 2^32 grants of 2^32 permits.
        self.granted += u64::from(entry.permits);
        self.entries.push_back(entry);
    }

    /// Takes permits out of the entry at this place from the end, counted from one.
    fn take(&mut self, later: u64, permits: u32) {
        let entry = usize::try_from(later).ok().and_then(|it| self.entries.len().checked_sub(it));
        if let Some(entry) = entry.and_then(|entry| self.entries.get_mut(entry)) {
            let permits = permits.min(entry.permits);
            entry.permits -= permits;
            self.granted -= u64::from(permits);
        }
    }
}

/// Implements [`Policy`](crate::Policy) for a type with a `limit` and a `span`.
macro_rules! logged {
    ($kind:ident) => {
        type Cost = u32;
        type State = Log;
        type Receipt = LogReceipt;

        fn start(&self, _: Nanos) -> Log {
            Log::default()
        }

        fn idle_at(&self, log: &Log) -> Option<Nanos> {
            Some(log.empty_at(self.span))
        }

        #[inline]
        fn ready_at(&self, log: &Log, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
            let Some(others) = self.limit.checked_sub(n) else {
                return Err(ExceedsCapacity::new(n, u64::from(self.limit)));
            };
            let at = log.no_more_than_at(u64::from(others), self.span);
            Ok(Ready::At(at.max(now)))
        }

        #[inline(always)]
        fn charge(&self, log: &mut Log, at: Nanos, n: u32) -> LogReceipt {
            log.add(at, n, self.span)
        }

        /// Exact: as if the permits had never been granted.
        fn refund(&self, log: &mut Log, _: Nanos, part: u32, receipt: LogReceipt) -> LogReceipt {
            log.take(receipt, part);
            receipt
        }

        /// Grants of the last window count. Grants older than the old window may have been removed by a later
        /// grant, even if the new window is longer.
        fn migrate(&self, _: &Self, _: &mut Log, _: Nanos) {}

        fn available(&self, log: &Log, now: Nanos) -> u32 {
            let granted = log.granted_within(self.span, now);
            self.limit.saturating_sub(u32::try_from(granted).unwrap_or(u32::MAX))
        }

        #[inline]
        fn facts(&self, _: usize) -> Facts {
            let facts = Facts::window(self.limit, Duration::from_nanos(self.span.window));
            Facts { kind: Some(Kind::$kind), ..facts }
        }
    };
}
pub(super) use logged;

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_log_with_one_entry_has_nothing_on_the_heap() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 10 });
        for at in [3, 20, 40, 55] {
            let receipt = log.add(Nanos::new(at), 2, span);
            log.take(receipt, 2);
            log.add(Nanos::new(at + 1), 3, span);
            assert_eq!((log.older.is_none(), log.granted()), (true, 3));
        }
    }

    #[test]
    fn what_the_count_of_an_entry_does_not_hold_takes_another_one() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 10 });
        let receipts = [(); 3].map(|()| log.add(Nanos::new(5), u32::MAX, span));
        for (receipt, left) in receipts.into_iter().zip([2, 1, 0]) {
            log.take(receipt, u32::MAX);
            assert_eq!(log.granted(), left * u64::from(u32::MAX));
        }
        assert_eq!(log.empty_at(span), Nanos::ZERO);
    }

    #[test]
    fn a_receipt_names_its_grant_after_older_ones_have_gone() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 50 });
        let at = Nanos::new;
        let gone = log.add(at(0), 2, span);
        let kept = log.add(at(40), 3, span);
        let last = log.add(at(60), 1, span);
        log.take(gone, 2);
        assert_eq!(log.granted_within(span, at(60)), 4);
        log.take(kept, 3);
        assert_eq!(log.granted_within(span, at(60)), 1);
        // Nothing counts, though an entry is left.
        assert_eq!(log.empty_at(span), at(110));
        log.take(last, 1);
        assert_eq!(log.empty_at(span), Nanos::ZERO);
    }

    #[test]
    fn a_log_gives_its_memory_back_when_its_entries_have_gone() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 10_000 });
        (0..10_000).for_each(|at| _ = log.add(Nanos::new(at), 1, span));
        log.add(Nanos::new(30_000), 1, span);
        let capacity = log.older.map_or(0, |older| older.entries.capacity());
        assert!(capacity < 200, "{capacity}");
    }
}
