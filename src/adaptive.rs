//! A rate that is found: see [`Adaptive`].

pub(crate) mod control;
pub(crate) mod retry;

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::limiter::{Grant, RateLimiter};
use crate::policy::Rated;
use crate::sync::Mutex;
use crate::units::Rate;
pub use control::Algorithm;
use control::{Control, Limits};
pub use retry::RetryBudget;

/// A [`RateLimiter`] that finds the rate of a server whose quota is unknown or changes, from the server's answers.
///
/// Acquire a [`Call`], send the request, and report the outcome. A success makes the rate grow as long as callers
/// have to wait for it, so it does not grow while the program is idle or slow. A throttled call makes it fall, once
/// for all calls that were sent before. Errors that say nothing of the rate need no report. The rate stays between
/// [`floor`](AdaptiveBuilder::floor) and [`ceiling`](AdaptiveBuilder::ceiling); until the first throttled call it
/// doubles each second, from the limiter's own rate on.
///
/// **A retry is a call**: it goes through [`acquire`](Self::acquire) like the first attempt, and only if
/// [`may_retry`](Self::may_retry) says so, which keeps retries to a share of all calls. An outage is then not
/// multiplied.
///
/// A handle: clones share one limiter, one rate and one budget. Callers of the limiter itself count for the rate
/// only if [`call`](Self::call) makes their grants calls. Burst and policy are those of the limiter: choose a small
/// burst, because a server that throttles sees it.
///
/// One `Adaptive` is for one quota: keep one for each key, such as a host. There is none over Redis: each process
/// would change the rate of all by what it sees alone, so that a rate shared by `n` processes grew and fell
/// `n` times as fast. In a fleet give each process an `Adaptive`: with throttling by the server they find their
/// shares.
///
/// ```
/// use tollgate::adaptive::Adaptive;
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(100.0), 1);
/// let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
/// let (first, second) = (adaptive.acquire(1).await?, adaptive.acquire(1).await?);
/// first.on_status(200);
/// second.on_status(429);
/// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A loop with retries:
///
/// ```no_run
/// # use tollgate::adaptive::Adaptive;
/// # async fn send() -> u16 { 200 }
/// # async fn get(adaptive: Adaptive<tollgate::SmoothBursty>) -> Result<u16, tollgate::Error> {
/// loop {
///     let call = adaptive.acquire(1).await?;
///     let status = send().await;
///     call.on_status(status);
///     let is_transient = status == 429 || status >= 500;
///     if !is_transient || !adaptive.may_retry() {
///         return Ok(status);
///     }
/// }
/// # }
/// ```
pub struct Adaptive<P: Rated> {
    limiter: RateLimiter<P>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    control: Mutex<Control>,
    budget: RetryBudget,
}

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

    /// Takes `n` permits, as [`RateLimiter::acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::acquire`].
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
    /// [`try_acquire_timeout`](RateLimiter::try_acquire_timeout), [`ahead_by`](crate::Acquire::ahead_by) or
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

    /// Whether a call that failed may be tried again: at most a [share](AdaptiveBuilder::retries) of all calls may.
    /// If it may, it counts as a retry: [`acquire`](Self::acquire) its permits and send it.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// // Before the first call there are ten.
    /// assert_eq!((0..20).filter(|_| adaptive.may_retry()).count(), 10);
    /// ```
    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.shared.budget.may_retry()
    }

    /// The rate of the limiter now.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// assert_eq!(adaptive.rate().as_per_second(), 100.0);
    /// ```
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.limiter.rate()
    }

    /// The limiter, for its other methods. A rate that is set there lasts until the next report.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// assert_eq!(adaptive.limiter().available(), 1);
    /// ```
    #[must_use]
    pub fn limiter(&self) -> &RateLimiter<P> {
        &self.limiter
    }

    /// Changes the rate, and sets that of the limiter if it has changed by enough. Under the lock, so that the
    /// limiter has the latest rate.
    fn report(&self, change: impl FnOnce(&mut Control)) {
        let mut control = self.shared.control.lock();
        change(&mut control);
        if let Some(rate) = control.take_change() {
            self.limiter.set_rate(rate);
        }
    }
}

/// Another handle on the same limiter, rate and budget.
impl<P: Rated> Clone for Adaptive<P> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<P: Rated> fmt::Debug for Adaptive<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("rate", &self.rate()).finish_non_exhaustive()
    }
}

/// A call whose outcome an [`Adaptive`] learns from. Dropped without a report, it says nothing of the rate: for an
/// error of the network, or one of the server that has nothing to do with the rate.
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
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 10);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// assert_eq!(adaptive.call(adaptive.limiter().try_acquire(7)?).grant().cost(), 7);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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

    /// What part of all calls may be retries, besides ten at first and one each ten seconds: 0.1 if it is not set.
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
