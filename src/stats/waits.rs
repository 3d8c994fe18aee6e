//! A histogram of waits, and the rules that caused them.

use std::time::Duration;

use crate::units::saturating_nanos;

use crate::part::Part;

/// How long callers waited, and for which rule: a snapshot, returned by
/// [`RateLimiter::waits`](crate::RateLimiter::waits).
///
/// Only callers that waited and took their grant count. The bounds of the buckets are powers of two, from
/// a microsecond to 71 minutes; the last bucket has all longer waits as well.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(10.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// for _ in 0..101 {
///     limiter.blocking_acquire(1)?; // the first does not wait
/// }
/// let waits = limiter.waits();
/// assert_eq!(waits.count(), 100);
/// let median = waits.quantile(0.5).expect("some callers waited");
/// assert!((100..=150).contains(&median.as_millis()));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    buckets: [u64; BUCKETS],
    limited_by: [(Option<Part>, u64); PARTS],
}

/// One for each power of two microseconds.
const BUCKETS: usize = 34;

/// The most parts that a composed policy has.
const PARTS: usize = 8;

impl Waits {
    /// The number of callers that waited.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The wait that the share `q` of the callers did not exceed: 0.5 is the median. It is the upper bound of
    /// its bucket. `None` if no caller waited.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let wanted = ((q.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.buckets().find_map(|(bound, count)| {
            below += count;
            (below >= wanted).then_some(bound)
        })
    }

    /// The buckets that hold callers: the longest wait in each, and the number of callers.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (bound(bucket), *count))
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
    /// for (part, callers) in limiter.waits().limited_by() {
    ///     assert_eq!((part.to_string(), callers), ("limit 1 of 2, token-bucket".into(), 4));
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limited_by(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        let counted = self.limited_by.iter().filter(|(_, count)| *count > 0);
        counted.filter_map(|&(part, count)| Some((part?, count)))
    }

    /// A caller has waited.
    pub(crate) fn add(&mut self, wait: Duration, limited_by: Option<Part>) {
        self.buckets[bucket(wait)] += 1;
        if let Some(part) = limited_by
            && let Some((name, count)) = self.limited_by.get_mut(part.index())
        {
            *name = Some(part);
            *count += 1;
        }
    }

    /// The waits of two limiters, each of which counts as a part.
    pub(crate) fn and(&self, second: &Self) -> Self {
        let mut limited_by = Self::default().limited_by;
        for (index, waits) in [self, second].into_iter().enumerate() {
            limited_by[index] = (Some(Part::new(index, 2)), waits.count());
        }
        Self { limited_by, ..self.clone().with(second) }
    }

    /// With the waits that others counted, which were for no part of the policy.
    pub(crate) fn with(mut self, others: &Self) -> Self {
        self.buckets.iter_mut().zip(others.buckets).for_each(|(count, other)| *count += other);
        self
    }

    /// What was counted since `earlier`.
    #[cfg(feature = "metrics")]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        later.buckets.iter_mut().zip(earlier.buckets).for_each(|(count, old)| *count -= old);
        let limits = later.limited_by.iter_mut().zip(earlier.limited_by);
        limits.for_each(|((_, count), (_, old))| *count -= old);
        later
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], limited_by: [(None, 0); PARTS] }
    }
}

/// The shortest bucket whose bound the wait does not exceed.
fn bucket(wait: Duration) -> usize {
    let micros = saturating_nanos(wait).div_ceil(1_000).max(1);
    (micros.next_power_of_two().ilog2() as usize).min(BUCKETS - 1)
}

fn bound(bucket: usize) -> Duration {
    Duration::from_micros(1 << bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_bucket_whose_bounds_enclose_it() {
        for smaller in 0..BUCKETS - 1 {
            let longest = bound(smaller);
            assert_eq!(bucket(longest), smaller, "{longest:?}");
            assert_eq!(bucket(longest + Duration::from_nanos(1)), smaller + 1, "{longest:?}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert!(bound(BUCKETS - 2) > Duration::from_secs(3600));
    }

    /// Waits in milliseconds, the first of them for the first part of two.
    fn waits(millis: &[u64]) -> Waits {
        let mut waits = Waits::default();
        for (index, &millis) in millis.iter().enumerate() {
            let part = (index == 0).then(|| Part::new(0, 2));
            waits.add(Duration::from_millis(millis), part);
        }
        waits
    }

    #[test]
    fn a_quantile_is_the_bound_that_its_share_does_not_exceed() {
        let waits = waits(&[1, 10, 10, 100]);
        let bounds: Vec<_> = waits.buckets().collect();
        assert_eq!(bounds.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2, 1]);
        for (share, bucket) in
            [(-1.0, 0), (0.0, 0), (0.25, 0), (0.26, 1), (0.75, 1), (0.76, 2), (2.0, 2)]
        {
            assert_eq!(waits.quantile(share), Some(bounds[bucket].0), "{share}");
        }
        assert_eq!(Waits::default().quantile(0.5), None);
        assert_eq!(waits.limited_by().collect::<Vec<_>>(), [(Part::new(0, 2), 1)]);
    }

    #[test]
    fn waits_are_added_up() {
        let [first, second] = [waits(&[1, 10]), waits(&[10, 100, 100])];
        let counts = |waits: &Waits| waits.buckets().map(|(_, count)| count).collect::<Vec<_>>();
        let both = first.and(&second);
        assert_eq!(counts(&both), [1, 2, 2]);
        let parts = [(Part::new(0, 2), 2), (Part::new(1, 2), 3)];
        assert_eq!(both.limited_by().collect::<Vec<_>>(), parts);
        let with = first.clone().with(&second);
        assert_eq!(counts(&with), [1, 2, 2]);
        assert_eq!(with.limited_by().collect::<Vec<_>>(), [(Part::new(0, 2), 1)]);
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn what_was_counted_before_is_taken_off() {
        let (before, now) = (waits(&[1, 10]), waits(&[1, 10, 10, 100]));
        let since = now.since(&before);
        assert_eq!(since.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((since.count(), since.limited_by().count()), (2, 0));
    }
}
