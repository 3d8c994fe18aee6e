//! A call and its outcome.

use std::fmt;

use super::limiter::Adaptive;
use crate::error::Error;
use crate::policy::Rated;
use crate::rate_limiter::Grant;

impl<P: Rated> Adaptive<P> {
    /// Takes `n` permits, as [`RateLimiter::acquire`](crate::RateLimiter::acquire) does.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::acquire`](crate::RateLimiter::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::acquire`](crate::RateLimiter::acquire).
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
    /// adaptive.acquire(1).await?.on_success();
    /// assert_eq!(adaptive.acquire(1).await?.grant().waited().as_millis(), 10);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire(&self, n: P::Cost) -> Result<Call<'_, P>, Error> {
        Ok(self.call(self.limiter.acquire(n).await?))
    }

    /// Makes a call of a grant of the [limiter](Self::limiter): for its other methods, such as
    /// [`try_acquire_timeout`](crate::RateLimiter::try_acquire_timeout), [`ahead_by`](crate::Acquire::ahead_by) or
    /// `blocking_acquire`.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use = "report the outcome of the call"]
    pub fn call<'a>(&self, grant: Grant<'a, P>) -> Call<'a, P> {
        self.shared.budget.on_call();
        let cuts = self.shared.control.lock().cuts();
        Call { grant, adaptive: self.clone(), cuts }
    }
}

/// A call whose outcome an [`Adaptive`] learns from. Drop it without a report after errors that say nothing about
/// the rate, such as a network error.
///
/// ```
/// # use tollgate::adaptive::{Adaptive, Call};
/// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
/// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
/// let calls: [Call<'_, TokenBucket>; 2] = [adaptive.acquire(1).await?, adaptive.acquire(1).await?];
/// // Both were sent before the rate fell.
/// calls.into_iter().for_each(Call::on_throttled);
/// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Call<'a, P: Rated> {
    grant: Grant<'a, P>,
    adaptive: Adaptive<P>,
    /// How many times the rate had fallen when this was granted.
    cuts: u64,
}

impl<'a, P: Rated> Call<'a, P> {
    /// The call succeeded, or failed for a reason that is not the rate. It also drops the grant.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let adaptive = Adaptive::new(limiter);
    /// for _ in 0..150 {
    ///     adaptive.call(adaptive.limiter().blocking_acquire(1)?).on_success();
    /// }
    /// // It has doubled in a second.
    /// assert!(adaptive.rate() > Rate::per_second(190.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_success(self) {
        let (now, waited) = (self.adaptive.limiter.clock().now(), !self.grant.waited().is_zero());
        self.adaptive.report(|control| control.on_success(now, waited));
    }

    /// The server refused the call because there were too many. It also drops the grant.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_throttled(self) {
        self.adaptive.report(|control| control.on_throttled(self.cuts));
    }

    /// Reports an HTTP status: 429 and 503 are throttled calls, other 5xx say nothing, the rest are successes.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 10);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// for (status, rate) in [(200, 100.0), (500, 100.0), (429, 90.0), (404, 90.0), (503, 81.0)] {
    ///     adaptive.call(adaptive.limiter().try_acquire(1)?).on_status(status);
    ///     assert_eq!(adaptive.rate().as_per_second(), rate);
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_status(self, status: u16) {
        match status {
            429 | 503 => self.on_throttled(),
            500.. => {}
            _ => self.on_success(),
        }
    }

    /// The permits of the call.
    #[must_use]
    pub fn grant(&self) -> &Grant<'a, P> {
        &self.grant
    }

    /// The permits of the call, to settle them at their true cost.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 10);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// let mut call = adaptive.call(adaptive.limiter().try_acquire(7)?);
    /// call.grant_mut().settle(5)?;
    /// assert_eq!(adaptive.limiter().available(), 5);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn grant_mut(&mut self) -> &mut Grant<'a, P> {
        &mut self.grant
    }
}

impl<P: Rated> fmt::Debug for Call<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("adaptive", &self.adaptive).finish_non_exhaustive()
    }
}
