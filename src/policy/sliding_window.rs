//! The two sliding windows: a log of grants, exact or in parts of the window.
//!
//! `n` permits are ready when, with them, at most `limit` permits lie in the window that ends now: when all but
//! `limit - n` of those in the log are a window old. A window is half open: a permit granted at `t` is outside it at
//! `t + window`. So at most `limit` permits lie in *any* window, wherever it starts. Units: nanoseconds, exact.
//!
//! The counter divides a window into `buckets` equal parts, and a grant counts from the start of its part. So any span
//! of `(1 - 1 / buckets) x window` holds at most `limit` permits, because it touches at most `buckets` parts. A whole
//! window can hold twice the limit, within one part at each end. The length of a part is rounded up to whole
//! nanoseconds.

use super::prelude::*;
use std::collections::VecDeque;

/// At most `limit` permits in any window, wherever it starts.
///
/// The strictest policy, for a server whose windows are unknown: the limit holds in each of them, however
/// they are aligned. The log takes 12 bytes for each distinct time of a grant within the window. Its buffer grows by
/// doubling, so it may take twice that: 13 MB for a million times, 25 MB for 1.1 million. A large request at a full
/// limit visits each entry that has to leave the window.
///
/// A request for more than the limit is an error at once; with a limit of zero nothing is granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, RateLimiter, SlidingWindowLog};
///
/// let clock = ManualClock::new();
/// let policy = SlidingWindowLog::new(3, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, clock.clone());
/// limiter.try_acquire(1)?;
/// clock.advance(Duration::from_secs(50));
/// limiter.try_acquire(2)?;
/// let wait = |n| limiter.try_acquire(n).unwrap_err().retry_after().unwrap().as_secs();
/// assert_eq!((wait(1), wait(2)), (10, 60));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindowLog {
    pub(crate) limit: u32,
    pub(crate) span: Span,
}

/// At most `limit` permits in any `(1 - 1 / buckets)` of a window.
///
/// An approximation of [`SlidingWindowLog`] that needs little memory: 12 bytes for
/// each bucket with a grant. With ten buckets the limit holds in any nine tenths of a window. With one
/// bucket the policy is an aligned [`FixedWindow`](crate::FixedWindow).
///
/// A request for more than the limit is an error at once; with a limit of zero nothing is granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, RateLimiter, SlidingWindowCounter};
///
/// let clock = ManualClock::new();
/// let policy = SlidingWindowCounter::new(3, Duration::from_secs(60), 6);
/// let limiter = RateLimiter::with_clock(policy, clock.clone());
/// clock.advance(Duration::from_secs(9));
/// limiter.try_acquire(3)?;
/// // Grants of the first ten seconds count until the seventh ten seconds begin.
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 51);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindowCounter {
    pub(crate) limit: u32,
    pub(crate) span: Span,
}

impl SlidingWindowLog {
    /// At most `limit` permits in any `window`.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON).
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration) -> Self {
        check_span(window, "a window");
        Self { limit, span: Span { part: 1, window: saturating_nanos(window) } }
    }
}

impl SlidingWindowCounter {
    /// At most `limit` permits in the last `buckets` parts of `window / buckets` each, including the current
    /// part. The parts start at multiples of their length after the clock's origin.
    ///
    /// # Panics
    ///
    /// If the window is zero or longer than the [horizon](Nanos::HORIZON), or there are no buckets.
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32, window: Duration, buckets: u32) -> Self {
        check_span(window, "a window");
        assert!(buckets > 0, "a window must have at least one bucket");
        let part = window.as_nanos().div_ceil(u128::from(buckets));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let window = part.saturating_mul(u64::from(buckets));
        Self { limit, span: Span { part, window } }
    }

    /// The number of parts of a window that are counted.
    #[cfg(feature = "config")]
    pub(crate) fn buckets(&self) -> u32 {
        u32::try_from(self.span.window.div_ceil(self.span.part)).unwrap_or(u32::MAX)
    }
}

