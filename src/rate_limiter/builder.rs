//! The builder of a limiter, with or without keys.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;
use crate::clock::Clock;
use crate::line::Line;
use crate::observe::{Event, Observer, Reports};
use crate::policy::Policy;
use crate::wait_queue::Bounds;

/// Makes an `L`: a [`RateLimiter`], a [`KeyedRateLimiter`](crate::KeyedRateLimiter) or a `RedisRateLimiter`, by their `builder`.
///
/// Each method states its default. A limiter that was built keeps its settings, and clones share them. Bounds of the queue are
/// for each key.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(5.0)))
///     .name("search")
///     .clock(ManualClock::new())
///     .max_waiters(1_000)
///     .build();
/// assert_eq!(limiter.name(), Some("search"));
/// ```
#[must_use = "call `build` to get the limiter"]
pub struct RateLimiterBuilder<L: Built> {
    /// What only an `L` has.
    pub(crate) own: L::Own,
    pub(crate) clock: Option<Clock>,
    pub(crate) reports: Reports,
    pub(crate) bounds: Bounds,
}

/// A limiter that has a builder.
pub trait Built {
    /// Its policy, and options that other limiters lack.
    type Own;
}

impl<P: Policy> Built for RateLimiter<P> {
    type Own = P;
}

impl<L: Built> RateLimiterBuilder<L> {
    pub(crate) fn new(own: L::Own, bounds: Bounds) -> Self {
        Self { own, clock: None, reports: Reports::default(), bounds }
    }

    /// The clock that decides and wakes waiters. Default: [`Clock::system`]. Over Redis it only wakes them, as Redis decides by
    /// its own.
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// A name for logs and metrics; shown by `Debug`. Default: none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.reports.name = Some(name.into());
        self
    }

    /// A listener for the [events](Event) of the limiter, or of all keys. It runs in the call that makes the event, and
    /// without a lock: it may use the limiter, but should not block. Default: none.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.reports.listen(listener);
        self
    }

    /// The wait from which a grant makes an [`Event::Waited`]. Default: one second.
    pub fn slow_wait(mut self, wait: Duration) -> Self {
        self.reports.slow_wait = wait;
        self
    }

    /// The maximum number of waiters. When the queue holds that many, a caller that would have to
    /// wait gets [`Error::QueueFull`](crate::Error::QueueFull) at once. Default: no limit; over Redis 100,000 callers of a key in this
    /// process, so that a slow Redis does not exhaust the memory of its clients.
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters, ..self.bounds }, ..self }
    }

    /// The maximum number of permits that all waiters together may ask for. A request for more than
    /// this is granted only if it need not wait, else it gets
    /// [`Error::QueueFull`](crate::Error::QueueFull). Default: no limit.
    pub fn max_queued_permits(self, permits: u64) -> Self {
        Self { bounds: Bounds { permits, ..self.bounds }, ..self }
    }
}

impl<P: Policy> RateLimiter<P> {
    /// A builder for more than the policy: the clock, a name, bounds of the queue.
    pub fn builder(policy: P) -> RateLimiterBuilder<Self> {
        RateLimiterBuilder::new(policy, Bounds::NONE)
    }
}

#[cfg(feature = "feedback")]
impl<P: Policy> RateLimiter<P> {
    pub(crate) fn reporting(policy: P, clock: &Clock, reports: Reports) -> Self {
        let builder = Self::builder(policy).clock(clock.clone());
        RateLimiterBuilder { reports, ..builder }.build()
    }
}

impl<P: Policy> RateLimiterBuilder<RateLimiter<P>> {
    /// The maximum number of waiters of each [tenant](RateLimiter::acquire_for), so that none can fill the queue.
    /// A caller of a tenant with that many gets [`Error::QueueFull`](crate::Error::QueueFull) at once. Default: no
    /// limit.
    ///
    /// Callers without a tenant are not bounded by this.
    pub fn max_waiters_per_tenant(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters_per_tenant: waiters, ..self.bounds }, ..self }
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<P> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        let observer = Observer::new(self.reports);
        RateLimiter { line: Line::new(self.own, None, (clock, observer), self.bounds) }
    }
}

impl<L: Built> fmt::Debug for RateLimiterBuilder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiterBuilder")
            .field("name", &self.reports.name)
            .finish_non_exhaustive()
    }
}
