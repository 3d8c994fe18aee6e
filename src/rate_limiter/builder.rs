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

/// Makes a [`RateLimiter`]; see [`RateLimiter::builder`]. It is also the
/// [`KeyedRateLimiterBuilder`](crate::KeyedRateLimiterBuilder), which bounds the queue of each key.
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
/// assert_eq!(limiter.name(), Some("search"));
/// ```
#[must_use = "call `build` to get the limiter"]
pub struct RateLimiterBuilder<R> {
    /// A policy, or the rule of each key.
    pub(crate) rule: R,
    pub(crate) clock: Option<Clock>,
    pub(crate) reports: Reports,
    pub(crate) bounds: Bounds,
}

impl<R> RateLimiterBuilder<R> {
    pub(crate) fn new(rule: R) -> Self {
        Self { rule, clock: None, reports: Reports::default(), bounds: Bounds::NONE }
    }

    /// The clock that decides and wakes waiters. Default: [`Clock::system`].
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
    /// wait gets [`Error::QueueFull`](crate::Error::QueueFull) at once. Default: no limit.
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters, ..self.bounds }, ..self }
    }

    /// The maximum number of permits that all waiters together may ask for. A request for more than
    /// this is granted only if it need not wait, else it gets
    /// [`Error::QueueFull`](crate::Error::QueueFull). Default: no limit.
    pub fn max_queued_permits(self, permits: u64) -> Self {
        Self { bounds: Bounds { permits, ..self.bounds }, ..self }
    }

    /// The maximum number of waiters of each [tenant](RateLimiter::acquire_for), so that none can fill the queue.
    /// A caller of a tenant with that many gets [`Error::QueueFull`](crate::Error::QueueFull) at once. Default: no
    /// limit.
    ///
    /// Callers without a tenant are not bounded by this. A limiter over Redis has no such bound.
    pub fn max_waiters_per_tenant(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters_per_tenant: waiters, ..self.bounds }, ..self }
    }
}

impl<P: Policy> RateLimiter<P> {
    /// A builder for more than the policy: the clock, a name, bounds of the queue.
    pub fn builder(policy: P) -> RateLimiterBuilder<P> {
        RateLimiterBuilder::new(policy)
    }
}

#[cfg(feature = "feedback")]
impl<P: Policy> RateLimiter<P> {
    pub(crate) fn reporting(policy: P, clock: &Clock, reports: Reports) -> Self {
        let builder = Self::builder(policy).clock(clock.clone());
        RateLimiterBuilder { reports, ..builder }.build()
    }
}

impl<P: Policy> RateLimiterBuilder<P> {
    /// The limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<P> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        let observer = Observer::new(self.reports);
        RateLimiter { line: Line::new(self.rule, None, (clock, observer), self.bounds) }
    }
}

impl<R: fmt::Debug> fmt::Debug for RateLimiterBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiterBuilder")
            .field("rule", &self.rule)
            .field("name", &self.reports.name)
            .finish_non_exhaustive()
    }
}
