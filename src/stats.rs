//! Counting calls without slowing them down.

mod waits;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::part::Part;
use crate::sync::OwnLine;
use crate::sync::real::Mutex;
pub(crate) use waits::Waits;
use waits::bound;

/// Counts of a limiter since it was made, and how long its callers waited.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were granted, including grants that were given back later.
    pub granted: u64,
    /// Calls that got an error.
    pub refused: u64,
    /// Callers that left the queue, and grants that no caller took.
    pub given_up: u64,
    /// The sum of the waits of all granted calls.
    pub waited: Duration,
    /// Pauses that began or were made longer.
    pub pauses: u64,
    /// `None` while it counts without them, or if no caller waited.
    waits: Option<Box<Waits>>,
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
        self.pauses += other.pauses;
        if let Some(waits) = other.waits {
            self.waits.get_or_insert_default().add(&waits);
        }
    }
}

/// The waits. Only callers that waited and took their grant count. The bounds of the buckets are powers of two, from a
/// microsecond to 71 minutes; the last bucket has all longer waits as well.
impl Stats {
    /// The number of callers that waited.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.wait_buckets().map(|(_, count)| count).sum()
    }

    /// The wait that the share `q` of the callers that waited did not exceed: 0.5 is the median. It is the upper bound of its
    /// bucket. `None` if no caller waited.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// let policy = SmoothBursty::new(Rate::per_second(10.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// for _ in 0..101 {
    ///     limiter.blocking_acquire(1)?; // the first does not wait
    /// }
    /// let stats = limiter.stats();
    /// assert_eq!(stats.waits(), 100);
    /// let median = stats.wait_quantile(0.5).expect("some callers waited");
    /// assert!((100..=150).contains(&median.as_millis()));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn wait_quantile(&self, q: f64) -> Option<Duration> {
        let wanted = ((q.clamp(0.0, 1.0) * self.waits() as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.wait_buckets().find_map(|(bound, count)| {
            below += count;
            (below >= wanted).then_some(bound)
        })
    }

    /// The buckets that hold callers: the longest wait in each, and the number of callers.
    pub fn wait_buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let buckets = self.waits.iter().flat_map(|waits| waits.buckets.iter().enumerate());
        buckets.filter(|(_, count)| **count > 0).map(|(bucket, count)| (bound(bucket), *count))
    }

    /// The limits of a composed policy that callers waited for, and the number of callers, of the first eight limits. A
    /// caller counts for the limit that held it last; see [`Grant::limited_by`](crate::Grant::limited_by).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, Same, TokenBucket};
    /// let [second, minute] = [Rate::per_second(10.0), Rate::per_minute(60.0)];
    /// let policy = Same((TokenBucket::new(second, 1), TokenBucket::new(minute, 60)));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// for _ in 0..5 {
    ///     limiter.blocking_acquire(1)?;
    /// }
    /// for (part, callers) in limiter.stats().limited_by() {
    ///     assert_eq!((part.to_string(), callers), ("limit 1 of 2, token-bucket".into(), 4));
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limited_by(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        let parts = self.waits.iter().flat_map(|waits| waits.limited_by);
        parts.filter(|(_, count)| *count > 0).filter_map(|(part, count)| Some((part?, count)))
    }

    /// With these waits.
    pub(crate) fn with(self, waits: &Mutex<Waits>) -> Self {
        let waits = waits.lock().clone();
        Self { waits: (waits != Waits::default()).then(|| waits.into()), ..self }
    }

    /// The counts of two limiters of which a caller passes `first` on its way to this one, and is granted by this one.
    pub(crate) fn behind(mut self, first: Self) -> Self {
        let granted = self.granted;
        self.add(first);
        Self { granted, ..self }
    }

    /// The counts of two limiters as one, of which each is a part.
    pub(crate) fn and(self, second: Self) -> Self {
        let counts = [self.waits(), second.waits()];
        let mut both = second.behind(self);
        if let Some(waits) = &mut both.waits {
            waits.limited_by = Waits::default().limited_by;
            for (index, count) in counts.into_iter().enumerate() {
                waits.limited_by[index] = (Some(Part::new(index, 2)), count);
            }
        }
        both
    }

    /// The waits that were counted since `earlier`.
    #[cfg(feature = "metrics")]
    pub(crate) fn waits_since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        if let (Some(later), Some(earlier)) = (&mut later.waits, &earlier.waits) {
            later.buckets.iter_mut().zip(earlier.buckets).for_each(|(count, old)| *count -= old);
            let limits = later.limited_by.iter_mut().zip(earlier.limited_by);
            limits.for_each(|((_, count), (_, old))| *count -= old);
        }
        later
    }
}

