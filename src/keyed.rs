//! A limit for each key.
//!
//! A key is what its policy remembers of it, and becomes a limiter when a caller waits there or keeps a grant. A
//! `call` finds its key in the `table`, under the lock of a `shard`, and is decided by what is kept of the key.

pub(crate) mod at_key;
pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod hash;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod shard;
mod table;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod to_key;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use call::GrantOrWait;
use call::{Call, KeyRef};
use hash::FastHash;
use shard::Rule;
use table::Table;
pub use to_key::ToKey;

use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, Reservation};
use crate::observe::Event;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe, observe};
use crate::park::block_on;
use crate::policy::{Limit, Policy, Quota};
use crate::rate_limiter::{Grant, RateLimiter};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

/// A [`RateLimiter`] for each key: per customer, per host, per token.
///
/// Keys need no registration: an absent key is **an idle one**, as if it had long been unused. A call names a key in
/// any [borrowed form](ToKey), such as `&str` for `String` or `Arc<str>`.
///
/// # Idle keys go
///
/// Idle keys are dropped, which changes no decision: **within ten seconds** of being idle, also if no call comes, or
/// earlier where their room is needed. A key that was in use until then, by waiters or grants that were kept, may take
/// as long again as it was in use. By [`Clock::tokio`](crate::Clock) only calls at new keys drop keys, because a timer
/// would move paused time. [`remove_idle`](Self::remove_idle) drops all idle keys now, [`retain`](Self::retain) those that
/// the caller chooses.
///
/// # Memory
///
/// Each key has its own queue, with the order and the guarantees of a `RateLimiter`. The queue is created
/// when a caller has to wait, keeps its grant beyond the next call, or holds a place in flight, and with a policy of the
/// key's own. Until then a key of
/// [`SmoothBursty`](crate::SmoothBursty), [`TokenBucket`](crate::TokenBucket), [`Gcra`](crate::Gcra) or
/// [`LeakyBucket`](crate::LeakyBucket) is itself and one word of 8 bytes in a hash table, and a key of another policy
/// has the policy's [state](Policy::State) beside it. No call moves more than some ten thousand keys when the table grows,
/// up to thirty million keys.
///
/// # Hash function
///
/// [`FastHash`], which has a random seed, unless the [builder](crate::KeyedRateLimiterBuilder::hasher) sets another one.
///
/// **The number of keys is bounded**, by 1,048,576 unless
/// [`max_keys`](crate::KeyedRateLimiterBuilder::max_keys) sets another limit. When the limit is reached and no
/// idle key is found, a call at a new key fails with [`Error::TooManyKeys`]; keys in the table are not
/// affected. A key is not idle while it has debt, a waiter, or a grant that is kept and may be settled.
///
/// A limiter is a handle: clones share all keys.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// let clock = ManualClock::new();
/// let policy = TokenBucket::new(Rate::per_second(10.0), 20);
/// let limiter: KeyedRateLimiter<String, _> = KeyedRateLimiter::with_clock(policy, clock.clone());
/// limiter.try_acquire("alice", 20)?;
/// assert!(limiter.try_acquire("alice", 1).is_err());
/// assert!(limiter.try_acquire("bob", 1).is_ok());
///
/// let place = limiter.reserve("alice", 3)?;
/// assert_eq!((place.delay().as_millis(), limiter.queue_len("alice")), (300, 1));
/// drop(place); // leaving costs nothing
/// assert_eq!(limiter.would_wait("alice", 1)?, Some(Duration::from_millis(100)));
/// limiter.pause_for("bob", Duration::from_secs(30))?;
/// assert_eq!(limiter.would_wait("bob", 1)?, Some(Duration::from_millis(30_100)));
/// limiter.reset("alice")?;
/// assert_eq!(limiter.available("alice"), 20);
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
/// let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::auto_advance());
/// limiter.acquire("alice", 1).await?;
/// assert_eq!(limiter.acquire("bob", 1).await?.waited().as_millis(), 0);
/// assert_eq!(limiter.acquire("alice", 1).await?.waited().as_millis(), 200);
/// let timeout = Duration::from_millis(199);
/// assert!(limiter.try_acquire_timeout("alice", 1, timeout).await.is_err());
/// limiter.set_policy(TokenBucket::new(Rate::per_second(10.0), 1));
/// assert_eq!(limiter.blocking_acquire("alice", 1)?.waited().as_millis(), 100);
/// limiter.drain().await;
/// assert_eq!(limiter.acquire("carol", 1).await.unwrap_err(), Error::Closed);
/// # Ok::<(), Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyedRateLimiter<K, P: Policy, S = FastHash> {
    table: Arc<Table<K, P, S>>,
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// Creates a limiter with one policy for all keys and the [system clock](Clock::system). This clock shows
    /// real time even under `tokio::time::pause`: use [`with_clock`](Self::with_clock) with `Clock::tokio()`
    /// there. Each key has its own state.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_clock(policy, Clock::system())
    }

    /// Creates a limiter with one policy for all keys and another clock.
    #[must_use]
    pub fn with_clock(policy: P, clock: impl Into<Clock>) -> Self {
        Self::builder(policy).clock(clock).build()
    }

    /// Creates a limiter with a policy by key. `policy_of` is called for a key that is new or returns after it
    /// was dropped, by [`refresh`](Self::refresh), and by getters and refused calls at an absent key.
    ///
    /// It runs under a lock that other keys need, so it should only look up data and must not wait. It must not
    /// use this limiter, nor take a lock that is held during calls of this limiter: change the data, unlock, and
    /// then call [`refresh`](Self::refresh). If `policy_of` panics, so does the call that needed it. After a
    /// panic in [`set_policies`](Self::set_policies) some keys already have their new policy.
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    ///
    /// let policy_of = |customer: &String| match customer.as_str() {
    ///     "alice" => TokenBucket::new(Rate::per_second(100.0), 100),
    ///     _ => TokenBucket::new(Rate::per_second(5.0), 5),
    /// };
    /// let limiter = KeyedRateLimiter::with_policies(policy_of, ManualClock::new());
    /// assert_eq!((limiter.available("alice"), limiter.available("bob")), (100, 5));
    /// ```
    #[must_use]
    pub fn with_policies(
        policy_of: impl Fn(&K) -> P + Send + Sync + 'static,
        clock: impl Into<Clock>,
    ) -> Self {
        Self::builder_with_policies(policy_of).clock(clock).build()
    }
}

