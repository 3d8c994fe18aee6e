//! The log of recent grants: the state of the sliding windows.

use std::collections::VecDeque;

use crate::units::Nanos;

/// The state of a sliding window: grants with their times, oldest first. The grants of one part of the window
/// share an entry, with the time of the last one.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The number of entries removed so far.
    gone: u64,
    /// The permits of all entries.
    granted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    permits: u64,
}

/// The receipt of a charge of a sliding window: the entry that holds it.
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
    /// The time from which no more than `others` permits count.
    #[inline]
    pub(crate) fn no_more_than_at(&self, others: u64, span: Span) -> Nanos {
        let mut left = self.granted;
        let mut entries = self.entries.iter();
        let mut at = Nanos::ZERO;
        while left > others
            && let Some(entry) = entries.next()
        {
            left -= entry.permits;
            at = span.end(entry.at);
        }
        at
    }

    /// The number of permits that count at `now`.
    pub(crate) fn granted_within(&self, span: Span, now: Nanos) -> u64 {
        let old = self.entries.iter().take_while(|entry| span.end(entry.at) <= now);
        self.granted - old.map(|entry| entry.permits).sum::<u64>()
    }

    /// The time from which no permit counts.
    pub(crate) fn empty_at(&self, span: Span) -> Nanos {
        let last = self.entries.iter().rfind(|entry| entry.permits > 0);
        last.map_or(Nanos::ZERO, |entry| span.end(entry.at))
    }

    /// Adds `permits` at `at`, or at the time of the last entry if the clock was set back, and removes entries
    /// that no longer count then.
    #[inline]
    pub(crate) fn add(&mut self, at: Nanos, permits: u64, span: Span) -> LogReceipt {
        let at = self.entries.back().map_or(at, |last| at.max(last.at));
        while let Some(&entry) = self.entries.front()
            && span.end(entry.at) <= at
        {
            self.entries.pop_front();
            self.gone += 1;
            self.granted -= entry.permits;
        }
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(KEEP.max(2 * self.entries.len()));
        }
        // The count never wraps: that would take 2^32 grants of 2^32 permits.
        self.granted += permits;
        match self.entries.back_mut() {
            Some(last) if span.part_of(last.at) == span.part_of(at) => {
                *last = Entry { at, permits: last.permits + permits };
            }
            _ => self.entries.push_back(Entry { at, permits }),
        }
        LogReceipt { entry: self.gone + self.entries.len() as u64 - 1 }
    }

    /// A copy to which at most `more` permits are added, each when it fits in `limit`: with the entries that have
    /// to expire for that, and the last one, which the first grant may join. The others count as permits that
    /// stay.
    pub(crate) fn fork(&self, more: u64, limit: u32) -> Self {
        let mut left = self.granted.saturating_add(more).saturating_sub(u64::from(limit));
        let oldest = self.entries.iter().take_while(|entry| {
            let is_needed = left > 0;
            left = left.saturating_sub(entry.permits);
            is_needed
        });
        let mut entries: VecDeque<_> = oldest.copied().collect();
        if entries.len() < self.entries.len() {
            entries.extend(self.entries.back());
        }
        Self { entries, gone: self.gone, granted: self.granted }
    }

    /// Takes `permits` out of an entry, if it has not been removed.
    pub(crate) fn take(&mut self, receipt: LogReceipt, permits: u64) {
        let entry = receipt.entry.checked_sub(self.gone);
        let entry = entry.and_then(|entry| usize::try_from(entry).ok());
        if let Some(entry) = entry.and_then(|entry| self.entries.get_mut(entry)) {
            let permits = permits.min(entry.permits);
            entry.permits -= permits;
            self.granted -= permits;
        }
    }
}

/// Implements [`Policy`](crate::Policy) for a type with a `limit` and a `span`.
macro_rules! logged {
    ($kind:ident) => {
        type Cost = u32;
        type State = Log;
        type Receipt = LogReceipt;

        const HOOKS: Hooks<Self> = Hooks {
            kind: |_| Some(Kind::$kind),
            rate: |policy| {
                let window = std::time::Duration::from_nanos(policy.span.window);
                crate::Rate::try_new(policy.limit.into(), window).ok()
            },
            infallible: true,
            small: true,
            fork: |policy, log, most| log.fork(most, policy.limit),
            ..Hooks::none()
        };

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
            log.add(at, u64::from(n), self.span)
        }

        /// Exact: as if the permits had never been granted.
        fn refund(&self, log: &mut Log, _: Nanos, part: u32, receipt: LogReceipt) -> LogReceipt {
            log.take(receipt, u64::from(part));
            receipt
        }

        /// Grants of the last window count. Grants older than the old window may have been removed by a later
        /// grant, even if the new window is longer.
        fn migrate(&self, _: &Self, _: &mut Log, _: Nanos) {}

        fn available(&self, log: &Log, now: Nanos) -> u32 {
            let granted = log.granted_within(self.span, now);
            self.limit.saturating_sub(u32::try_from(granted).unwrap_or(u32::MAX))
        }

        fn window(&self, permits: u32) -> Option<Duration> {
            crate::policy::time_of(permits, self.limit.into(), self.span.window.into())
        }
    };
}
pub(super) use logged;

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// When `n` permits are ready, as the policies answer it.
    fn ready(log: &Log, span: Span, limit: u32, from: Nanos, n: u32) -> Option<Nanos> {
        let others = u64::from(limit.checked_sub(n)?);
        Some(log.no_more_than_at(others, span).max(from))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_fork_grants_what_fits_in_it_as_a_copy_does(
            limit in 0u32..60, window in 1u64..80, part in 1u64..8,
            grants in prop::collection::vec((0u64..6, 1u64..6, 0u8..10), 0..80),
            wait in 0u64..40, costs in prop::collection::vec(1u32..20, 1..20), room in 0u64..30,
        ) {
            let span = Span { part, window: window.next_multiple_of(part) };
            let (mut log, mut now) = (Log::default(), 100);
            for (later, permits, kind) in grants {
                // Some come back, and sometimes the clock does.
                now += later;
                let at = if kind == 0 { now - 50 } else { now };
                let receipt = log.add(Nanos::new(at), permits, span);
                if kind < 3 {
                    log.take(receipt, permits.min(2));
                }
            }
            let most = costs.iter().copied().map(u64::from).sum::<u64>();
            let mut fork = log.fork(most + room, limit);
            let mut from = Nanos::new(now + wait);
            for n in costs {
                let at = ready(&log, span, limit, from, n);
                prop_assert_eq!(ready(&fork, span, limit, from, n), at);
                if let Some(at) = at {
                    log.add(at, n.into(), span);
                    fork.add(at, n.into(), span);
                    from = at;
                }
            }
        }
    }

    #[test]
    fn a_fork_has_only_the_entries_that_have_to_expire_and_the_last_one() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 1 << 60 });
        (0..1_000).for_each(|at| _ = log.add(Nanos::new(at), 1, span));
        assert_eq!(log.fork(10, 1_000).entries.len(), 11);
        assert_eq!(log.fork(10, 2_000).entries.len(), 1);
        assert_eq!(log.fork(5_000, 1_000).entries.len(), 1_000);
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
        assert!(log.entries.capacity() < 200, "{}", log.entries.capacity());
    }
}