/// Counts from many threads without a contended write.
///
/// Each thread owns a stripe and writes it without a locked instruction: no other thread writes
/// there. A stripe goes to another thread when its owner has ended. When all are taken, the threads
/// that have none share one. As long as only one thread counts, a single stripe does.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Whose stripe `single` is.
    owner: AtomicUsize,
    single: Stripe,
    /// Made when a second thread counts. From then on nothing is written beside this.
    stripes: OnceLock<Box<[OwnLine<Stripe>; STRIPES]>>,
}

#[derive(Debug)]
struct Stripe {
    granted: AtomicU64,
    refused: AtomicU64,
}

const STRIPES: usize = 16;

/// The stripe of threads that have none of their own, and of those that have not counted yet.
const SHARED: usize = 0;

/// Owners of the single stripe: no thread yet, and none any more.
const NO_THREAD: usize = usize::MAX;
const RETIRED: usize = usize::MAX - 1;

impl Stripe {
    const fn new() -> Self {
        Self { granted: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    #[inline]
    fn counter(&self, granted: bool) -> &AtomicU64 {
        if granted { &self.granted } else { &self.refused }
    }

    /// By the only thread that writes here.
    #[inline]
    fn count(&self, granted: bool) {
        let counter = self.counter(granted);
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        let owner = AtomicUsize::new(NO_THREAD);
        Self { owner, single: Stripe::new(), stripes: OnceLock::new() }
    }

    // As `Line::decide`.
    #[inline(always)]
    pub(crate) fn count(&self, granted: bool) {
        let mine = MINE.get();
        if mine == self.owner.load(Ordering::Relaxed) {
            self.single.count(granted);
        } else if let Some(stripes) = self.stripes.get()
            && mine != SHARED
        {
            stripes[mine % STRIPES].0.count(granted);
        } else {
            self.count_otherwise(granted);
        }
    }

    /// For the first time by this thread or here, or by a thread without a stripe.
    #[cold]
    #[inline(never)]
    fn count_otherwise(&self, granted: bool) {
        // Fails while the thread ends.
        let mine = OWNED_STRIPE.try_with(|stripe| stripe.0).unwrap_or(SHARED);
        MINE.set(mine);
        if mine != SHARED {
            let (relaxed, owner) = (Ordering::Relaxed, &self.owner);
            let taken = owner.compare_exchange(NO_THREAD, mine, relaxed, relaxed);
            if taken.is_ok() || taken == Err(mine) {
                return self.single.count(granted);
            }
        }
        let stripes = self.stripes.get_or_init(|| {
            self.owner.store(RETIRED, Ordering::Relaxed);
            Box::new([const { OwnLine(Stripe::new()) }; STRIPES])
        });
        if mine == SHARED {
            stripes[SHARED].0.counter(granted).fetch_add(1, Ordering::Relaxed);
        } else {
            stripes[mine].0.count(granted);
        }
    }

    /// Granted and refused.
    pub(crate) fn sum(&self) -> (u64, u64) {
        let stripes = self.stripes.get().into_iter().flat_map(|stripes| stripes.iter());
        stripes.map(|stripe| &stripe.0).chain([&self.single]).fold(
            (0, 0),
            |(granted, refused), stripe| {
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                (granted + count(&stripe.granted), refused + count(&stripe.refused))
            },
        )
    }
}

/// Which stripes are owned, a bit each.
static OWNED: AtomicUsize = AtomicUsize::new(1 << SHARED);

/// A thread's stripe, in all counters.
struct OwnedStripe(usize);

thread_local! {
    /// The number of this thread's stripe: apart from what gives it back, so that reading it takes one instruction.
    static MINE: Cell<usize> = const { Cell::new(SHARED) };
    static OWNED_STRIPE: OwnedStripe = OwnedStripe::take();
}

impl OwnedStripe {
    fn take() -> Self {
        let mut owned = OWNED.load(Ordering::Relaxed);
        loop {
            let free = (!owned).trailing_zeros() as usize;
            if free >= STRIPES {
                return Self(SHARED);
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
        // What this thread counts from now on, in the destructors of others, is shared.
        MINE.set(SHARED);
        if self.0 != SHARED {
            OWNED.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use crate::sync::real::Mutex;

    use super::*;

    /// Held by a test whose threads take all stripes of the process, or which needs one that is free.
    static STRIPES_IN_USE: Mutex<()> = Mutex::new(());

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn no_count_is_lost_with_more_threads_than_stripes() {
        const CALLS: u64 = 40_000;
        let _in_use = STRIPES_IN_USE.lock();
        let (counters, all_are_there) = (Counters::new(), Barrier::new(2 * STRIPES));
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..2 * STRIPES {
                    scope.spawn(|| {
                        counters.count(true);
                        // Those that come now find no stripe, until all have counted.
                        all_are_there.wait();
                        (1..CALLS).for_each(|n| counters.count(n % 4 != 0));
                        all_are_there.wait();
                    });
                }
            });
        }
        // Of each thread one in four, but the first.
        let (threads, refused) = (3 * 2 * STRIPES as u64, CALLS / 4 - 1);
        assert_eq!(counters.sum(), (threads * (CALLS - refused), threads * refused));
    }

    #[test]
    fn one_thread_needs_no_stripes() {
        let _in_use = STRIPES_IN_USE.lock();
        let counters = Counters::new();
        (0..1000).for_each(|_| counters.count(true));
        assert_eq!(counters.sum(), (1000, 0));
        assert!(counters.stripes.get().is_none());
        std::thread::scope(|scope| _ = scope.spawn(|| counters.count(false)));
        assert_eq!(counters.sum(), (1000, 1));
        assert!(counters.stripes.get().is_some());
        // Nor does one that comes later take the stripe of the first.
        std::thread::scope(|scope| _ = scope.spawn(|| counters.count(false)));
        assert_eq!((counters.sum(), counters.owner.into_inner()), ((1000, 2), RETIRED));
    }

    /// A destructor that runs before the stripe's, one that runs after it, and one of a thread that has not counted before.
    #[test]
    fn no_count_is_lost_in_the_destructors_of_a_thread() {
        use std::sync::Arc;

        struct CountsAtTheEnd(Arc<Counters>);

        impl Drop for CountsAtTheEnd {
            fn drop(&mut self) {
                (0..10).for_each(|_| self.0.count(true));
            }
        }

        thread_local! {
            static EARLY: Cell<Option<CountsAtTheEnd>> = const { Cell::new(None) };
            static LATE: Cell<Option<CountsAtTheEnd>> = const { Cell::new(None) };
        }

        let counters = Arc::new(Counters::new());
        for _ in 0..4 * STRIPES {
            let set = |place: &'static std::thread::LocalKey<Cell<_>>, counters: &Arc<_>| {
                place.set(Some(CountsAtTheEnd(Arc::clone(counters))));
            };
            let threads = [true, false].map(|counts_before| {
                let counters = Arc::clone(&counters);
                std::thread::spawn(move || {
                    set(&EARLY, &counters);
                    if counts_before {
                        counters.count(false);
                    }
                    set(&LATE, &counters);
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
        let threads = 4 * STRIPES as u64;
        assert_eq!(counters.sum(), (threads * 2 * 20, threads));
    }
}
