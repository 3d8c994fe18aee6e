//! Permits that were granted.

use std::fmt;
use std::time::Duration;

use super::grant_owner::GrantOwner;
use crate::error::Error;
use crate::line::{Change, Charge};
use crate::policy::{Cost, Policy, Quota};

/// Permits that were granted.
///
/// For a rule of a rate they are taken whether this is kept or not: dropping it does nothing, and it is
/// only needed to learn about the wait or to correct the cost. For a rule of calls in flight
/// ([`InFlight`](crate::InFlight), also as a part of several) **dropping it gives the place back**:
/// keep it as long as the call takes.
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
    source: GrantOwner<'a, P>,
    cost: P::Cost,
    /// What can be given back at the price that was paid.
    returnable: P::Cost,
    charge: Charge<P::Receipt>,
}

impl<'a, P: Policy> Grant<'a, P> {
    #[inline]
    pub(crate) fn new(
        source: GrantOwner<'a, P>,
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Self {
        Self { source, cost, returnable: cost, charge }
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

    /// Which of several rules together made it wait: the one that was ready last, counted from zero.
    /// `None` for a single rule, or if it did not have to wait.
    ///
    /// ```
    /// # use tollgate::{InFlight, ManualClock, Rate, RateLimiter, TokenBucket};
    /// let tokens = TokenBucket::new(Rate::per_second(100.0), 100);
    /// let policy = (InFlight::new(10), tokens);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let first = limiter.blocking_acquire((1, 80))?;
    /// let second = limiter.blocking_acquire((1, 80))?;
    /// assert_eq!((first.limited_by(), second.limited_by()), (None, Some(1)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn limited_by(&self) -> Option<usize> {
        self.charge.limited_by
    }

    /// How much of the limit is left now, this grant taken: the grants of others since then, too.
    ///
    /// ```
    /// # use tollgate::{FixedWindow, ManualClock, RateLimiter};
    /// # use std::time::Duration;
    /// let policy = FixedWindow::new(100, Duration::from_secs(60));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// assert_eq!(limiter.try_acquire(1)?.quota().remaining, 99);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn quota(&self) -> Quota<P::Cost> {
        self.source.quota()
    }

    /// The same grant without the borrow, for a task of its own.
    ///
    /// ```
    /// # use tollgate::{InFlight, ManualClock, RateLimiter};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    /// let grant = limiter.try_acquire(1)?.into_owned();
    /// assert!(limiter.try_acquire(1).is_err());
    /// tokio::spawn(async move { drop(grant) }).await?;
    /// assert!(limiter.try_acquire(1).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_owned(mut self) -> Grant<'static, P> {
        let source = self.source.to_owned();
        let (returnable, charge) = (self.returnable, self.charge);
        // What is left here has nothing to give back.
        Grant { source, cost: std::mem::take(&mut self.cost), returnable, charge }
    }

    /// Corrects the cost once the true one is known: what was too much is given back as by
    /// [`refund`](Self::refund), what is missing is owed, and whoever comes next waits for it.
    ///
    /// What is given back late, after others were granted, is only what time has not given back
    /// already, while what is missing is always charged. So where costs are not known beforehand and
    /// many callers are in line, ask for the least and settle upwards.
    ///
    /// Can be called again. What was added by an earlier call is not given back by a later one, except
    /// by rules of calls in flight.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if paying off the missing part would take longer than
    /// [146 years](crate::Nanos::HORIZON); then nothing changes.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(10)?.settle(12)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 2400);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        let (more, less) = (actual.saturating_sub(self.cost), self.cost.saturating_sub(actual));
        // The smaller of `less` and `returnable`.
        let part = less.saturating_sub(less.saturating_sub(self.returnable));
        let receipt = self.charge.receipt;
        self.charge.receipt = self.source.change(Change::Settle { more, less, part, receipt })?;
        self.returnable = self.returnable.saturating_sub(part);
        self.cost = actual;
        Ok(())
    }

    /// Gives the permits back: the request was not made after all.
    ///
    /// As long as nobody else has been granted since, this is exact: as if they had never been
    /// taken. Afterwards others have waited for them already; then what time has not yet given back
    /// anyway is returned, and nothing across a pause, so that a refund never lets anybody exceed the
    /// limit. After a change of the rate a bucket may return less. Windows and logs give back all that
    /// still counts.
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
        let (part, receipt) = (self.returnable, self.charge.receipt);
        let refund = self.source.change(Change::Refund { part, receipt });
        debug_assert!(refund.is_ok(), "only what is missing can be too much");
    }
}

impl<P: Policy> Drop for Grant<'_, P> {
    // As `Line::decide`: else a grant that is dropped at once would be written to memory for this.
    #[inline(always)]
    fn drop(&mut self) {
        if P::HELD && !self.cost.is_zero() {
            self.source.release(self.cost);
        }
    }
}

impl<P: Policy> fmt::Debug for Grant<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("waited", &self.waited()).finish()
    }
}
