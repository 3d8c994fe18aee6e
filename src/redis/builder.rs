//! Building a limiter over Redis.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::context::{Context, Options, Unavailable};
use super::limiter::RedisRateLimiter;
use super::script::Scripted;
use super::shared::Keys;
use crate::clock::Clock;
#[cfg(doc)]
use crate::observe::Event;
use crate::rate_limiter::builder::{Built, RateLimiterBuilder};
use crate::units::Nanos;
use crate::wait_queue::Bounds;

/// What only a limiter over Redis has.
#[allow(missing_debug_implementations)] // the builder has it
pub struct OverRedis<P, C> {
    policy: P,
    connection: C,
    key: String,
    options: Options<P>,
}

impl<P: Scripted, C: Connection> Built for RedisRateLimiter<P, C> {
    type Own = OverRedis<P, C>;
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// Returns a builder with options. The default is stated at each method.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tollgate::redis::{Reconnecting, RedisRateLimiter, Unavailable};
    /// use tollgate::{Rate, SmoothBursty};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = SmoothBursty::new(Rate::per_second(80.0));
    /// let connection = Reconnecting::open("redis://127.0.0.1/")?;
    /// let limiter = RedisRateLimiter::builder(policy, connection, "quota:search")
    ///     .unavailable(Unavailable::Local(SmoothBursty::new(Rate::per_second(10.0))))
    ///     .deadline(Duration::from_millis(100))
    ///     .on_event(|event| eprintln!("{event:?}"))
    ///     .build();
    /// # Ok(()) }
    /// ```
    pub fn builder(
        policy: P,
        connection: C,
        key: impl Into<String>,
    ) -> RateLimiterBuilder<RedisRateLimiter<P, C>> {
        let options = Options {
            horizon: Duration::from_millis(250),
            deadline: Duration::from_millis(500),
            lease: Duration::from_secs(10),
            refresh: Duration::from_secs(1),
            absent_is_new: true,
            version: 0,
            keep: Duration::from_secs(30 * 86_400),
            unavailable: Unavailable::Fail,
        };
        let own = OverRedis { policy, connection, key: key.into(), options };
        RateLimiterBuilder::new(own, Bounds { waiters: 100_000, ..Bounds::NONE })
    }
}

impl<P: Scripted, C: Connection> RateLimiterBuilder<RedisRateLimiter<P, C>> {
    fn with(mut self, choose: impl FnOnce(&mut Options<P>)) -> Self {
        choose(&mut self.own.options);
        self
    }

    /// What callers get while Redis is away; by default an error.
    pub fn unavailable(self, unavailable: Unavailable<P>) -> Self {
        self.with(|options| options.unavailable = unavailable)
    }

    /// The deadline of a request, and of callers that wait for Redis to come back; by default 500 ms.
    ///
    /// Choose a deadline shorter than the timeouts of your calls. If the timeout of a call
    /// ([`try_acquire_timeout`](RedisRateLimiter::try_acquire_timeout)) ends before a first request has failed, it is not
    /// known yet that Redis is away: the call gets [`Error::Denied`](crate::Error::Denied) without a `retry_after`, and not
    /// what [`unavailable`](Self::unavailable) says.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|options| options.deadline = deadline.min(Nanos::HORIZON))
    }

    /// How far ahead permits are booked; by default 250 ms. Less than several round trips wastes permits during
    /// requests. A pause or another rate takes up to this time to take effect.
    pub fn horizon(self, horizon: Duration) -> Self {
        self.with(|options| options.horizon = horizon)
    }

    /// Whether an absent key begins as a new limiter, which for [`SmoothBursty`](crate::SmoothBursty) has no permits;
    /// by default it does: a Redis that has lost its data causes no burst. With `false` an absent key is a long idle
    /// limiter, with all permits stored, and keys need not be [kept](Self::keep).
    pub fn absent_is_new(self, is_new: bool) -> Self {
        self.with(|options| options.absent_is_new = is_new)
    }

    /// The version of this code's policy; by default 0. The higher of two versions is in force at once for all
    /// processes: processes with the lower one adopt it ([`Event::PolicyAdopted`]). Without versions each process
    /// follows its own policy: see the [guide](crate::guide::redis#which-policy-is-in-force).
    ///
    /// A version also replaces a policy that was set by
    /// [`set_policy`](RedisRateLimiter::set_policy) under a lower one.
    pub fn version(self, version: u32) -> Self {
        self.with(|options| options.version = version)
    }

    /// The least time a key lives after its last write, if a new key would differ from it; by default 30 days. It
    /// differs if the limiter starts without permits and has stored some, or if its policy was set or has a
    /// version. Every other key lives until its limiter is idle.
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|options| options.keep = keep)
    }

    /// How long permits in flight count after their process last renewed them, each third of this time: so after it
    /// dies, most of this time. By default 10 s, at least 100 ms.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|options| options.lease = lease.max(Duration::from_millis(100)))
    }

    /// How long this process relies on the last reply about a wait; by default a second. Within that time it
    /// hears what other processes change: a higher rate, permits given back, a key deleted by an operator.
    ///
    /// After a random part of it, from half on, the next call and the first waiter ask Redis again even if the
    /// last refusal named a longer wait. So a key whose callers are refused or wait for long costs 1.3 requests in
    /// that time on average. With many thousands of such keys choose a longer time.
    pub fn refresh(self, refresh: Duration) -> Self {
        self.with(|options| options.refresh = refresh)
    }

    /// Builds the limiter. Nothing is sent yet.
    #[must_use]
    pub fn build(self) -> RedisRateLimiter<P, C> {
        let Self { own: OverRedis { policy, connection, key, options }, clock, reports, bounds } =
            self;
        let clock = clock.unwrap_or_else(Clock::system);
        let context = Arc::new(Context::new(options, policy, (clock, reports, bounds)));
        RedisRateLimiter::of(Keys::new(connection, context), key.into())
    }
}