/// What both are, by their `limit` and `span`.
macro_rules! by_log {
    ($($policy:ident),+) => {$(
        impl Policy for $policy {
            type Cost = u32;
            type State = Log;
            type Receipt = u64;

            fn start(&self, _: Nanos) -> Log {
                Log::default()
            }

            fn idle_at(&self, log: &Log) -> Option<Nanos> {
                Some(log.empty_at(self.span))
            }

            #[inline]
            fn ready_at(&self, log: &Log, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
                let limit = u64::from(self.limit);
                let others = limit.checked_sub(n.into()).ok_or(ExceedsCapacity::new(n, limit))?;
                Ok(Ready::At(log.no_more_than_at(others, self.span).max(now)))
            }

            #[inline(always)]
            fn charge(&self, log: &mut Log, at: Nanos, n: u32) -> u64 {
                log.add(at, n, self.span)
            }

            /// Exact: as if the permits had never been granted.
            fn refund(&self, log: &mut Log, _: Nanos, part: u32, number: u64) -> u64 {
                log.take(number, part);
                number
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
                Facts { kind: Some(Kind::$policy), ..Facts::window(self.limit, Duration::from_nanos(self.span.window)) }
            }
        }
    )+};
}

by_log!(SlidingWindowLog, SlidingWindowCounter);

/// The time for which a grant counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// The state of a sliding window: grants with their times, oldest first. The grants of one part of the window
/// share an entry, with the time of the last one.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The number of the last entry, for receipts. Those before it have the numbers before it.
    number: u64,
    /// The permits of all entries. The count never wraps: that would take 2^32 grants of 2^32 permits.
    granted: u64,
}

// Packed, because alignment to 8 bytes would cost each grant four.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
struct Entry {
    at: Nanos,
    permits: u32,
}

/// Shrinking keeps room for this number of entries. The log shrinks after many entries have expired.
const KEEP: usize = 64;

impl Log {
    /// The time from which no more than `others` permits count.
    #[inline]
    fn no_more_than_at(&self, others: u64, span: Span) -> Nanos {
        let mut left = self.granted;
        let mut at = Nanos::ZERO;
        if left > others {
            for entry in &self.entries {
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
    fn granted_within(&self, span: Span, now: Nanos) -> u64 {
        let old = self.entries.iter().take_while(|entry| span.end(entry.at) <= now);
        self.granted - old.map(|entry| u64::from(entry.permits)).sum::<u64>()
    }

    /// The time from which no permit counts.
    fn empty_at(&self, span: Span) -> Nanos {
        let last = self.entries.iter().rfind(|entry| entry.permits > 0);
        last.map_or(Nanos::ZERO, |entry| span.end(entry.at))
    }

    /// Adds `permits` at `at`, or at the time of the last entry if the clock was set back, and removes entries
    /// that no longer count then. Returns the number of the entry.
    #[inline]
    fn add(&mut self, at: Nanos, permits: u32, span: Span) -> u64 {
        let at = self.entries.back().map_or(at, |last| at.max(last.at));
        self.expire(at, span);
        self.granted += u64::from(permits);
        // An entry whose permits all came back is used again.
        if let Some(last) = self.entries.back_mut()
            && (last.permits == 0 || span.part_of(last.at) == span.part_of(at))
            && let Some(permits) = last.permits.checked_add(permits)
        {
            *last = Entry { at, permits };
        } else {
            self.number += 1;
            self.entries.push_back(Entry { at, permits });
        }
        self.number
    }

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

    /// Takes `permits` out of the entry with this number, if it has not been removed.
    fn take(&mut self, number: u64, permits: u32) {
        let later = usize::try_from(self.number.wrapping_sub(number)).unwrap_or(usize::MAX);
        let index = self.entries.len().checked_sub(later.saturating_add(1));
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            let permits = permits.min(entry.permits);
            entry.permits -= permits;
            self.granted -= u64::from(permits);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_the_count_of_an_entry_does_not_hold_takes_another_one() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 10 });
        let receipts = [(); 3].map(|()| log.add(Nanos::new(5), u32::MAX, span));
        for (receipt, left) in receipts.into_iter().zip([2, 1, 0]) {
            log.take(receipt, u32::MAX);
            assert_eq!(log.granted, left * u64::from(u32::MAX));
        }
        assert_eq!(log.empty_at(span), Nanos::ZERO);
    }

    #[test]
    fn a_log_gives_its_memory_back_when_its_entries_have_gone() {
        let (mut log, span) = (Log::default(), Span { part: 1, window: 10_000 });
        (0..10_000).for_each(|at| _ = log.add(Nanos::new(at), 1, span));
        log.add(Nanos::new(30_000), 1, span);
        let capacity = log.entries.capacity();
        assert!(capacity < 200, "{capacity}");
    }
}
