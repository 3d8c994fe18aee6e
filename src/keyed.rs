//! A limit for each key.
//!
//! A key is what its policy remembers of it, and becomes a limiter when a caller waits there or keeps a grant. The
//! methods are here and in `inspect` and `admin`. A `call` finds its key in the `table`, under the lock of a `shard`, which
//! decides by what `states` keeps of the key. `sweep` drops idle keys.

pub(crate) mod acquire;
mod admin;
pub(crate) mod at_key;
pub(crate) mod builder;
mod call;
mod common;
pub(crate) mod hash;
mod inspect;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod shard;
mod states;
mod sweep;
mod table;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod to_key;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use acquire::KeyRef;
use call::Call;
pub(crate) use call::GrantOrWait;
use hash::FastHash;
pub use to_key::ToKey;

use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, Reservation};
use crate::park::block_on;
use crate::policy::Policy;
use crate::rate_limiter::{Grant, RateLimiter};
use table::Table;

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
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct KeyedRateLimiter<K, P: Policy, S = FastHash> {
    table: Arc<Table<K, P, S>>,
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// Creates a limiter with one policy for all keys and the [system clock](Clock::system). This clock shows
    /// real time even under `tokio::time::pause`: use [`with_clock`](Self::with_clock) with `Clock::tokio()`
    /// there. Each key has its own state.
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, Rate, SmoothBursty};
    ///
    /// let limiter = KeyedRateLimiter::new(SmoothBursty::new(Rate::per_second(50.0)));
    /// assert!(limiter.try_acquire(&7, 1).is_ok());
    /// ```
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_clock(policy, Clock::system())
    }

    /// Creates a limiter with one policy for all keys and another clock.
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    ///
    /// let policy = SmoothBursty::new(Rate::per_second(50.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// assert!(limiter.try_acquire(&7, 1).is_ok());
    /// ```
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
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let clock = ManualClock::auto_advance();
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter: KeyedRateLimiter<String, _> = KeyedRateLimiter::with_clock(policy, clock);
    /// limiter.acquire("alice", 1).await?;
    /// assert_eq!(limiter.acquire("bob", 1).await?.waited().as_millis(), 0);
    /// assert_eq!(limiter.acquire("alice", 1).await?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "until_key_ready")]
    pub fn acquire<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
    ) -> Acquire<KeyRef<'a, K, P, Q, S>> {
        Acquire::new(KeyRef::new(&self.table, key), Ask::new(n, None))
    }

    /// Acquires `n` permits at `key` if they are ready and its queue is empty; never waits.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire`](crate::RateLimiter::try_acquire), and
    /// [`Error::TooManyKeys`].
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 3)?;
    /// assert_eq!(limiter.try_acquire(&7, 1).unwrap_err().retry_after().unwrap().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.try_acquire(&7, 1)?;
    /// let timeout = Duration::from_millis(199);
    /// assert!(limiter.try_acquire_timeout(&7, 1, timeout).await.is_err());
    /// let timeout = Duration::from_millis(200);
    /// assert!(limiter.try_acquire_timeout(&7, 1, timeout).await.is_ok());
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire_timeout<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
        timeout: Duration,
    ) -> Acquire<KeyRef<'a, K, P, Q, S>> {
        Acquire::new(KeyRef::new(&self.table, key), Ask::new(n, Some(timeout)))
    }

    /// As [`acquire`](Self::acquire), for threads: parks the calling thread until the permits are granted.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(&7, 1)?;
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # use std::time::Duration;
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(&7, 1)?;
    /// let timeout = Duration::from_millis(199);
    /// assert!(limiter.blocking_try_acquire_timeout(&7, 1, timeout).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// let first = limiter.reserve(&7, 1)?;
    /// let second = limiter.reserve(&7, 1)?;
    /// assert_eq!(second.delay().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reserve<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: P::Cost,
    ) -> Result<Reservation<RateLimiter<P>>, Error> {
        self.acquire(key, n).reserve()
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
