//! Permits that were granted.

use std::fmt;
use std::time::Duration;

use super::acquire::Handle;
use crate::error::Error;
use crate::line::Charge;
use crate::policy::{Cost, Policy};

/// Permits that were granted.
///
/// They are taken whether this is kept or not; dropping it does nothing. It is only needed to learn
/// about the wait or to correct the cost.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// limiter.blocking_acquire(1)?;
/// let grant = limiter.blocking_acquire(3)?;
/// assert_eq!(grant.waited().as_millis(), 200);
/// assert_eq!(grant.cost(), 3);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct Grant<'a, P: Policy> {
    handle: Handle<'a, P>,
    cost: P::Cost,
    charge: Charge<P::Receipt>,
}

impl<'a, P: Policy> Grant<'a, P> {
    #[inline]
    pub(super) fn new(handle: Handle<'a, P>, cost: P::Cost, charge: Charge<P::Receipt>) -> Self {
        Self { handle, cost, charge }
    }

    /// How long this had to wait: from its arrival to the time at which it was due. The caller may
    /// have noticed a little later.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(2)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 400);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.charge.waited)
    }

    /// What was asked for.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// assert_eq!(limiter.try_acquire(2)?.cost(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn cost(&self) -> P::Cost {
        self.cost
    }

    /// Corrects the cost once the true one is known: what was too much is given back as by
    /// [`refund`](Self::refund), what is missing is owed, and whoever comes next waits for it.
    ///
    /// What is given back late, after others were granted, is only what time has not given back
    /// already, while what is missing is always charged. So where costs are not known beforehand and
    /// many callers are in line, ask for the least and settle upwards.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if the missing part could never be granted; then nothing changes.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(10)?.settle(12)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 2400);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle(self, actual: P::Cost) -> Result<(), Error> {
        let (more, less) = (actual.less(self.cost), self.cost.less(actual));
        self.handle.touch(|inner, now| {
            if !more.is_zero() {
                inner.overcharge(now, more)?;
            }
            if !less.is_zero() {
                inner.refund(now, less, self.charge.receipt);
            }
            Ok(())
        })
    }

    /// Gives the permits back: the request was not made after all.
    ///
    /// As long as nobody else has been granted since, this is exact: as if they had never been
    /// taken. Afterwards others have waited for them already; then what time has not yet given back
    /// anyway is returned, and nothing across a pause, so that a refund never lets anybody exceed the
    /// limit.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.try_acquire(10)?.refund();
    /// assert!(limiter.try_acquire(1).is_ok());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund(self) {
        self.handle.touch(|inner, now| inner.refund(now, self.cost, self.charge.receipt));
    }
}

impl<P: Policy> fmt::Debug for Grant<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("waited", &self.waited()).finish()
    }
}
