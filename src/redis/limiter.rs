//! The methods of a shared limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::context::Counters;
use super::health::State;
use super::line::change::{KeyChange, Report};
use super::script::Scripted;
use super::script::wire::PolicyHeader;
use super::shared::{Keys, SharedKey};
use crate::clock::Clock;
use crate::error::{Error, store::StoreError};
use crate::limiter::Limiter;
use crate::observe::Event;
use crate::policy::{Policy, PolicyExt, Quota, Rated};
use crate::stats::Stats;
use crate::units::Rate;
use crate::wait_queue::End;

/// A [`RateLimiter`](crate::RateLimiter) whose quota is shared by all processes that use the same key of a
/// Redis server: see the [module](super) and the [guide](crate::guide::redis).
///
/// It is a handle: clones share one queue, and [`at`](Self::at) returns a handle for another key.
///
/// # Order, timeouts, and cancelled calls
///
/// Callers of one process are served in FIFO order, or [ahead of others](crate::Acquire::ahead_by); callers of different
/// processes in the order in which their requests reach the server. Tenants do not take turns.
///
/// A call with a timeout fails as soon as Redis has replied that it cannot be granted in time, behind the waiters of this
/// process. A grant can be late by a round trip: permits that are due at the timeout are granted when the reply says so.
/// [`try_acquire`](Self::try_acquire) waits only for the reply.
///
/// Dropping the future leaves the queue. Without a booking that is free; a booking goes to the next caller of this
/// process, or back to Redis. If the request for it is in flight, its booking goes the same way when the reply comes.
///
/// The `blocking_*` methods work on any thread, even the only one of a runtime, which they then block. Only a connection
/// of your own that was made in that runtime cannot reply meanwhile: the call gets an error at the deadline.
///
/// All methods fail with [`Error::Store`] if Redis is away or the key holds something else.
///
/// ```no_run
/// use tollgate::redis::{Reconnecting, RedisRateLimiter};
/// use tollgate::{Rate, SmoothBursty};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RedisRateLimiter::new(policy, Reconnecting::open("redis://127.0.0.1/")?, "quota:search");
/// limiter.blocking_acquire(1)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisRateLimiter<P: Scripted, C: Connection = Reconnecting> {
    pub(super) keys: Arc<Keys<P, C>>,
    pub(super) shared: Arc<SharedKey<P, C>>,
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// Creates a limiter that shares `policy` with all processes that use `key`. Nothing is sent yet.
    ///
    /// Processes with other parameters [share the state and follow their own
    /// policy](crate::guide::redis#which-policy-is-in-force); another kind of policy is [`Error::Store`].
    /// The [builder](Self::builder) has more options. No runtime is needed: a thread of this
    /// crate sends the requests.
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

    /// The same limit for another key, over the same connection: a quota for each user, for example. It is
    /// cheap, and need not be kept; but the [`stats`](Self::stats) of a key are dropped when it has no
    /// handle and no waiter, some seconds after its last use.
    ///
    /// [`set_policy`](Self::set_policy) sets the policy of one key. Calls for different keys share no request.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.at("quota:search:user:7").acquire(1).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at(&self, key: impl Into<String>) -> Self {
        Self::of(Arc::clone(&self.keys), key.into().into())
    }

    crate::limiter::methods_of_limiter!();

    crate::limiter::forward! {
        in Limiter {
            /// Grants nothing in the whole fleet for `duration` from now, for example after a `Retry-After`: see
            /// [`RateLimiter::pause_for`](crate::RateLimiter::pause_for). Turns that are
            /// [booked](crate::RateLimiterBuilder::horizon) are still granted. The share of this process
            /// ([`Unavailable::Local`](super::Unavailable::Local)) is paused as well.
            ///
            /// # Errors
            ///
            /// [`Error::Store`] if Redis has not confirmed it; the rest of the fleet may go on.
            ///
            /// # Cancel safety
            ///
            /// It is done from the first poll on, even if the future is dropped.
            ///
            /// ```no_run
            /// # use std::time::Duration;
            /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
            /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
            /// limiter.pause_for(Duration::from_secs(30)).await?;
            /// # Ok(()) }
            /// ```
            @async pause_for(duration: Duration) -> Result<(), Error>;

            /// Ends a pause for the whole fleet: see [`RateLimiter::resume`](crate::RateLimiter::resume).
            ///
            /// Callers that wait in other processes notice at most a [refresh](crate::RateLimiterBuilder::refresh) later. Of
            /// several rules each counts what the one that owed most before the pause owes.
            ///
            /// # Errors
            ///
            /// As [`pause_for`](Self::pause_for).
            ///
            /// # Cancel safety
            ///
            /// As [`pause_for`](Self::pause_for).
            ///
            /// ```no_run
            /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
            /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
            /// limiter.resume().await?;
            /// # Ok(()) }
            /// ```
            @async resume() -> Result<(), Error>;

            /// Returns the clock by which callers of this process wait.
            #[must_use]
            clock() -> &Clock;

            /// Returns the name given to the [builder](crate::RateLimiterBuilder::name).
            #[must_use]
            name() -> Option<&str>;

            /// Returns how many callers of this process wait, with a booking or without.
            #[must_use]
            queue_len() -> usize;

            /// Returns what this process has granted and refused at all keys, with Redis and without it, those of forgotten
            /// keys included; and how long its callers waited, and for which limit of the policy.
            #[must_use]
            stats() -> Stats;
        }
    }

    /// The key of this limiter.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.shared.key
    }

    /// Changes the policy of the key for the whole fleet: from the next request of each process on, for all
    /// turns that are not booked yet. Idle time up to now counts at the old rate; debt keeps its old price.
    ///
    /// The other processes adopt and keep it; if Redis loses the key, the first of them restores it. If two
    /// are set at the same time, the one that reaches the server later wins.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; it may have taken effect anyway. It is not sent again.
    ///
    /// # Cancel safety
    ///
    /// It is done from the first poll on, even if the future is dropped.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # use tollgate::{Rate, TokenBucket};
    /// # async fn example(limiter: RedisRateLimiter<TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.set_policy(TokenBucket::new(Rate::per_second(7.0), 70)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_policy(&self, policy: P) -> Result<(), Error> {
        self.change_policy(policy, None).await
    }

    async fn change_policy(&self, policy: P, rate: Option<Rate>) -> Result<(), Error> {
        let todo = PolicyHeader::of(&policy, (0, 0)).set();
        let change = KeyChange { sets: Some(policy), ..KeyChange::of(todo) };
        let answer = self.shared.with_lock(|line| line.request(change));
        answer.await.unwrap_or(Ok(None)).map(drop)?;
        self.shared.context.observer.report(&Event::PolicyChanged { rate });
        Ok(())
    }

    /// Closes **all** keys in this process, those that come later included; see [`Limiter::close`].
    /// [`close`](Self::close) closes the key of this handle.
    ///
    /// ```no_run
    /// # use tollgate::Error;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::InFlight, Reconnecting>) {
    /// limiter.close_all();
    /// assert_eq!(limiter.at("quota:user:7").acquire(1).await.unwrap_err(), Error::Closed);
    /// # }
    /// ```
    pub fn close_all(&self) {
        self.keys.close(End::Close);
    }

    /// Closes all keys to new callers, and serves their queues; see [`Limiter::drain`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::drain`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::InFlight, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.drain_all().await;
    /// limiter.flush().await?;
    /// # Ok(()) }
    /// ```
    pub async fn drain_all(&self) {
        for shared in self.keys.close(End::Serve) {
            Self { keys: Arc::clone(&self.keys), shared }.drain().await;
        }
    }

    /// Waits until Redis knows all that was given back at all keys: permits in flight, refunds, bookings of
    /// callers that left. Call it before a process ends, so that other processes do not wait until the
    /// [lease](crate::RateLimiterBuilder::lease) on released permits expires. A key that has nothing to send costs no
    /// request.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if Redis has not confirmed it for a key: the first such error, after all keys were tried.
    ///
    /// # Cancel safety
    ///
    /// The future only waits: the requests are sent in any case, while the process lives.
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
        let mut flushed = Ok(());
        for key in self.keys.all() {
            // Bookings of the reply that no caller takes are given back after the first round.
            for _ in 0..2 {
                let answer = key.with_lock(|line| {
                    (!line.has_told_all()).then(|| line.request(KeyChange::of(Vec::new())))
                });
                let Some(answer) = answer else { break };
                flushed = flushed.and(answer.await.unwrap_or(Ok(None)).map(drop));
            }
        }
        flushed
    }

    /// Returns the policy in force, as far as this process knows.
    #[must_use]
    pub fn policy(&self) -> P {
        self.shared.with_lock(|line| line.agreement.policy.clone())
    }

    /// Returns what this process has granted and refused at this key, while it is in [memory](Self::len). Waits are
    /// counted for all keys together.
    #[must_use]
    pub fn key_stats(&self) -> Stats {
        self.shared.with_lock(|line| line.stats.clone())
    }

    /// Returns the request counters, all keys together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.shared.context.counters.lock()
    }

    /// Returns the number of keys in the memory of this process: those with handles, waiters or something left to
    /// send; those used in the last seconds; and those used in the last day whose policy was set.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a limiter has its own key at least
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether Redis can be reached, as far as this process knows.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.context.health.state()
    }
}

