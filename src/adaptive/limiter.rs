//! The limiter: its rate and its retries.

use std::fmt;
use std::sync::Arc;

use super::control::Control;
use super::retry::RetryBudget;
use crate::policy::Rated;
use crate::rate_limiter::RateLimiter;
use crate::sync::Mutex;
use crate::units::Rate;

/// A [`RateLimiter`] that finds its rate from the server's answers, for quotas that are unknown or change.
///
/// Acquire a [`Call`](super::Call), send the request, and report the outcome. Successes raise the rate while
/// callers wait for it; the rate of an idle or slow program does not grow. A throttled call lowers it, once for
/// all calls that were sent before. Errors that say nothing about the rate need no report. The rate stays between
/// [`floor`](super::AdaptiveBuilder::floor) and [`ceiling`](super::AdaptiveBuilder::ceiling). Until the first
/// throttled call it doubles each second, starting from the limiter's own rate.
///
/// **A retry is a call**: it goes through [`acquire`](Self::acquire) like the first attempt, and only if
/// [`may_retry`](Self::may_retry) says so, which keeps retries to a share of all calls. An outage is then not
/// multiplied.
///
/// A [`Limiter`](crate::Limiter), and a handle: clones share one limiter, one rate and one budget. Callers of the
/// limiter itself count only if [`call`](Self::call) turns their grants into calls. It has no `set_rate` and no
/// `set_policy`, because it sets the rate itself. Burst and policy are the limiter's: choose a small burst,
/// because a throttling server sees it.
///
/// It is for a quota that the server enforces within seconds. When a quota of a minute or an hour is used up, all
/// calls are throttled until the window ends, and the rate falls to the floor. If the server sends a
/// `Retry-After`, pause the limiter as well: `adaptive.limiter().pause_for(..)`.
///
/// One `Adaptive` is for one quota: keep one for each key, such as a host. There is none over Redis: each process
/// would change the shared rate by what it sees alone, so the rate of `n` processes would grow and fall `n` times
/// as fast. In a fleet, give each process an `Adaptive`: the server throttles them all, and each finds its share.
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
    pub(super) limiter: RateLimiter<P>,
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) control: Mutex<Control>,
    pub(super) budget: RetryBudget,
}

impl<P: Rated> Adaptive<P> {
    /// Whether a failed call may be retried: at most a [share](super::AdaptiveBuilder::retries) of all calls may.
    /// If so, it counts as a retry: [`acquire`](Self::acquire) its permits and send it.
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
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.limiter.rate()
    }

    /// The limiter, for its other methods. A rate that is set there lasts until the next report.
    #[must_use]
    pub fn limiter(&self) -> &RateLimiter<P> {
        &self.limiter
    }

    /// Changes the rate, and sets the limiter's if it has changed by enough. Under the lock, so that the
    /// limiter has the latest rate.
    pub(super) fn report(&self, change: impl FnOnce(&mut Control)) {
        let mut control = self.shared.control.lock();
        change(&mut control);
        // In the order of the reports, so under the lock; waiters and the listener are called after it.
        let after_unlock = control.take_change().map(|rate| self.limiter.set_rate_quietly(rate));
        drop(control);
        if let Some(after_unlock) = after_unlock {
            after_unlock();
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
