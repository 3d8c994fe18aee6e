//! The verbs of a shared limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::RedisAcquire;
use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::events::Counters;
use super::health::State;
use super::line::change::{KeyChange, confirmed};
use super::line::waiter::Turn;
use super::reservation::RedisReservation;
use super::script::{Scripted, wire};
use super::shared::{Keys, SharedKey};
use crate::error::Error;
use crate::policy::{Quota, Rated};
use crate::stats::Stats;
use crate::units::Rate;

/// A [`RateLimiter`](crate::RateLimiter) whose quota is shared by all who use the same key of a Redis
/// server: see the [module](super).
///
/// It is a handle: clones share one line, and [`key`](Self::key) is the same for another key.
///
/// ```no_run
/// use tollgate::redis::{Blocking, RedisRateLimiter};
/// use tollgate::{Rate, SmoothBursty};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RedisRateLimiter::new(policy, Blocking::open("redis://127.0.0.1/")?, "quota:search");
/// limiter.blocking_acquire(1)?;
/// # Ok(()) }
/// ```
pub struct RedisRateLimiter<P: Scripted, C: Connection = Reconnecting> {
    keys: Arc<Keys<P, C>>,
    shared: Arc<SharedKey<P, C>>,
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// A limiter that shares `policy` with all who use `key`. Nothing is sent yet.
    ///
    /// Everybody must use the same policy with a key, or hears so. With [`Builder`](super::Builder) more can be chosen.
    /// An asynchronous connection needs the tokio runtime in which this is called or, if it is called
    /// outside, in which the limiter is first used.
    ///
    /// ```no_run
    /// use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// use tollgate::{Rate, SmoothBursty};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = SmoothBursty::new(Rate::per_second(50.0));
    /// let connection = Reconnecting::open("redis://127.0.0.1/")?;
    /// let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(policy: P, connection: C, key: impl Into<String>) -> Self {
        Self::builder(policy, connection, key).build()
    }

    pub(super) fn of(keys: Arc<Keys<P, C>>, key: Arc<str>) -> Self {
        Self { shared: keys.of(key), keys }
    }

    /// The same limit for another key, over the same connection: a quota for each user, say. It is cheap,
    /// and need not be kept; but what [`stats`](Self::stats) says is forgotten when no handle of the key
    /// is and nobody waits there.
    ///
    /// A policy that was [set](Self::set_policy) was set for one key. Calls for different keys share no
    /// request: of these at most 512 are under way at a time.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.key("quota:search:user:7").acquire(1).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        Self::of(Arc::clone(&self.keys), key.into().into())
    }

    fn acquire_within(&self, n: P::Cost, max_wait: Option<Duration>) -> RedisAcquire<P, C> {
        RedisAcquire::new(Arc::clone(&self.shared), n, max_wait)
    }

    /// Takes `n` permits and waits for them as long as it takes.
    ///
    /// Callers of one process are served in the order in which they came; those of several processes as
    /// their requests reach the server.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`], [`Error::QueueFull`], and [`Error::Store`] if Redis is away or the key
    /// is somebody else's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line: see [`RedisAcquire`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let grant = limiter.acquire(1).await?;
    /// println!("waited {:?}", grant.waited());
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self, n: P::Cost) -> RedisAcquire<P, C> {
        self.acquire_within(n, None)
    }

    /// Takes `n` permits if they are ready and nobody of this process is in line; waits for the answer
    /// only.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] with the wait that it would have needed; else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// if let Err(error) = limiter.try_acquire(1).await {
    ///     println!("{error}, {:?}", error.retry_after());
    /// }
    /// # }
    /// ```
    pub fn try_acquire(&self, n: P::Cost) -> RedisAcquire<P, C> {
        self.acquire_within(n, Some(Duration::ZERO))
    }

    /// Takes `n` permits if they come within `timeout`; says so as soon as Redis has answered if they
    /// cannot.
    ///
    /// A grant can be late by a round trip: what is due when the time is up is granted when this process
    /// knows that it is due.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] with the wait that it would have needed, those of this process ahead counted;
    /// else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.try_acquire_timeout(1, Duration::from_secs(2)).await?;
    /// # Ok(()) }
    /// ```
    pub fn try_acquire_timeout(&self, n: P::Cost, timeout: Duration) -> RedisAcquire<P, C> {
        self.acquire_within(n, Some(timeout))
    }

    /// Takes a place in line now, to wait for it later or not at all. Waits until Redis has said when its
    /// turn will come.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let place = limiter.reserve(1).await?;
    /// println!("in {:?}", place.delay());
    /// place.wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self, n: P::Cost) -> Result<RedisReservation<P, C>, Error> {
        let mut acquire = self.acquire(n);
        acquire.enter(Turn::Reserving, None);
        std::future::poll_fn(|context| acquire.poll_reserved(context)).await?;
        Ok(RedisReservation::new(acquire))
    }

    /// Changes the policy of the key for the whole fleet: from the next request of each process on, and
    /// for all but what is booked within the horizon. Idle time up to now counts at the old rate, what is
    /// owed keeps its old price.
    ///
    /// The others take it over and keep it; if Redis loses the key, the first of them restores it. Of
    /// two set at the same time the one that reaches the server later holds.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; then it may hold for the fleet all the same, and will once this process is heard
    /// again.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on it is done, whether it is awaited to the end or not.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # use tollgate::{Rate, TokenBucket};
    /// # async fn example(limiter: RedisRateLimiter<TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.set_policy(TokenBucket::new(Rate::per_second(7.0), 70)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_policy(&self, policy: P) -> Result<(), Error> {
        let core = &self.shared.core;
        let answer = self.shared.with_lock(|line, now| {
            let generation = line.header.generation.wrapping_add(1);
            line.header = core.rules.header(&policy, generation);
            line.policy = policy;
            line.unheard = true;
            line.turn_away_the_too_large(now);
            line.request(KeyChange { policy: true, ..KeyChange::of(vec![b'N']) })
        });
        confirmed(answer).await.map(drop)
    }

    /// Grants nothing to anybody in the fleet for `duration` from now, for example because the server
    /// answered with `Retry-After`: see [`RateLimiter::pause_for`](crate::RateLimiter::pause_for). What
    /// is [booked ahead](super::Builder::horizon) is still granted. The share of this process
    /// ([`Unavailable::Local`](super::Unavailable::Local)) is paused as well.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if Redis has not confirmed it; then the rest of the fleet may not know of it.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on it is done, whether it is awaited to the end or not.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.pause_for(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        if duration.is_zero() {
            return Ok(());
        }
        let mut todo = Vec::new();
        wire::put_pause(&mut todo, duration);
        let answer = self.shared.with_lock(|line, _| line.request(KeyChange::of(todo)));
        if let Some(local) = &self.shared.core.local {
            // Too many other keys are no reason not to tell Redis.
            let _ = local.pause_for(&self.shared.key, duration);
        }
        confirmed(answer).await.map(drop)
    }

    /// Waits until Redis has been told of all that was given back here at this key: places in flight,
    /// refunds, the bookings of callers who left. Before a process ends, so that the others need not wait
    /// for the [lease](super::Builder::lease) of places that nobody holds any more.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if Redis has not confirmed it.
    ///
    /// # Cancel safety
    ///
    /// It only waits: all is told in any case, as long as the process lives.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::InFlight, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let grant = limiter.acquire(1).await?;
    /// drop(grant);
    /// limiter.flush().await?;
    /// # Ok(()) }
    /// ```
    pub async fn flush(&self) -> Result<(), Error> {
        // What the answer under way brings that nobody takes comes behind the first.
        for _ in 0..2 {
            let answer = self.shared.with_lock(|line, _| {
                (!line.has_told_all()).then(|| line.request(KeyChange::of(Vec::new())))
            });
            match answer {
                Some(answer) => confirmed(answer).await?,
                None => break,
            };
        }
        Ok(())
    }

    /// How much of the limit is left, for the whole fleet.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// println!("{} left", limiter.quota().await?.remaining);
    /// # Ok(()) }
    /// ```
    pub async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        let answer = self.shared.with_lock(|line, _| line.request(KeyChange::of(vec![b'Q'])));
        let quota = confirmed(answer).await?;
        Ok(quota.unwrap_or_else(|| unreachable!("who asks for a quota is told one")))
    }

    /// The policy that is in force, as far as this process knows.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// println!("{:?}", limiter.policy());
    /// # }
    /// ```
    #[must_use]
    pub fn policy(&self) -> P {
        self.shared.with_lock(|line, _| line.policy.clone())
    }

    /// How many callers of this process wait, those with a booking included.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// println!("{} wait", limiter.queue_len());
    /// # }
    /// ```
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.shared.with_lock(|line, _| line.len())
    }

    /// What this process has done with this key, with Redis and without it.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// println!("{} granted", limiter.stats().granted);
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.with_lock(|line, _| line.stats)
    }

    /// What that has cost, all keys together.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// let counters = limiter.counters();
    /// println!("{} requests, {} answers lost", counters.requests, counters.lost);
    /// # }
    /// ```
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.core.rules.counters.read()
    }

    /// Whether Redis can be reached, as far as this process knows.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter, State};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// let healthy = limiter.state() == State::Up;
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.core.rules.health.state()
    }
}

impl<P: Scripted + Rated, C: Connection> RedisRateLimiter<P, C> {
    /// The rate that is in force, as far as this process knows.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// println!("{}", limiter.rate());
    /// # }
    /// ```
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.policy().rate()
    }

    /// Changes the rate for the whole fleet: see [`set_policy`](Self::set_policy).
    ///
    /// # Errors
    ///
    /// As [`set_policy`](Self::set_policy).
    ///
    /// # Cancel safety
    ///
    /// As [`set_policy`](Self::set_policy).
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # use tollgate::Rate;
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.set_rate(Rate::per_second(7.0)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.set_policy(self.policy().with_rate(rate)).await
    }
}

impl<P: Scripted, C: Connection> Clone for RedisRateLimiter<P, C> {
    fn clone(&self) -> Self {
        Self { keys: Arc::clone(&self.keys), shared: Arc::clone(&self.shared) }
    }
}

impl<P: Scripted + fmt::Debug, C: Connection> fmt::Debug for RedisRateLimiter<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRateLimiter")
            .field("key", &self.shared.key)
            .field("policy", &self.policy())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