/// For operators.
impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// Checks that Redis runs scripts and accepts writes, and that the key holds nothing else than a policy of this kind,
    /// if it exists: for a readiness probe. Takes no permits and writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// let is_ready = limiter.ping().await.is_ok();
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<(), Error> {
        self.report(Vec::new()).await.map(drop)
    }

    /// Returns the state of the key. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let state = limiter.at("quota:user:7").inspect().await?;
    /// println!("{state:?}");
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<KeyState<P>, Error> {
        let Some(Report::State(mut quota, paused_for, expires_in)) =
            self.report(vec![b'Q']).await?
        else {
            return Err(self.lost());
        };
        let policy = self.policy();
        quota.window = policy.window(quota.limit);
        Ok(KeyState { policy, quota, paused_for, expires_in })
    }

    pub(super) async fn report(&self, todo: Vec<u8>) -> Result<Option<Report<P::Cost>>, Error> {
        let answer = self.shared.with_lock(|line| line.request(KeyChange::of(todo)));
        // The line that reports it lives as long as this handle.
        answer.await.unwrap_or(Ok(None))
    }

    pub(super) fn lost(&self) -> Error {
        let lost = StoreError::refused("the request got no reply");
        lost.at(&self.shared.key).into()
    }

    crate::limiter::forward! {
        in Limiter {
            /// Returns how much of the limit is left for the whole fleet.
            ///
            /// # Errors
            ///
            /// [`Error::Store`].
            @async quota() -> Result<Quota<P::Cost>, Error>;

            /// Deletes the key: the limit is unused for the whole fleet, and a pause is over. A policy that was
            /// [set](Self::set_policy) is gone unless a process that knows it restores it. Other processes notice with
            /// their next request, at most a [refresh](crate::RateLimiterBuilder::refresh) later. Permits in flight count again once
            /// their processes report them.
            ///
            /// Bookings are still granted, so for a moment the limit may be exceeded.
            ///
            /// # Errors
            ///
            /// [`Error::Store`]; the key may be gone nevertheless. A key that holds something else is left alone.
            ///
            /// # Cancel safety
            ///
            /// It is done from the first poll on, even if the future is dropped.
            ///
            /// ```no_run
            /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
            /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
            /// limiter.at("quota:user:7").reset().await?;
            /// # Ok(()) }
            /// ```
            @async reset() -> Result<(), Error>;
        }
    }
}

