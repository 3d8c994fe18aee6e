//! What can be chosen of a shared limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::events::Event;
use super::limiter::RedisRateLimiter;
use super::options::{Options, Unavailable};
use super::script::Scripted;
use super::shared::{Keys, SharedLimiter};
use crate::clock::Clock;

/// Makes a [`RedisRateLimiter`]: what is not chosen is as said here.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::redis::{Event, Reconnecting, RedisRateLimiter, Unavailable};
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
#[must_use = "nothing is made before `build`"]
pub struct Builder<P: Scripted, C> {
    policy: P,
    connection: C,
    key: String,
    options: Options<P>,
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// The same with choices.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tollgate::redis::{Reconnecting, RedisRateLimiter, Unavailable};
    /// use tollgate::{Rate, SmoothBursty};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = SmoothBursty::new(Rate::per_second(50.0));
    /// let connection = Reconnecting::open("redis://127.0.0.1/")?;
    /// let limiter = RedisRateLimiter::builder(policy, connection, "quota:search")
    ///     .deadline(Duration::from_millis(100))
    ///     .unavailable(Unavailable::Local(SmoothBursty::new(Rate::per_second(5.0))))
    ///     .build();
    /// # Ok(()) }
    /// ```
    pub fn builder(policy: P, connection: C, key: impl Into<String>) -> Builder<P, C> {
        Builder::new(policy, connection, key.into())
    }
}

impl<P: Scripted, C: Connection> Builder<P, C> {
    pub(super) fn new(policy: P, connection: C, key: String) -> Self {
        let options = Options {
            horizon: Duration::from_millis(250),
            deadline: Duration::from_millis(500),
            lease: Duration::from_secs(10),
            absent_is_idle: false,
            unavailable: Unavailable::Fail,
            max_waiters: usize::MAX,
            max_queued_permits: u64::MAX,
            listener: None,
            clock: Clock::system(),
        };
        Self { policy, connection, key, options }
    }

    fn with(mut self, choose: impl FnOnce(&mut Options<P>)) -> Self {
        choose(&mut self.options);
        self
    }

    /// What callers get while Redis is away: by default an error.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting, Unavailable};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.unavailable(Unavailable::Allow).build();
    /// # }
    /// ```
    pub fn unavailable(self, unavailable: Unavailable<P>) -> Self {
        self.with(|options| options.unavailable = unavailable)
    }

    /// How long a request to Redis may take, and how long callers wait for Redis to come back: by
    /// default 500 ms. Nobody waits longer than that without knowing that Redis is there.
    ///
    /// Who has less time than that hears [`Error::Denied`](crate::Error::Denied), with nothing known, if
    /// that is up before the first request has failed: choose a deadline shorter than timeouts.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.deadline(Duration::from_millis(50)).build();
    /// # }
    /// ```
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|options| options.deadline = deadline)
    }

    /// How far ahead permits are booked: by default 250 ms. It should be several times a round trip, or
    /// permits are wasted while the process asks; so long can a pause or another rate take to hold.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.horizon(Duration::from_millis(100)).build();
    /// # }
    /// ```
    pub fn horizon(self, horizon: Duration) -> Self {
        self.with(|options| options.horizon = horizon)
    }

    /// A key that is not there is that of a limiter that was idle for long, with all permits stored. By
    /// default it is that of a new one: for [`SmoothBursty`](crate::SmoothBursty) with none, so that a
    /// Redis that has lost everything does not cause a burst.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::SmoothBursty, Reconnecting>) {
    /// let limiter = builder.absent_is_idle().build();
    /// # }
    /// ```
    pub fn absent_is_idle(self) -> Self {
        self.with(|options| options.absent_is_idle = true)
    }

    /// How long a place in flight counts after its process was last heard of: by default 10 s. It is
    /// renewed each third of that. Less than 100 ms counts as that.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::InFlight, Reconnecting>) {
    /// let limiter = builder.lease(Duration::from_secs(60)).build();
    /// # }
    /// ```
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|options| options.lease = lease.max(Duration::from_millis(100)))
    }

    /// Lets at most this many callers of a key wait in this process, those included whose request is under
    /// way: see [`RateLimiter::max_waiters`](crate::RateLimiter::max_waiters).
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.max_waiters(1_000).build();
    /// # }
    /// ```
    pub fn max_waiters(self, waiters: usize) -> Self {
        self.with(|options| options.max_waiters = waiters)
    }

    /// Lets the callers of a key in this process wait for at most this many permits together.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.max_queued_permits(100_000).build();
    /// # }
    /// ```
    pub fn max_queued_permits(self, permits: u64) -> Self {
        self.with(|options| options.max_queued_permits = permits)
    }

    /// Is called with what happens. It must be quick and not wait.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.on_event(|event| eprintln!("{event:?}")).build();
    /// # }
    /// ```
    pub fn on_event(self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.with(|options| options.listener = Some(Arc::new(listener)))
    }

    /// The clock by which this process waits: by default the system's. What Redis decides, it decides by
    /// its own.
    ///
    /// ```no_run
    /// # use tollgate::Clock;
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.clock(Clock::tokio()).build();
    /// # }
    /// ```
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        let clock = clock.into();
        self.with(|options| options.clock = clock)
    }

    /// The limiter. Nothing is sent yet.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Builder, Reconnecting};
    /// # fn example(builder: Builder<tollgate::TokenBucket, Reconnecting>) {
    /// let limiter = builder.build();
    /// # }
    /// ```
    #[must_use]
    pub fn build(self) -> RedisRateLimiter<P, C> {
        let core = SharedLimiter::new(self.policy, self.connection, self.options);
        RedisRateLimiter::of(Keys::new(core), self.key.into())
    }
}

impl<P: Scripted, C> fmt::Debug for Builder<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("key", &self.key).finish_non_exhaustive()
    }
}
