//! One key as a limiter: borrowed, for a call, or owned. A caller waits in the queue of the key.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Call, GrantOrWait};
use super::hash::FastHash;
use super::table::Table;
use super::{KeyedRateLimiter, ToKey};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, Borrowed, Handle, InProcess, Limiter, Queue, sealed::Sealed};
use crate::line::{Inner, Line};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Policy, Quota};
use crate::rate_limiter::place::LinePlace;
use crate::rate_limiter::{Grant, GrantOwner, RateLimiter};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

/// Where a caller of a key stands: at the limiter of the key, once it has asked.
pub struct KeyPlace<P: Policy>(Option<(Option<RateLimiter<P>>, LinePlace<P>)>);

impl<P: Policy> Default for KeyPlace<P> {
    fn default() -> Self {
        Self(None)
    }
}

impl<P: Policy> fmt::Debug for KeyPlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("outside"),
            Some((_, place)) => place.fmt(f),
        }
    }
}

impl<P: Policy> KeyPlace<P> {
    fn poll<'a>(
        &mut self,
        ask: &Ask<P::Cost>,
        arrive: impl FnOnce() -> Result<GrantOrWait<'a, P>, Error>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        if self.0.is_none() {
            let (_, over) = self.0.insert((None, LinePlace::default()));
            over.is_over();
            match arrive()? {
                GrantOrWait::Granted(grant) => return Poll::Ready(Ok(grant)),
                GrantOrWait::Waiting(limiter) => self.wait_at(limiter),
            }
        }
        let Some((limiter, place)) = &mut self.0 else { unreachable!("it has asked") };
        RateLimiter::poll_acquire(limiter, ask, place, context)
    }

    fn wait_at(&mut self, limiter: RateLimiter<P>) {
        self.0 = Some((Some(limiter), LinePlace::default()));
    }

    fn enter(
        &mut self,
        line: impl FnOnce() -> Result<Arc<Line<P>>, Error>,
        ask: &Ask<P::Cost>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.0.is_none() {
            self.wait_at(RateLimiter::of_line(line()?));
        }
        let Some((limiter, place)) = &mut self.0 else { unreachable!("it has asked") };
        RateLimiter::poll_enter(limiter, ask, place, context)
    }

    fn leave(&mut self, ask: &Ask<P::Cost>) {
        if let Some((limiter, place)) = &mut self.0 {
            RateLimiter::leave(limiter, ask, place);
        }
    }

    fn delay(&self) -> Duration {
        match &self.0 {
            Some((limiter, place)) => RateLimiter::delay(limiter, place),
            None => Duration::ZERO,
        }
    }

    fn into_line(self) -> (RateLimiter<P>, LinePlace<P>) {
        let Some((Some(limiter), place)) = self.0 else { unreachable!("it has entered") };
        (limiter, place)
    }
}

/// One key of a [`KeyedRateLimiter`](crate::KeyedRateLimiter), borrowed: what a call waits at. `Q` is the borrowed form of the key that
/// the caller passed.
pub struct KeyRef<'a, K, P: Policy, Q: ?Sized = K, S = FastHash> {
    table: &'a Table<K, P, S>,
    key: &'a Q,
}

impl<'a, K, P: Policy, Q: ?Sized, S> KeyRef<'a, K, P, Q, S> {
    pub(super) fn new(table: &'a Table<K, P, S>, key: &'a Q) -> Self {
        Self { table, key }
    }
}

impl<K, P: Policy, Q: ?Sized, S> Clone for KeyRef<'_, K, P, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Policy, Q: ?Sized, S> Copy for KeyRef<'_, K, P, Q, S> {}

impl<K, P: Policy, Q: fmt::Debug + ?Sized, S> fmt::Debug for KeyRef<'_, K, P, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRef").field(&self.key).finish()
    }
}

impl<K, P: Policy, Q: ?Sized, S> Sealed for KeyRef<'_, K, P, Q, S> {}

impl<K, P, Q, S> InProcess for KeyRef<'_, K, P, Q, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<'a, K, P, Q, S> Queue for KeyRef<'a, K, P, Q, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
    type Cost = P::Cost;
    type Grant = Grant<'a, P>;
    type Handle = Borrowed<Self>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        let Self { table, key } = *limiter.get();
        place.poll(ask, || Call { table, key }.grant_or_wait(ask), context)
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let Self { table, key } = *limiter.get();
        place.enter(|| Call { table, key }.line(false), ask, context)
    }

    fn leave(_: &Self::Handle, ask: &Ask<P::Cost>, place: &mut KeyPlace<P>) {
        place.leave(ask);
    }

    fn delay(_: &Self::Handle, place: &KeyPlace<P>) -> Duration {
        place.delay()
    }

    fn into_owned(_: &mut Self::Handle, place: KeyPlace<P>) -> (RateLimiter<P>, LinePlace<P>) {
        place.into_line()
    }
}

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
        let now = self.limiter.key(&self.key).look(|inner, now| inner.snapshot(now));
        f.debug_struct("AtKey")
            .field("key", &self.key)
            .field("now", &format_args!("{now}"))
            .field("limiter", &self.limiter)
            .finish()
    }
}

impl<K, P: Policy, S> Sealed for AtKey<K, P, S> {}

impl<K, P, S> InProcess for AtKey<K, P, S>
where
    K: Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, P, S> Queue for AtKey<K, P, S>
where
    K: Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;
    type Handle = Option<Self>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'static, P>, Error>> {
        // While it waits at the limiter of the key, it has no share of the table.
        let arrive = || {
            let at_key = Handle::take(limiter);
            at_key.limiter.grant_or_wait(&at_key.key, ask)
        };
        place.poll(ask, arrive, context)
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let line = || {
            let at_key = Handle::take(limiter);
            at_key.limiter.key(&at_key.key).line(false)
        };
        place.enter(line, ask, context)
    }

    fn leave(_: &Self::Handle, ask: &Ask<P::Cost>, place: &mut KeyPlace<P>) {
        place.leave(ask);
    }

    fn delay(_: &Self::Handle, place: &KeyPlace<P>) -> Duration {
        place.delay()
    }

    fn into_owned(_: &mut Self::Handle, place: KeyPlace<P>) -> (RateLimiter<P>, LinePlace<P>) {
        place.into_line()
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

    async fn shrink_to(&self, remaining: P::Cost) -> Result<Self::Grant, Error> {
        let line = self.limiter.key(&self.key).line(false)?;
        let (excess, charge) = line.with_lock(|inner, now| inner.shrink_to(now, remaining));
        Ok(Grant::new(GrantOwner::owned(line), excess, charge))
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