impl<P: Scripted + Rated, C: Connection> RedisRateLimiter<P, C> {
    /// Returns the rate in force, as far as this process knows.
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
        self.change_policy(self.policy().with_rate(rate), Some(rate)).await
    }
}

impl<P: Scripted, C: Connection> fmt::Debug for RedisRateLimiter<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisRateLimiter");
        if let Some(name) = self.name() {
            shown.field("name", &name);
        }
        shown
            .field("key", &self.shared.key)
            .field("policy", &self.policy())
            .field("state", &self.state())
            .field("waiting", &self.queue_len())
            .finish_non_exhaustive()
    }
}

/// The state of a key in Redis, from [`RedisRateLimiter::inspect`].
///
/// ```no_run
/// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
/// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
/// let state = limiter.inspect().await?;
/// println!("{:?}: {} of {} left", state.policy, state.quota.remaining, state.quota.limit);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyState<P: Policy> {
    /// The policy of this process, or the key's policy if it has a higher rank.
    pub policy: P,
    /// The permits that are left for the whole fleet.
    pub quota: Quota<P::Cost>,
    /// The rest of a pause; zero without one.
    pub paused_for: Duration,
    /// The least time for which Redis keeps the key, even if it is not used. `None` if there is no key: the limit
    /// is unused.
    pub expires_in: Option<Duration>,
}