impl<K, P, S> KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Acquires `n` permits at `key`, waiting until they are granted.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::acquire`](crate::RateLimiter::acquire), and [`Error::TooManyKeys`].
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::acquire`](crate::RateLimiter::acquire).
    #[doc(alias = "until_key_ready")]
    pub fn acquire<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
    ) -> Acquire<KeyRef<'a, K, P, Q, S>> {
        Acquire::new(KeyRef(self.key(key)), Ask::new(n, None))
    }

    /// Acquires `n` permits at `key` if they are ready and its queue is empty; never waits.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire`](crate::RateLimiter::try_acquire), and
    /// [`Error::TooManyKeys`].
    #[inline]
    #[doc(alias = "check_key")]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: P::Cost,
    ) -> Result<Grant<'_, P>, Error> {
        self.key(key).try_acquire(n)
    }

    /// Acquires `n` permits at `key` if they can be granted within `timeout`; fails **at once** if they cannot.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire_timeout`](crate::RateLimiter::try_acquire_timeout), and
    /// [`Error::TooManyKeys`].
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_timeout<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
        timeout: Duration,
    ) -> Acquire<KeyRef<'a, K, P, Q, S>> {
        Acquire::new(KeyRef(self.key(key)), Ask::new(n, Some(timeout)))
    }

    /// As [`acquire`](Self::acquire), for threads: parks the calling thread until the permits are granted.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn blocking_acquire<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
    ) -> Result<Grant<'a, P>, Error> {
        block_on(self.acquire(key, n))
    }

    /// As [`try_acquire_timeout`](Self::try_acquire_timeout), for threads.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    pub fn blocking_try_acquire_timeout<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
        timeout: Duration,
    ) -> Result<Grant<'a, P>, Error> {
        block_on(self.try_acquire_timeout(key, n, timeout))
    }

    /// Takes a place in the key's queue without waiting. Wait for the grant later, or drop the place.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::reserve`](crate::RateLimiter::reserve), and [`Error::TooManyKeys`].
    pub fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: P::Cost,
    ) -> Result<Reservation<RateLimiter<P>>, Error> {
        self.acquire(key, n).reserve()
    }

    /// The permits that can be acquired at `key` now without a wait for the next caller; see
    /// [`RateLimiter::available`](crate::RateLimiter::available).
    #[must_use]
    pub fn available<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> P::Cost {
        self.quota(key).remaining
    }

    /// The limit at `key` and what remains of it; see
    /// [`RateLimiter::quota`](crate::RateLimiter::quota).
    #[must_use]
    pub fn quota<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Quota<P::Cost> {
        self.key(key).look(|inner, now| inner.quota(now))
    }

    /// How long a call for `n` permits of a key would wait if it came now; see
    /// [`RateLimiter::would_wait`](crate::RateLimiter::would_wait). It creates no key.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help.
    pub fn would_wait<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: P::Cost,
    ) -> Result<Option<Duration>, Error> {
        Ok(self.key(key).look(|inner, now| inner.would_wait(now, n))?)
    }

    /// How much is left of each limit at `key`, for a request of `cost`.
    pub(crate) fn limits<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
    ) -> Vec<Limit<P::Cost>> {
        self.key(key).look(|inner, now| inner.limits(now, cost))
    }

    /// The number of waiters at `key`.
    #[must_use]
    pub fn queue_len<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> usize {
        self.key(key).look(|inner, _| inner.queue_len())
    }

    /// The permits that callers of a key wait for, all costs together.
    #[must_use]
    pub fn queued_permits<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u64 {
        self.key(key).look(|inner, _| inner.queued_permits())
    }

    /// The number of keys in the table, including idle keys that have not been dropped yet.
    ///
    /// They [go soon](Self#idle-keys-go), so this number is an upper bound of the keys in use. For an exact gauge,
    /// call [`remove_idle`](Self::remove_idle) first.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table holds no key; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name given to the [builder](crate::KeyedRateLimiterBuilder::name).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.table.common.observer.name()
    }

    /// The clock that decides and wakes waiters.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.table.common.clock
    }

    /// The maximum number of keys; see [`crate::KeyedRateLimiterBuilder::max_keys`].
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.table.common.options.max_keys
    }

    /// The maximum number of waiters at each key; `usize::MAX` if the
    /// [builder](crate::KeyedRateLimiterBuilder::max_waiters) set none.
    #[must_use]
    pub fn max_waiters(&self) -> usize {
        self.table.common.options.bounds.waiters
    }

    /// The maximum number of permits that the waiters of one key together may ask for; `u64::MAX` if
    /// the [builder](crate::KeyedRateLimiterBuilder::max_queued_permits) set none.
    #[must_use]
    pub fn max_queued_permits(&self) -> u64 {
        self.table.common.options.bounds.permits
    }

    /// The keys in the table, in no particular order. They are read shard by shard, not atomically.
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.table.each(|shard| shard.keys().cloned().collect::<Vec<_>>()).flatten().collect()
    }

    /// Counters of all keys together since the limiter was created.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// How long callers waited at all keys, and for which limit of the policy.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.table.common.observer.waits()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self) -> Observe {
        observe(&self.table, |table| Observation {
            stats: table.stats(),
            waits: table.common.observer.waits(),
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
    /// [`with_policies`](Self::with_policies).
    pub fn set_policies(&self, policy_of: impl Fn(&K) -> P + Send + Sync + 'static) {
        self.table.set_rule(Rule::Each(Box::new(policy_of)));
        self.table.common.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Calls the function of the key again for this key; use it after the function's result has changed. Does
    /// nothing if the key is absent, or if all keys have [one policy](Self::set_policy).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    ///
    /// let capacity = Arc::new(AtomicU32::new(5));
    /// let plan = Arc::clone(&capacity);
    /// let policy_of =
    ///     move |_: &i32| TokenBucket::new(Rate::per_second(1.0), plan.load(Ordering::Relaxed));
    /// let limiter = KeyedRateLimiter::with_policies(policy_of, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// capacity.store(50, Ordering::Relaxed);
    /// assert!(limiter.try_acquire(&7, 50).is_err());
    /// limiter.refresh(&7);
    /// assert_eq!(limiter.quota(&7).limit, 50);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refresh<Q: ToKey<K> + ?Sized>(&self, key: &Q) {
        self.key(key).refresh();
    }

    /// Grants nothing at `key` for `duration` from now; see
    /// [`RateLimiter::pause_for`](crate::RateLimiter::pause_for).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`]: the key is absent, and there is no room for it.
    pub fn pause_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        duration: Duration,
    ) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.pause(now, duration));
        self.table.common.observer.paused(duration);
        Ok(())
    }

    /// Ends a pause of `key` now; see [`RateLimiter::resume`](crate::RateLimiter::resume).
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    pub fn resume<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.resume(now));
        self.table.common.observer.report(&Event::Resumed);
        Ok(())
    }

    /// A key begins anew; see [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`].
    pub fn reset<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.reset(now));
        Ok(())
    }

    /// Closes **all** keys: waiters and later calls get [`Error::Closed`], also calls that pause a key. See
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

    /// Whether new callers get [`Error::Closed`] at all keys.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.is_closed()
    }

    /// Drops all idle keys now, and returns their number. This changes no decision.
    ///
    /// It visits every key, under one short lock after another. Idle keys [go anyway](Self#idle-keys-go); use this
    /// for an exact gauge, or to free memory now.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, &clock);
    /// limiter.try_acquire(&7, 1)?;
    /// clock.advance(Duration::from_millis(199));
    /// limiter.try_acquire(&8, 1)?;
    /// assert_eq!(limiter.remove_idle(), 0);
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!((limiter.remove_idle(), limiter.len()), (1, 1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn remove_idle(&self) -> usize {
        self.table.remove_idle()
    }

    /// Drops all keys for which `keep` returns `false`, such as former customers, and returns their number.
    ///
    /// **What they owe is forgotten**: the next call at such a key finds an idle one. Keys in use stay: keys with
    /// waiters, kept grants or places in flight, and paused keys.
    ///
    /// `keep` runs under a lock that other keys need, as [`with_policies`](Self::with_policies) describes.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::new());
    /// for key in ["eu-1", "eu-2", "us-1"] {
    ///     limiter.try_acquire(key, 3)?;
    /// }
    /// let held = limiter.try_acquire("eu-3", 3)?;
    /// assert_eq!(limiter.retain(|key| !key.starts_with("eu")), 2);
    /// assert_eq!((limiter.len(), limiter.available("eu-1"), limiter.available("eu-3")), (2, 3, 0));
    /// # drop(held);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn retain(&self, keep: impl FnMut(&K) -> bool) -> usize {
        self.table.retain(keep)
    }

    #[inline(always)]
    fn key<'t, 'k, Q: ToKey<K> + ?Sized>(&'t self, key: &'k Q) -> Call<'t, 'k, K, P, Q, S> {
        Call { table: &self.table, key }
    }

    /// The grant of a call, or the limiter of the key, in whose queue it waits.
    pub(crate) fn grant_or_wait<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: &Ask<P::Cost>,
    ) -> Result<GrantOrWait<'static, P>, Error> {
        Ok(match self.key(key).grant_or_wait(ask)? {
            GrantOrWait::Granted(grant) => GrantOrWait::Granted(grant.into_owned()),
            GrantOrWait::Waiting(limiter) => GrantOrWait::Waiting(limiter),
        })
    }
}

/// Another handle to the same keys.
impl<K, P: Policy, S> Clone for KeyedRateLimiter<K, P, S> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<K, P: Policy, S> fmt::Debug for KeyedRateLimiter<K, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KeyedRateLimiter");
        if let Some(name) = self.table.common.observer.name() {
            shown.field("name", &name);
        }
        shown
            .field("keys", &self.table.len())
            .field("clock", &self.table.common.clock)
            .finish_non_exhaustive()
    }
}
