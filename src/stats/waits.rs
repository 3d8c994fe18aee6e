//! A histogram of waits, and the rules that caused them.

use std::time::Duration;

use crate::part::Part;
use crate::units::saturating_nanos;

/// How long callers waited, and for which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) limited_by: [(Option<Part>, u64); PARTS],
}

/// One for each power of two microseconds.
const BUCKETS: usize = 34;

/// The most parts that a composed policy has.
const PARTS: usize = 8;

impl Waits {
    /// A caller has waited.
    pub(crate) fn count(&mut self, wait: Duration, limited_by: Option<Part>) {
        self.buckets[bucket(wait)] += 1;
        if let Some(part) = limited_by
            && let Some((name, count)) = self.limited_by.get_mut(part.index())
        {
            *name = Some(part);
            *count += 1;
        }
    }

    /// Adds waits of others, which were for no part of the policy.
    pub(super) fn add(&mut self, others: &Self) {
        self.buckets.iter_mut().zip(others.buckets).for_each(|(count, other)| *count += other);
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

pub(super) fn bound(bucket: usize) -> Duration {
    Duration::from_micros(1 << bucket)
}

#[cfg(test)]
mod tests {
    use super::super::Stats;
    use super::*;
    use crate::sync::real::Mutex;

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
    fn waits(millis: &[u64]) -> Stats {
        let waits = Mutex::new(Waits::default());
        for (index, &millis) in millis.iter().enumerate() {
            let part = (index == 0).then(|| Part::new(0, 2));
            waits.lock().count(Duration::from_millis(millis), part);
        }
        Stats::default().with(&waits)
    }

    fn counts(stats: &Stats) -> Vec<u64> {
        stats.wait_buckets().map(|(_, count)| count).collect()
    }

    #[test]
    fn a_quantile_is_the_bound_that_its_share_does_not_exceed() {
        let waits = waits(&[1, 10, 10, 100]);
        let bounds: Vec<_> = waits.wait_buckets().collect();
        assert_eq!(counts(&waits), [1, 2, 1]);
        for (share, bucket) in
            [(-1.0, 0), (0.0, 0), (0.25, 0), (0.26, 1), (0.75, 1), (0.76, 2), (2.0, 2)]
        {
            assert_eq!(waits.wait_quantile(share), Some(bounds[bucket].0), "{share}");
        }
        assert_eq!(Stats::default().wait_quantile(0.5), None);
        assert_eq!(waits.limited_by().collect::<Vec<_>>(), [(Part::new(0, 2), 1)]);
    }

    #[test]
    fn waits_are_added_up() {
        let [first, second] = [waits(&[1, 10]), waits(&[10, 100, 100])];
        let both = first.clone().and(second.clone());
        assert_eq!(counts(&both), [1, 2, 2]);
        let parts = [(Part::new(0, 2), 2), (Part::new(1, 2), 3)];
        assert_eq!(both.limited_by().collect::<Vec<_>>(), parts);
        let mut with = first;
        with.add(second);
        assert_eq!(counts(&with), [1, 2, 2]);
        assert_eq!(with.limited_by().collect::<Vec<_>>(), [(Part::new(0, 2), 1)]);
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn what_was_counted_before_is_taken_off() {
        let (before, now) = (waits(&[1, 10]), waits(&[1, 10, 10, 100]));
        let since = now.waits_since(&before);
        assert_eq!(counts(&since), [1, 1]);
        assert_eq!((since.waits(), since.limited_by().count()), (2, 0));
    }
}
