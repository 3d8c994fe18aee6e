//! The builder of a limiter.

use std::fmt;
use std::sync::Arc;

use super::{RateLimiter, Shared};
use crate::clock::Clock;
use crate::policy::Policy;
use crate::wait_queue::Bounds;

/// Makes a [`RateLimiter`]; see [`RateLimiter::builder`].
///
/// Each method states its default. A limiter that was built keeps its settings, and clones share them.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(5.0)))
///     .name("search")
///     .clock(ManualClock::new())
///     .max_waiters(1_000)
///     .build();
/// assert_eq!((limiter.name(), limiter.max_waiters()), (Some("search"), 1_000));
/// ```
#[must_use = "call `build` to get the limiter"]
pub struct RateLimiterBuilder<P> {
    policy: P,
    clock: Option<Clock>,
    name: Option<Arc<str>>,
    bounds: Bounds,
}

impl<P: Policy> RateLimiter<P> {
    /// A builder for more than the policy: the clock, a name, bounds of the queue.
    ///
    /// ```
    /// use tollgate::{Rate, RateLimiter, SmoothBursty};
    ///
    /// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(50.0)))
    ///     .name("search")
    ///     .max_queued_permits(500)
    ///     .build();
    /// assert_eq!(limiter.max_queued_permits(), 500);
    /// ```
    pub fn builder(policy: P) -> RateLimiterBuilder<P> {
        RateLimiterBuilder::new(policy)
    }
}

impl<P: Policy> RateLimiterBuilder<P> {
    fn new(policy: P) -> Self {
        Self { policy, clock: None, name: None, bounds: Bounds::NONE }
    }

    /// The clock that decides and wakes waiters. Default: [`Clock::system`].
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(5.0)))
    ///     .clock(&clock)
    ///     .build();
    /// limiter.blocking_acquire(1)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// A name for logs and metrics; shown by `Debug`. Default: none.
    ///
    /// ```
    /// # use tollgate::{InFlight, RateLimiter};
    /// let limiter = RateLimiter::builder(InFlight::new(10)).name("uploads").build();
    /// assert_eq!(limiter.name(), Some("uploads"));
    /// ```
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The maximum number of waiters. When the queue holds that many, a caller that would have to
    /// wait gets [`Error::QueueFull`](crate::Error::QueueFull) at once. Default: no limit.
    ///
    /// ```
    /// # use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(5.0)))
    ///     .clock(ManualClock::new())
    ///     .max_waiters(1)
    ///     .build();
    /// let _granted = limiter.reserve(1)?;
    /// let _waiting = limiter.reserve(1)?;
    /// let error = limiter.reserve(1).unwrap_err();
    /// assert!(matches!(error, Error::QueueFull { .. }));
    /// assert_eq!(error.retry_after().map(|wait| wait.as_millis()), Some(200));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters, ..self.bounds }, ..self }
    }

    /// The maximum number of permits that all waiters together may ask for. A request for more than
    /// this is granted only if it need not wait, else it gets
    /// [`Error::QueueFull`](crate::Error::QueueFull). Default: no limit.
    ///
    /// ```
    /// # use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(5.0)))
    ///     .clock(ManualClock::new())
    ///     .max_queued_permits(10)
    ///     .build();
    /// let _granted = limiter.reserve(1)?;
    /// let _waiting = limiter.reserve(8)?;
    /// assert!(matches!(limiter.reserve(3), Err(Error::QueueFull { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_queued_permits(self, permits: u64) -> Self {
        Self { bounds: Bounds { permits, ..self.bounds }, ..self }
    }

    /// The limiter.
    ///
    /// ```
    /// # use tollgate::{InFlight, RateLimiter};
    /// let limiter = RateLimiter::builder(InFlight::new(10)).build();
    /// assert_eq!(limiter.available(), 10);
    /// ```
    #[must_use]
    pub fn build(self) -> RateLimiter<P> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        RateLimiter { shared: Shared::new(self.policy, clock, self.name, self.bounds) }
    }
}

impl<P: fmt::Debug> fmt::Debug for RateLimiterBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiterBuilder")
            .field("policy", &self.policy)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
