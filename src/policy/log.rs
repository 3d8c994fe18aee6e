//! What was granted in the last span of time: the memory of the sliding windows.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Nanos;

/// What a sliding window remembers: grants with their times, the oldest first; those of one time are
/// one entry.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// How many entries have gone before the first one.
    gone: u64,
    /// The permits of all entries.
    granted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    permits: u64,
}

/// What a refund must know of a charge of a sliding window: which entry it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReceipt {
    entry: u64,
}

/// Keep room for this many entries; when a crowd has gone, give the memory back.
const KEEP: usize = 64;

impl Log {
    /// When no more than `others` permits are less than `span` old.
    pub(crate) fn no_more_than_at(&self, others: u64, span: Duration) -> Nanos {
        let mut left = self.granted;
        let mut entries = self.entries.iter();
        let mut at = Nanos::ZERO;
        while left > others
            && let Some(entry) = entries.next()
        {
            left -= entry.permits;
            at = entry.at.saturating_add(span);
        }
        at
    }

    /// How many permits are less than `span` old at `now`.
    pub(crate) fn granted_within(&self, span: Duration, now: Nanos) -> u64 {
        let old = self.entries.iter().take_while(|entry| entry.at.saturating_add(span) <= now);
        self.granted - old.map(|entry| entry.permits).sum::<u64>()
    }

    /// When nothing is left that is less than `span` old.
    pub(crate) fn empty_at(&self, span: Duration) -> Nanos {
        self.entries.back().map_or(Nanos::ZERO, |entry| entry.at.saturating_add(span))
    }

    /// Forgets what is `span` old at `now`.
    pub(crate) fn forget(&mut self, now: Nanos, span: Duration) {
        while let Some(&entry) = self.entries.front()
            && entry.at.saturating_add(span) <= now
        {
            self.entries.pop_front();
            self.gone += 1;
            self.granted -= entry.permits;
        }
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(KEEP.max(2 * self.entries.len()));
        }
    }

    /// Adds `permits` at `at`, or at the time of the last entry if the clock has gone back, and
    /// forgets what is `span` old by then.
    pub(crate) fn add(&mut self, at: Nanos, permits: u64, span: Duration) -> LogReceipt {
        let at = self.entries.back().map_or(at, |last| at.max(last.at));
        self.forget(at, span);
        // A count never wraps: permits are u32, and nobody lives to grant 2^32 of them.
        self.granted += permits;
        match self.entries.back_mut() {
            Some(last) if last.at == at => last.permits += permits,
            _ => self.entries.push_back(Entry { at, permits }),
        }
        LogReceipt { entry: self.gone + self.entries.len() as u64 - 1 }
    }

    /// Moves all entries in time, without changing their order.
    pub(crate) fn move_each(&mut self, to: impl Fn(Nanos) -> Nanos) {
        for entry in &mut self.entries {
            entry.at = to(entry.at);
        }
    }

    /// Takes `permits` out of an entry, if it has not been forgotten.
    pub(crate) fn take(&mut self, receipt: LogReceipt, permits: u64) {
        let entry =
            receipt.entry.checked_sub(self.gone).and_then(|entry| usize::try_from(entry).ok());
        if let Some(entry) = entry.and_then(|entry| self.entries.get_mut(entry)) {
            let permits = permits.min(entry.permits);
            entry.permits -= permits;
            self.granted -= permits;
        }
    }
}

/// The half of a [`Policy`](crate::Policy) that is the same for the sliding windows: all but the time
/// under which a grant is kept.
macro_rules! logged {
    () => {
        type Cost = u32;
        type State = Log;
        type Receipt = LogReceipt;

        fn start(&self, _: Nanos) -> Log {
            Log::default()
        }

        fn forget_at(&self, log: &Log) -> Option<Nanos> {
            Some(log.empty_at(self.window))
        }

        fn ready_at(&self, log: &Log, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
            let Some(others) = self.limit.checked_sub(n) else {
                return Err(ExceedsCapacity::new(u64::from(self.limit)));
            };
            let at = log.no_more_than_at(u64::from(others), self.window);
            Ok(Ready::At(at.max(now)))
        }

        /// Exact: as if it had never been granted.
        fn refund(&self, log: &mut Log, _: Nanos, part: u32, receipt: LogReceipt) -> LogReceipt {
            log.take(receipt, u64::from(part));
            receipt
        }

        fn available(&self, log: &Log, now: Nanos) -> u32 {
            let granted = log.granted_within(self.window, now);
            self.limit.saturating_sub(u32::try_from(granted).unwrap_or(u32::MAX))
        }
    };
}
pub(super) use logged;
