//! How many calls may be retries.

use std::time::Duration;

use crate::clock::Clock;
use crate::sync::Mutex;
use crate::units::Nanos;

/// What a retry costs, in time: one is always allowed after it, so that few calls can be retried at all.
const ONE: Duration = Duration::from_secs(10);

/// The most that is saved.
const MOST: Duration = Duration::from_secs(100);

/// A budget that keeps retries to a share of all calls, so that they do not multiply an outage.
///
/// Each call adds its share, each retry takes one. In any span, at most `share x calls + span / 10 s + 10` are
/// retries. A `Feedback` may have one; by itself it serves loops around any limiter.
///
/// ```
/// use tollgate::ManualClock;
/// use tollgate::RetryBudget;
///
/// let budget = RetryBudget::with_clock(0.1, ManualClock::new());
/// // An outage: all calls and all retries fail.
/// let mut retries = 0;
/// for _ in 0..1000 {
///     budget.on_call();
///     while budget.may_retry() {
///         budget.on_call(); // a retry is a call
///         retries += 1;
///     }
/// }
/// assert_eq!(retries, 122); // without a budget three retries of each call would be 3000
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    share: Duration,
    clock: Clock,
    /// What is saved, and when time was last added to it.
    saved: Mutex<(Duration, Nanos)>,
}

impl RetryBudget {
    /// A budget of a share of all calls, with the [system clock](Clock::system).
    ///
    /// # Panics
    ///
    /// If `share` is not between 0 and 1.
    #[must_use]
    #[track_caller]
    pub fn new(share: f64) -> Self {
        Self::with_clock(share, Clock::system())
    }

    /// The same with another clock.
    ///
    /// # Panics
    ///
    /// If `share` is not between 0 and 1.
    #[must_use]
    #[track_caller]
    pub fn with_clock(share: f64, clock: impl Into<Clock>) -> Self {
        check(share);
        let clock = clock.into();
        let saved = Mutex::new((MOST, clock.now()));
        Self { share: ONE.mul_f64(share), clock, saved }
    }

    /// Counts a call. Count retries as well.
    pub fn on_call(&self) {
        let mut saved = self.saved.lock();
        saved.0 = (saved.0 + self.share).min(MOST);
    }

    /// Takes a retry from the budget, if it has one.
    ///
    /// ```
    /// # use tollgate::ManualClock;
    /// # use tollgate::RetryBudget;
    /// let budget = RetryBudget::with_clock(0.1, ManualClock::new());
    /// assert_eq!((0..20).filter(|_| budget.may_retry()).count(), 10);
    /// ```
    #[must_use]
    pub fn may_retry(&self) -> bool {
        let now = self.clock.now();
        let mut saved = self.saved.lock();
        let left = saved.0.saturating_add(now.since(saved.1)).min(MOST);
        let rest = left.checked_sub(ONE);
        *saved = (rest.unwrap_or(left), now);
        rest.is_some()
    }
}

/// Panics unless `share` is between 0 and 1.
#[track_caller]
pub(crate) fn check(share: f64) {
    assert!((0.0..=1.0).contains(&share), "a share of calls is between 0 and 1, not {share}");
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn left(budget: &RetryBudget) -> usize {
        (0..100).take_while(|_| budget.may_retry()).count()
    }

    #[test]
    fn a_budget_grows_with_calls_and_slowly_with_time() {
        let clock = ManualClock::new();
        let budget = RetryBudget::with_clock(0.25, &clock);
        assert_eq!(left(&budget), 10);
        (0..9).for_each(|_| budget.on_call());
        assert_eq!(left(&budget), 2, "and a quarter stays");
        (0..3).for_each(|_| budget.on_call());
        assert_eq!(left(&budget), 1);
        // Asked in between, it counts the same time.
        let third = ONE / 3 + Duration::from_nanos(1);
        let asked = [(); 6].map(|()| {
            clock.advance(third);
            budget.may_retry()
        });
        assert_eq!(asked, [false, false, true, false, false, true]);
        clock.advance(4 * ONE);
        assert_eq!(left(&budget), 4);
        clock.advance(Duration::from_secs(1 << 40));
        assert_eq!(left(&budget), 10, "no more than at first");
    }

    #[test]
    #[should_panic(expected = "a share of calls is between 0 and 1, not 1.5")]
    fn a_share_is_no_more_than_one() {
        let _budget = RetryBudget::with_clock(1.5, ManualClock::new());
    }
}
