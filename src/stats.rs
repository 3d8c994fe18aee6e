//! Counting what a limiter did, without slowing down what it does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::sync::OwnLine;

/// What a limiter has done since it was made.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let limiter =
///     RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), ManualClock::new());
/// limiter.try_acquire(1)?;
/// assert!(limiter.try_acquire(1).is_err());
/// let stats = limiter.stats();
/// assert_eq!((stats.granted, stats.refused, stats.given_up), (1, 1, 0));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were granted, those that were given back later included.
    pub granted: u64,
    /// Calls that were answered with an error.
    pub refused: u64,
    /// Callers who left the line, and grants that nobody was there to take.
    pub given_up: u64,
    /// The waits of all granted calls together.
    pub waited: Duration,
}

impl Stats {
    #[cfg(feature = "redis")]
    pub(crate) fn grant(&mut self, waited: Duration) {
        self.granted += 1;
        self.waited = self.waited.saturating_add(waited);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.waited = self.waited.saturating_add(other.waited);
    }
}

/// Threads that count without sharing a cache line. More than these share the last one.
const STRIPES: usize = 16;

/// Counts from many threads without a contended write.
///
/// The first threads own a stripe each and write it without a locked instruction: nobody else
/// writes there. A stripe goes to another thread when its owner has ended.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stripes: [OwnLine<Stripe>; STRIPES],
}

#[derive(Debug, Default)]
struct Stripe {
    granted: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn count(&self, granted: bool) {
        let stripe = STRIPE.try_with(|stripe| stripe.0).unwrap_or(STRIPES - 1);
        let counters = &self.stripes[stripe].0;
        let counter = if granted { &counters.granted } else { &counters.refused };
        if stripe == STRIPES - 1 {
            counter.fetch_add(1, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Granted and refused.
    pub(crate) fn sum(&self) -> (u64, u64) {
        let sum = |get: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| get(&stripe.0).load(Ordering::Relaxed)).sum()
        };
        (sum(|stripe| &stripe.granted), sum(|stripe| &stripe.refused))
    }
}

/// Which stripes are owned, a bit each; bit 15 never is.
static OWNED: AtomicUsize = AtomicUsize::new(0);

struct OwnedStripe(usize);

thread_local! {
    static STRIPE: OwnedStripe = OwnedStripe::take();
}

impl OwnedStripe {
    fn take() -> Self {
        let mut owned = OWNED.load(Ordering::Relaxed);
        loop {
            let free = (!owned).trailing_zeros() as usize;
            if free >= STRIPES - 1 {
                return Self(STRIPES - 1);
            }
            // Acquire what the last owner wrote, or its counts could be overwritten.
            match OWNED.compare_exchange_weak(
                owned,
                owned | 1 << free,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Self(free),
                Err(current) => owned = current,
            }
        }
    }
}

impl Drop for OwnedStripe {
    fn drop(&mut self) {
        if self.0 < STRIPES - 1 {
            OWNED.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_is_lost_with_more_threads_than_stripes() {
        let counters = Counters::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..2 * STRIPES {
                    scope.spawn(|| (0..1000).for_each(|n| counters.count(n % 4 != 0)));
                }
            });
        }
        let calls = 3 * 2 * STRIPES as u64 * 1000;
        assert_eq!(counters.sum(), (calls * 3 / 4, calls / 4));
    }
}
