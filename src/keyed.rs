//! A limit for each key.
//!
//! A key is the state of its policy, and becomes a limiter when a caller waits there or keeps a grant. A `call` finds its
//! key in the `table`, under the lock of a `shard`, which decides it.

pub(crate) mod at_key;
pub(crate) mod builder;
mod call;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod shard;
mod table;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use shard::Rule;
use table::Table;

use crate::clock::Clock;
use crate::observe::Event;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe, observe};
use crate::policy::Policy;
use crate::rate_limiter::RateLimiter;
use crate::stats::Stats;
use crate::wait_queue::End;

/// A [`RateLimiter`] for each key: per customer, per host, per token.
///
/// [`at`](Self::at) is the limiter of one key. Keys need no registration: an absent key is like **an idle one**, unused for
/// long.
///
/// **The number of keys is bounded**, by 1,048,576 unless [`max_keys`](crate::RateLimiterBuilder::max_keys) sets
/// another limit. New keys take the room of idle ones, which changes no decision. If there is no idle key at the limit, a
/// call at a new key fails with [`Error::TooManyKeys`](crate::Error::TooManyKeys), and calls at known keys continue. A key is
/// not idle while it has debt, a waiter, or a grant that is kept and may be settled.
/// [`remove_idle`](Self::remove_idle) drops all idle keys now.
///
/// # Memory
///
/// Each key has its own queue, with the order and the guarantees of a `RateLimiter`. The queue exists from the time at which
/// a caller waits, keeps its grant beyond the next call, or holds a place in flight, and if the key has its own policy.
/// Until then a key of [`SmoothBursty`](crate::SmoothBursty), [`TokenBucket`](crate::TokenBucket), [`Gcra`](crate::Gcra) or
/// [`LeakyBucket`](crate::LeakyBucket) takes its own size and 8 bytes in a hash table, and a key of another policy the size
/// of its [state](Policy::State) besides. When the table grows, no call moves more than some thousand keys, up to ten
/// million keys.
///
/// The hash function is [foldhash](https://docs.rs/foldhash)'s fast one, with a random seed of each limiter.
///
/// A limiter is a handle: clones share all keys.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
/// let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::auto_advance());
/// limiter.at("alice").acquire(1).await?;
/// assert_eq!(limiter.at("bob").acquire(1).await?.waited().as_millis(), 0);
/// assert_eq!(limiter.at("alice").acquire(1).await?.waited().as_millis(), 200);
/// let timeout = Duration::from_millis(199);
/// assert!(limiter.at("alice").try_acquire_timeout(1, timeout).await.is_err());
/// limiter.set_policy(TokenBucket::new(Rate::per_second(10.0), 1));
/// assert_eq!(limiter.at("alice").blocking_acquire(1)?.waited().as_millis(), 100);
/// limiter.drain().await;
/// assert_eq!(limiter.at("carol").acquire(1).await.unwrap_err(), Error::Closed);
/// # Ok::<(), Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyedRateLimiter<K, P: Policy> {
    table: Arc<Table<K, P>>,
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// A limiter with one policy for all keys, each with its own state, and the [system clock](Clock::system). This clock
    /// shows real time even under `tokio::time::pause`: use [`with_clock`](Self::with_clock) with `Clock::tokio()` there.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_clock(policy, Clock::system())
    }

    /// A limiter with one policy for all keys and another clock.
    #[must_use]
    pub fn with_clock(policy: P, clock: impl Into<Clock>) -> Self {
        Self::builder(policy).clock(clock).build()
    }

    /// The number of keys in the table, including idle keys that have not been dropped yet.
    ///
    /// An upper bound of the keys in use. For an exact gauge, call [`remove_idle`](Self::remove_idle) first.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table holds no key; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name given to the [builder](crate::RateLimiterBuilder::name).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.table.common.observer.name()
    }

    /// The clock that decides and wakes waiters.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.table.common.clock
    }

    /// The keys in the table, in no particular order. They are read shard by shard, not atomically.
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.table.each(|shard| shard.keys().cloned().collect::<Vec<_>>()).flatten().collect()
    }

    /// Counts and waits of all keys together since the limiter was created.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self) -> Observe {
        observe(&self.table, |table| Observation {
            stats: table.stats(),
            waiting: table
                .each(|shard| shard.lines())
                .flatten()
                .map(|line| line.look(|inner, _| inner.queue_len()))
                .sum(),
            ..Observation::default()
        })
    }

    /// Puts **all** keys under one policy, and drops the function of the key if there was one. The change reaches
    /// callers that already wait; see [`RateLimiter::set_policy`](crate::RateLimiter::set_policy). Keys are
    /// changed one after another, not atomically.
    pub fn set_policy(&self, policy: P) {
        self.table.set_rule(Rule::One(policy));
        self.table.common.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Puts each key under the policy that `policy_of` returns for it; see
    /// [`builder_with_policies`](Self::builder_with_policies).
    pub fn set_policies(&self, policy_of: impl Fn(&K) -> P + Send + Sync + 'static) {
        self.table.set_rule(Rule::Each(Box::new(policy_of)));
        self.table.common.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Closes **all** keys: waiters and later calls get [`Error::Closed`](crate::Error::Closed), also calls that pause a key. See
    /// [`Limiter::close`](crate::Limiter::close). A key that is closed alone, by [`at`](Self::at), stays in the table,
    /// even beyond `max_keys`.
    pub fn close(&self) {
        self.table.close(End::Close);
    }

    /// Closes all keys to new callers, and serves their queues; see [`Limiter::drain`](crate::Limiter::drain).
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::drain`](crate::Limiter::drain).
    pub async fn drain(&self) {
        for line in self.table.close(End::Serve) {
            RateLimiter::of_line(line).drain().await;
        }
    }

    /// Whether new callers get [`Error::Closed`](crate::Error::Closed) at all keys.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.is_closed()
    }

    /// Drops all idle keys now, and returns their number. This changes no decision.
    ///
    /// It visits every key, under one short lock after another: for an exact gauge, or to free memory when no new keys come.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, &clock);
    /// limiter.at(&7).try_acquire(1)?;
    /// clock.advance(Duration::from_millis(199));
    /// limiter.at(&8).try_acquire(1)?;
    /// assert_eq!(limiter.remove_idle(), 0);
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!((limiter.remove_idle(), limiter.len()), (1, 1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn remove_idle(&self) -> usize {
        self.table.remove_idle()
    }
}

/// Another handle to the same keys.
impl<K, P: Policy> Clone for KeyedRateLimiter<K, P> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<K, P: Policy> fmt::Debug for KeyedRateLimiter<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimiter")
            .field("name", &self.table.common.observer.name())
            .field("keys", &self.table.len())
            .field("clock", &self.table.common.clock)
            .finish_non_exhaustive()
    }
}
