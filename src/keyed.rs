//! A limit for each key.

mod acquire;
pub(crate) mod at_key;
pub(crate) mod builder;
pub(crate) mod grant_or_wait;
mod shard;
mod table;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod to_key;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub use acquire::KeyedAcquire;
use grant_or_wait::GrantOrWait;
pub use to_key::ToKey;

use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Grant, GrantOwner, Reservation, Shared};
#[cfg(feature = "metrics")]
use crate::observe;
use crate::observe::Event;
use crate::park::block_on;
use crate::policy::{Policy, Quota};
use crate::stats::{Stats, Waits};
use shard::PolicySource;
use table::Table;

/// A [`RateLimiter`](crate::RateLimiter) for each key: per customer, per host, per token.
///
/// Keys need no registration: an absent key is **an idle one**, as if it had long been unused. Calls drop
/// idle keys, a few at a time, and only when that changes no decision; [`remove_idle`](Self::remove_idle)
/// drops all of them. A call names a key in any [borrowed form](ToKey), such as `&str` for `String` or
/// `Arc<str>`.
///
/// Each key has its own queue, with the order and the guarantees of a `RateLimiter`. The queue is created
/// when a caller has to wait or holds a place in flight. Until then a key takes the memory of its policy's
/// [state](Policy::State) and a few bytes more.
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
pub struct KeyedRateLimiter<K, P: Policy> {
    table: Arc<Table<K, P>>,
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
    pub fn acquire<'a, Q>(&'a self, key: &'a Q, n: P::Cost) -> KeyedAcquire<'a, K, P, Q>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        KeyedAcquire::borrowed(&self.table, key, n, None)
    }

    /// As [`acquire`](Self::acquire), but the future and the grant borrow neither the limiter nor the
    /// key.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter, ManualClock};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = KeyedRateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    /// let grant = tokio::spawn(limiter.acquire_owned("alice".to_owned(), 1)).await??;
    /// assert_eq!((limiter.available("alice"), limiter.available("bob")), (0, 1));
    /// # drop(grant); Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_owned(&self, key: K, n: P::Cost) -> KeyedAcquire<'static, K, P> {
        self.acquire_within(key, n, None)
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
    pub fn try_acquire<Q>(&self, key: &Q, n: P::Cost) -> Result<Grant<'_, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        match self.table.grant_or_wait(key, n, Some(Duration::ZERO), Duration::ZERO)? {
            GrantOrWait::Granted(grant) => Ok(grant),
            GrantOrWait::Waiting(acquire) => acquire.now(),
        }
    }

    /// Acquires as many of `n` permits as are available at `key` now, and at least one; see
    /// [`RateLimiter::try_acquire_up_to`](crate::RateLimiter::try_acquire_up_to).
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire) for one permit.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// assert_eq!(limiter.try_acquire_up_to(&7, 10)?.cost(), 2);
    /// assert!(limiter.try_acquire_up_to(&7, 10).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn try_acquire_up_to<Q>(&self, key: &Q, n: P::Cost) -> Result<Grant<'static, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let line = self.table.line(key)?;
        let (taken, charge) = line.take_up_to(n)?;
        Ok(Grant::new(GrantOwner::owned(line), taken, charge))
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
    pub fn try_acquire_timeout<'a, Q>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
        timeout: Duration,
    ) -> KeyedAcquire<'a, K, P, Q>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        KeyedAcquire::borrowed(&self.table, key, n, Some(timeout))
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
    pub fn blocking_acquire<'a, Q>(&'a self, key: &'a Q, n: P::Cost) -> Result<Grant<'a, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
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
    pub fn blocking_try_acquire_timeout<'a, Q>(
        &'a self,
        key: &'a Q,
        n: P::Cost,
        timeout: Duration,
    ) -> Result<Grant<'a, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
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
    pub fn reserve<Q>(&self, key: &Q, n: P::Cost) -> Result<Reservation<P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.acquire(key, n).reserve()
    }

    /// Puts **all** keys under one policy, and drops the function of the key if there was one. The change also
    /// applies to callers already waiting; see [`RateLimiter::set_policy`](crate::RateLimiter::set_policy).
    /// Keys are changed one after another, not atomically.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let slow = TokenBucket::new(Rate::per_second(1.0), 10);
    /// let limiter = KeyedRateLimiter::with_clock(slow, ManualClock::new());
    /// limiter.try_acquire(&7, 10)?;
    /// limiter.set_policy(TokenBucket::new(Rate::per_second(100.0), 10));
    /// assert_eq!(limiter.try_acquire(&7, 1).unwrap_err().retry_after().unwrap().as_millis(), 10);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_policy(&self, policy: P) {
        self.table.set_rule(&PolicySource::One(policy));
        self.table.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Puts each key under the policy that `policy_of` returns for it; see
    /// [`with_policies`](Self::with_policies).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let rate = Rate::per_second(1.0);
    /// let policy = TokenBucket::new(rate, 10);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.set_policies(move |&key| TokenBucket::new(rate, key));
    /// assert_eq!((limiter.available(&3), limiter.available(&30)), (3, 30));
    /// ```
    pub fn set_policies(&self, policy_of: impl Fn(&K) -> P + Send + Sync + 'static) {
        self.table.set_rule(&PolicySource::Each(Arc::new(policy_of)));
        self.table.observer.report(&Event::PolicyChanged { rate: None });
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
    pub fn refresh<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.table.refresh(key);
    }

    /// Grants nothing at `key` for `duration` from now; see
    /// [`RateLimiter::pause_for`](crate::RateLimiter::pause_for).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`]: the key is absent, and there is no room for it.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// # use std::time::Duration;
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.pause_for(&7, Duration::from_secs(30))?;
    /// assert_eq!(limiter.blocking_acquire(&8, 1)?.waited().as_secs(), 0);
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_secs(), 30);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn pause_for<Q>(&self, key: &Q, duration: Duration) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.table.line(key)?.with_lock(|inner, now| inner.pause(now, duration));
        self.table.observer.paused(duration);
        Ok(())
    }

    /// Ends a pause of `key` now; see [`RateLimiter::resume`](crate::RateLimiter::resume).
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// # use std::time::Duration;
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.pause_for(&7, Duration::from_secs(30))?;
    /// limiter.resume(&7)?;
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_secs(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn resume<Q>(&self, key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.table.line(key)?.with_lock(|inner, now| inner.resume(now));
        self.table.observer.report(&Event::Resumed);
        Ok(())
    }

    /// Takes what is available at `key` beyond `remaining`; see
    /// [`RateLimiter::shrink_to`](crate::RateLimiter::shrink_to).
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 100);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.shrink_to(&7, 40)?;
    /// assert_eq!((limiter.available(&7), limiter.available(&8)), (40, 100));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn shrink_to<Q>(&self, key: &Q, remaining: P::Cost) -> Result<Grant<'static, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let line = self.table.line(key)?;
        let (excess, charge) = line.with_lock(|inner, now| inner.shrink_to(now, remaining));
        Ok(Grant::new(GrantOwner::owned(line), excess, charge))
    }

    /// The permits that can be acquired at `key` now without a wait for the next caller; see
    /// [`RateLimiter::available`](crate::RateLimiter::available).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// assert_eq!((limiter.available(&7), limiter.available(&8)), (2, 3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn available<Q>(&self, key: &Q) -> P::Cost
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.quota(key).remaining
    }

    /// The limit at `key` and what remains of it; see
    /// [`RateLimiter::quota`](crate::RateLimiter::quota).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// let quota = limiter.quota(&7);
    /// assert_eq!((quota.limit, quota.remaining), (3, 2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn quota<Q>(&self, key: &Q) -> Quota<P::Cost>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.table.look(key, Shared::quota, Quota::of)
    }

    /// The number of waiters at `key`.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// let granted = limiter.reserve(&7, 1)?;
    /// let waiting = limiter.reserve(&7, 1)?;
    /// assert_eq!((limiter.queue_len(&7), limiter.queue_len(&8)), (1, 0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn queue_len<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let in_line = |line: &Shared<P>| line.with_lock(|inner, _| inner.queue_len());
        self.table.look(key, in_line, |_, _, _| 0)
    }

    /// The number of keys in the table, including idle keys that have not been dropped yet.
    ///
    /// Calls of the limiter look for idle keys, a few at a time, and less often while they find none. So this
    /// number is an upper bound of the keys in use. For an exact gauge, call
    /// [`remove_idle`](Self::remove_idle) first.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// assert_eq!((limiter.len(), limiter.is_empty()), (1, false));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Drops all idle keys now, and returns their number. This changes no decision.
    ///
    /// It visits every key, under one short lock after another. Other calls drop idle keys anyway; use this for
    /// a gauge, or to free memory in a program that has stopped calling the limiter.
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

    /// Whether the table holds no key; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name given to the [builder](crate::KeyedRateLimiterBuilder::name).
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let builder = KeyedRateLimiter::<u64, _>::builder(InFlight::new(10));
    /// assert_eq!(builder.name("uploads").build().name(), Some("uploads"));
    /// ```
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.table.observer.name.as_deref()
    }

    /// The clock that decides and wakes waiters.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter, ManualClock};
    /// let limiter = KeyedRateLimiter::<u64, _>::with_clock(InFlight::new(10), ManualClock::new());
    /// assert_eq!(limiter.clock().now().get(), 0);
    /// ```
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.table.clock
    }

    /// The maximum number of keys; see [`crate::KeyedRateLimiterBuilder::max_keys`].
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::<u64, _>::new(InFlight::new(10));
    /// assert_eq!(limiter.max_keys(), 1_048_576);
    /// ```
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.table.options.max_keys
    }

    /// The maximum number of waiters at each key; `usize::MAX` if the
    /// [builder](crate::KeyedRateLimiterBuilder::max_waiters) set none.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let builder = KeyedRateLimiter::<u64, _>::builder(InFlight::new(10));
    /// assert_eq!(builder.max_waiters(100).build().max_waiters(), 100);
    /// ```
    #[must_use]
    pub fn max_waiters(&self) -> usize {
        self.table.options.settings.bounds.waiters
    }

    /// The maximum number of permits that the waiters of one key together may ask for; `u64::MAX` if
    /// the [builder](crate::KeyedRateLimiterBuilder::max_queued_permits) set none.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let builder = KeyedRateLimiter::<u64, _>::builder(InFlight::new(10));
    /// assert_eq!(builder.max_queued_permits(50).build().max_queued_permits(), 50);
    /// ```
    #[must_use]
    pub fn max_queued_permits(&self) -> u64 {
        self.table.options.settings.bounds.permits
    }

    /// Whether an absent key begins as a new limiter; see
    /// [`crate::KeyedRateLimiterBuilder::absent_is_new`].
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::<u64, _>::new(InFlight::new(10));
    /// assert!(!limiter.absent_is_new());
    /// ```
    #[must_use]
    pub fn absent_is_new(&self) -> bool {
        self.table.options.settings.absent_is_new
    }

    /// The keys in the table, in no particular order. They are read shard by shard, not atomically.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 2)?;
    /// limiter.try_acquire(&8, 1)?;
    /// let mut left: Vec<_> =
    ///     limiter.keys().into_iter().map(|key| (key, limiter.available(&key))).collect();
    /// left.sort();
    /// assert_eq!(left, [(7, 1), (8, 2)]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.table.keys()
    }

    /// Counters of all keys together since the limiter was created.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// limiter.try_acquire(&8, 1)?;
    /// assert!(limiter.try_acquire(&8, 1).is_err());
    /// assert_eq!((limiter.stats().granted, limiter.stats().refused), (2, 1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// How long callers waited at all keys, and for which part of the policy.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// for key in [7, 8] {
    ///     limiter.blocking_acquire(&key, 6)?;
    ///     limiter.blocking_acquire(&key, 1)?; // waits for 200 ms
    /// }
    /// assert_eq!(limiter.waits().count(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.table.waits()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self) -> observe::Observe {
        observe::observe(&self.table, |table| observe::Observation {
            stats: table.stats(),
            waits: table.waits(),
            waiting: table.queue_len(),
            redis: None,
        })
    }

    /// Waits up to `max_wait`, without a borrow.
    pub(crate) fn acquire_within(
        &self,
        key: K,
        n: P::Cost,
        max_wait: Option<Duration>,
    ) -> KeyedAcquire<'static, K, P> {
        KeyedAcquire::owned(Arc::clone(&self.table), key, n, max_wait)
    }

    /// As [`acquire_within`](Self::acquire_within), but joins the queue now.
    #[cfg(feature = "redis")]
    pub(crate) fn grant_or_wait<Q>(
        &self,
        key: &Q,
        n: P::Cost,
        max_wait: Option<Duration>,
        ahead: Duration,
    ) -> Result<GrantOrWait<'static, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        self.table.grant_or_wait(key, n, max_wait, ahead).map(GrantOrWait::into_owned)
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
        let mut shown = f.debug_struct("KeyedRateLimiter");
        if let Some(name) = &self.table.observer.name {
            shown.field("name", name);
        }
        shown
            .field("keys", &self.table.len())
            .field("clock", &self.table.clock)
            .finish_non_exhaustive()
    }
}
