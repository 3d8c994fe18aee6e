//! The options of an [`Adaptive`].

use std::fmt;
use std::sync::Arc;

use super::control::{Algorithm, Control, Limits};
use super::limiter::{Adaptive, Shared};
use super::retry::{self, RetryBudget};
use crate::limiter::RateLimiter;
use crate::policy::Rated;
use crate::sync::Mutex;
use crate::units::Rate;

impl<P: Rated> Adaptive<P> {
    /// Adapts the rate of `limiter` with [`Algorithm::Aimd`], from 0.5 permits a second on.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// assert_eq!(adaptive.rate(), Rate::per_second(100.0));
    /// ```
    #[must_use]
    pub fn new(limiter: RateLimiter<P>) -> Self {
        Self::builder(limiter).build()
    }

    /// Starts to set more options.
    ///
    /// ```
    /// # use tollgate::adaptive::{Adaptive, Algorithm};
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let builder = Adaptive::builder(limiter).algorithm(Algorithm::Cubic);
    /// let adaptive = builder.ceiling(Rate::per_second(80.0)).retries(0.2).build();
    /// assert_eq!(adaptive.rate(), Rate::per_second(80.0));
    /// ```
    pub fn builder(limiter: RateLimiter<P>) -> AdaptiveBuilder<P> {
        AdaptiveBuilder { limiter, limits: Limits::default(), retries: 0.1 }
    }
}

/// The options of an [`Adaptive`]; see [`Adaptive::builder`].
///
/// ```
/// use tollgate::adaptive::{Adaptive, AdaptiveBuilder};
/// use tollgate::{Rate, RateLimiter, SmoothBursty};
///
/// let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(5.0)));
/// let builder: AdaptiveBuilder<SmoothBursty> = Adaptive::builder(limiter);
/// assert_eq!(builder.build().rate(), Rate::per_second(5.0));
/// ```
#[must_use]
pub struct AdaptiveBuilder<P: Rated> {
    limiter: RateLimiter<P>,
    limits: Limits,
    retries: f64,
}

impl<P: Rated> AdaptiveBuilder<P> {
    /// How the rate grows and falls: [`Algorithm::Aimd`] if it is not set.
    ///
    /// ```
    /// # use tollgate::adaptive::{Adaptive, Algorithm};
    /// # use tollgate::{Rate, RateLimiter, SmoothBursty};
    /// # let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100.0)));
    /// let adaptive = Adaptive::builder(limiter).algorithm(Algorithm::Cubic).build();
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(85.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.limits.algorithm = algorithm;
        self
    }

    /// The least rate: 0.5 permits a second if it is not set.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{Rate, RateLimiter, SmoothBursty};
    /// # let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100.0)));
    /// let adaptive = Adaptive::builder(limiter).floor(Rate::per_second(95.0)).build();
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(95.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn floor(mut self, rate: Rate) -> Self {
        self.limits.floor = rate.as_per_second();
        self
    }

    /// The greatest rate: 1e9 permits a second if it is not set. Below the floor, it is the floor too.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{Rate, RateLimiter, SmoothBursty};
    /// # let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100.0)));
    /// let adaptive = Adaptive::builder(limiter).ceiling(Rate::per_second(60.0)).build();
    /// assert_eq!(adaptive.rate(), Rate::per_second(60.0));
    /// ```
    pub fn ceiling(mut self, rate: Rate) -> Self {
        self.limits.ceiling = rate.as_per_second();
        self
    }

    /// The share of all calls that may be retries: 0.1 if it is not set. Ten at first and one every ten seconds are
    /// allowed besides.
    ///
    /// # Panics
    ///
    /// If `share` is not between 0 and 1.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 100);
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let adaptive = Adaptive::builder(limiter).retries(0.5).build();
    /// while adaptive.may_retry() {}
    /// for _ in 0..6 {
    ///     adaptive.call(adaptive.limiter().try_acquire(1)?).on_success();
    /// }
    /// assert_eq!((0..6).filter(|_| adaptive.may_retry()).count(), 3);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[track_caller]
    pub fn retries(mut self, share: f64) -> Self {
        retry::check(share);
        self.retries = share;
        self
    }

    /// Sets the limiter's rate, if it is not within the bounds.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{Rate, RateLimiter, SmoothBursty};
    /// # let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100.0)));
    /// assert_eq!(Adaptive::builder(limiter).build().rate(), Rate::per_second(100.0));
    /// ```
    #[must_use]
    pub fn build(self) -> Adaptive<P> {
        let Self { limiter, limits, retries } = self;
        let mut control = Control::new(limits, limiter.rate().as_per_second());
        if let Some(rate) = control.take_change() {
            limiter.set_rate(rate);
        }
        let budget = RetryBudget::with_clock(retries, limiter.clock().clone());
        let control = Mutex::new(control);
        Adaptive { limiter, shared: Arc::new(Shared { control, budget }) }
    }
}

impl<P: Rated> fmt::Debug for AdaptiveBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AdaptiveBuilder");
        shown.field("limits", &self.limits).field("retries", &self.retries).finish_non_exhaustive()
    }
}
