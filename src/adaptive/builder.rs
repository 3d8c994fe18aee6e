//! The options of an [`Adaptive`].

use std::fmt;
use std::sync::Arc;

use super::control::{Algorithm, Control, Limits};
use super::limiter::{Adaptive, Shared};
use super::retry::{self, RetryBudget};
use crate::policy::Rated;
use crate::rate_limiter::RateLimiter;
use crate::sync::Mutex;
use crate::units::Rate;

impl<P: Rated> Adaptive<P> {
    /// Adapts the rate of `limiter` with [`Algorithm::Aimd`], from 0.5 permits a second on.
    #[must_use]
    pub fn new(limiter: RateLimiter<P>) -> Self {
        Self::builder(limiter).build()
    }

    /// Starts to set more options.
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
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.limits.algorithm = algorithm;
        self
    }

    /// The least rate: 0.5 permits a second if it is not set.
    pub fn floor(mut self, rate: Rate) -> Self {
        self.limits.floor = rate.as_per_second();
        self
    }

    /// The greatest rate: 1e9 permits a second if it is not set. A ceiling below the floor counts as the floor.
    pub fn ceiling(mut self, rate: Rate) -> Self {
        self.limits.ceiling = rate.as_per_second();
        self
    }

    /// The share of all calls that may be retries: 0.1 if it is not set. Ten at first and one every ten seconds
    /// are allowed besides.
    ///
    /// # Panics
    ///
    /// If `share` is not between 0 and 1.
    #[track_caller]
    pub fn retries(mut self, share: f64) -> Self {
        retry::check(share);
        self.retries = share;
        self
    }

    /// Sets the limiter's rate, if it is not within the bounds.
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
