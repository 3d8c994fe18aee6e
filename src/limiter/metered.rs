//! A grant that is settled when it is dropped.

use std::fmt;

use super::grant::Grant;
use super::shared::in_drop;
use crate::error::Error;
use crate::policy::{Cost, Policy};

/// A grant that is settled when it is dropped, at what the call has used so far.
///
/// For calls whose cost is known only while they run, such as the tokens of an answer that is streamed. A
/// future may be cancelled at each `await`: then no line behind it runs, and an estimate that was too high
/// stays charged, or one that was too low is never made up for. The drop always runs. It settles at what was
/// reported with [`add`](Self::add) or [`set`](Self::set), otherwise at the estimate, or at another default
/// ([`or`](Self::or)).
///
/// Of a tuple of costs, each number is reported by itself: a number for which nothing was reported keeps its
/// default. [`Grant::metered`], `AnyGrant::metered` and `RedisGrant::metered` make one. Over Redis the drop
/// sends the settlement and does not wait for it.
///
/// ```
/// use tollgate::{InFlight, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
/// let limiter = RateLimiter::with_clock((tokens, InFlight::new(8)), ManualClock::new());
/// let mut call = limiter.try_acquire((2_000, 1))?.metered();
/// call.add((120, 0)); // a chunk of the answer
/// call.add((80, 0));
/// drop(call); // cancelled, or at its end
/// assert_eq!(limiter.available(), (89_800, 8));
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct Metered<G: SettleOnDrop> {
    /// `None` once it was taken out.
    grant: Option<G>,
    /// What it is settled at.
    actual: G::Cost,
    /// One for each number of the cost that was reported.
    reported: G::Cost,
}

impl<G: SettleOnDrop> Metered<G> {
    pub(crate) fn new(grant: G) -> Self {
        let actual = grant.granted();
        Self { grant: Some(grant), actual, reported: G::Cost::default() }
    }

    /// Sets the cost of a call for which nothing is reported, in place of the estimate. Zero if a call that
    /// is cancelled before its first answer costs nothing.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// drop(limiter.try_acquire(2_000)?.metered());
    /// assert_eq!(limiter.available(), 88_000);
    /// drop(limiter.try_acquire(2_000)?.metered().or(0));
    /// assert_eq!(limiter.available(), 88_000);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn or(mut self, default: G::Cost) -> Self {
        let told = self.actual.each(self.reported, |actual, is| if is > 0 { actual } else { 0 });
        let untold = default.each(self.reported, |default, is| if is > 0 { 0 } else { default });
        self.actual = told.each(untold, u32::saturating_add);
        self
    }

    /// Reports that `more` has been used; the first report of a number replaces its default.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let mut call = limiter.try_acquire(100)?.metered();
    /// for chunk in [70, 50, 30] {
    ///     call.add(chunk);
    /// }
    /// assert_eq!(call.cost(), 150);
    /// drop(call);
    /// assert_eq!(limiter.available(), 89_850);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn add(&mut self, more: G::Cost) {
        let is_first = more.each(self.reported, |more, is| u32::from(more > 0 && is == 0));
        let so_far = self.actual.each(is_first, |actual, is| if is > 0 { 0 } else { actual });
        self.actual = so_far.each(more, u32::saturating_add);
        self.reported = self.reported.each(is_first, |is, first| is | first);
    }

    /// Reports what has been used in all, as an answer states it at its end. All numbers count as reported.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let mut call = limiter.try_acquire(2_000)?.metered();
    /// call.set(1_100);
    /// drop(call);
    /// assert_eq!(limiter.available(), 88_900);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set(&mut self, actual: G::Cost) {
        self.actual = actual;
        self.reported = actual.each(actual, |_, _| 1);
    }

    /// The cost at which the drop would settle now.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(1.0), 10);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// assert_eq!(limiter.try_acquire(4)?.metered().cost(), 4);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn cost(&self) -> G::Cost {
        self.actual
    }

    /// The grant, for its [`waited`](Grant::waited) or [`quota`](Grant::quota).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(1.0), 10);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// assert_eq!(limiter.try_acquire(4)?.metered().grant().waited().as_secs(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn grant(&self) -> &G {
        self.grant.as_ref().unwrap_or_else(|| unreachable!("it is taken out with the rest"))
    }

    /// The grant, which is no longer settled on drop: for a program that settles it itself and wants to know of
    /// an error.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(1.0), 10);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let mut call = limiter.try_acquire(4)?.metered();
    /// call.add(7);
    /// let actual = call.cost();
    /// call.into_grant().settle(actual)?;
    /// assert_eq!(limiter.available(), 3);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn into_grant(mut self) -> G {
        self.grant.take().unwrap_or_else(|| unreachable!("it is taken out only here"))
    }
}

impl<G: SettleOnDrop> Drop for Metered<G> {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.grant
            && grant.granted() != self.actual
        {
            grant.settle_on_drop(self.actual);
        }
    }
}

impl<G: SettleOnDrop> fmt::Debug for Metered<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").field("cost", &self.actual).finish_non_exhaustive()
    }
}

/// A grant that a [`Metered`] can settle: [`Grant`], `AnyGrant` and `RedisGrant`. The trait is sealed.
pub trait SettleOnDrop: sealed::Sealed {
    /// The cost of the grant.
    type Cost: Cost;

    #[doc(hidden)]
    fn granted(&self) -> Self::Cost;

    /// Settles without waiting for an outcome.
    #[doc(hidden)]
    fn settle_on_drop(&mut self, actual: Self::Cost);
}

pub(crate) mod sealed {
    /// Keeps [`SettleOnDrop`](super::SettleOnDrop) to this crate.
    pub trait Sealed {}
}

impl<P: Policy> sealed::Sealed for Grant<'_, P> {}

impl<P: Policy> SettleOnDrop for Grant<'_, P> {
    type Cost = P::Cost;

    fn granted(&self) -> P::Cost {
        self.cost()
    }

    fn settle_on_drop(&mut self, actual: P::Cost) {
        in_drop(|| {
            let settled: Result<(), Error> = self.settle(actual);
            // A shortfall that takes 146 years to pay off.
            drop(settled);
        });
    }
}

impl<'a, P: Policy> Grant<'a, P> {
    /// The grant, settled when it is dropped: at what the call reports until then, or else at its estimate.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let mut call = limiter.acquire(2_000).await?.metered();
    /// call.add(500);
    /// drop(call);
    /// assert_eq!(limiter.available(), 89_500);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Metered::new(self)
    }
}
