//! A limiter for one key.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::task::{Context, Poll};
use std::time::Duration;

use super::KeyedRateLimiter;
use super::call::KeyPlace;
use super::hash::FastHash;
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, InProcess, Limiter, Queue, sealed::Sealed};
use crate::line::Inner;
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Policy, Quota};
use crate::rate_limiter::{Grant, RateLimiter};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

/// One key of a [`KeyedRateLimiter`], as a [`Limiter`]; see
/// [`KeyedRateLimiter::at`].
///
/// The handle does not keep its key in the table: an idle key is dropped even while handles to it exist.
///
/// ```
/// use tollgate::{KeyedRateLimiter, Limiter, ManualClock, Rate, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
/// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let alice = limiter.at("alice".to_owned());
/// alice.acquire(3).await?;
/// assert_eq!((limiter.available("alice"), limiter.available("bob")), (0, 3));
/// assert_eq!(alice.acquire(1).await?.waited().as_millis(), 200);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AtKey<K, P: Policy, S = FastHash> {
    limiter: KeyedRateLimiter<K, P, S>,
    key: K,
}

impl<K, P, S> KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A handle to one key, for code that takes a [`Limiter`].
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::new(InFlight::new(2));
    /// assert_eq!(limiter.at("alice").key(), &"alice");
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> AtKey<K, P, S> {
        AtKey { limiter: self.clone(), key }
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
    pub fn acquire_owned(&self, key: K, n: P::Cost) -> Acquire<AtKey<K, P, S>>
    where
        K: Clone,
    {
        Acquire::new(self.at(key), Ask::new(n, None))
    }
}

impl<K, P: Policy, S> AtKey<K, P, S> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The limiter of all keys.
    #[must_use]
    pub fn limiter(&self) -> &KeyedRateLimiter<K, P, S> {
        &self.limiter
    }
}

impl<K: Clone, P: Policy, S> Clone for AtKey<K, P, S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: self.key.clone() }
    }
}

impl<K, P, S> fmt::Debug for AtKey<K, P, S>
where
    K: fmt::Debug + Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quota = self.limiter.key(&self.key).look(|inner, now| inner.quota(now));
        f.debug_struct("AtKey")
            .field("key", &self.key)
            .field("quota", &quota)
            .field("limiter", &self.limiter)
            .finish()
    }
}

impl<K, P: Policy, S> Sealed for AtKey<K, P, S> {}

impl<K, P: Policy, S> InProcess for AtKey<K, P, S> where Self: Queue {}

impl<K, P, S> Queue for AtKey<K, P, S>
where
    K: Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'static, P>, Error>> {
        place.poll(ask, || limiter.limiter.grant_or_wait(&limiter.key, ask), context)
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        place.enter(|| limiter.limiter.key(&limiter.key).line(false), ask, context)
    }

    fn leave(_: &Self, _: &Ask<P::Cost>, place: &mut KeyPlace<P>) {
        place.leave();
    }

    fn delay(_: &Self, place: &KeyPlace<P>) -> Duration {
        place.delay()
    }

    fn into_owned(_: &Self, _: &Ask<P::Cost>, place: KeyPlace<P>) -> Acquire<RateLimiter<P>> {
        place.into_owned()
    }
}

impl<K, P, S> Limiter for AtKey<K, P, S>
where
    K: Clone + Hash + Eq + Send + Sync + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.limiter.pause_for(&self.key, duration)
    }

    async fn resume(&self) -> Result<(), Error> {
        self.limiter.resume(&self.key)
    }

    async fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        self.limiter.would_wait(&self.key, n)
    }

    async fn reset(&self) -> Result<(), Error> {
        self.limiter.reset(&self.key)
    }

    async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        Ok(self.limiter.quota(&self.key))
    }

    async fn limits(&self, cost: P::Cost) -> Result<Vec<Limit<P::Cost>>, Error> {
        Ok(self.limiter.limits(&self.key, cost))
    }

    fn end(&self, end: End<'_>) -> bool {
        let key = self.limiter.key(&self.key);
        match end {
            End::IsClosed => {
                let is_closed = |inner: &mut Inner<P>, now| inner.end(now, end) == Ok(true);
                self.limiter.is_closed() || key.look(is_closed)
            }
            _ => key.line(true).is_ok_and(|line| line.end(end)),
        }
    }

    fn queue_len(&self) -> usize {
        self.limiter.queue_len(&self.key)
    }

    fn queued_permits(&self) -> u64 {
        self.limiter.queued_permits(&self.key)
    }

    fn stats(&self) -> Stats {
        self.limiter.stats()
    }

    fn waits(&self) -> Waits {
        self.limiter.waits()
    }

    fn clock(&self) -> &Clock {
        self.limiter.clock()
    }

    fn name(&self) -> Option<&str> {
        self.limiter.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        self.limiter.observe()
    }
}
