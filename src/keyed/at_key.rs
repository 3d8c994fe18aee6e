//! One key, as a limiter.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::KeyedRateLimiter;
use super::call::{Call, GrantOrWait};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, Limiter, Queue, Reservation, forward, sealed::Sealed};
use crate::line::Inner;
use crate::observe::Event;
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Policy, Quota};
use crate::rate_limiter::{Grant, RateLimiter};
use crate::stats::Stats;
use crate::wait_queue::End;

/// One key of a [`KeyedRateLimiter`]: a [`Limiter`] with the methods of a [`RateLimiter`]; see
/// [`KeyedRateLimiter::at`]. `Q` is the borrowed form of the key, such as `str`.
///
/// It does not keep its key in the table: an idle key is dropped even while there are such handles.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// let clock = ManualClock::new();
/// let policy = TokenBucket::new(Rate::per_second(10.0), 20);
/// let limiter: KeyedRateLimiter<String, _> = KeyedRateLimiter::with_clock(policy, clock.clone());
/// let alice = limiter.at("alice");
/// alice.try_acquire(20)?;
/// let place = alice.reserve(3)?;
/// assert_eq!((place.delay().as_millis(), alice.queue_len()), (300, 1));
/// drop(place); // leaving costs nothing
/// assert_eq!(alice.would_wait(1)?, Some(Duration::from_millis(100)));
/// alice.pause_for(Duration::from_secs(30))?;
/// assert_eq!(alice.would_wait(1)?, Some(Duration::from_millis(30_100)));
/// alice.reset()?;
/// assert_eq!(alice.available(), 20);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct AtKey<'a, 'k, Q: ToOwned + ?Sized, P: Policy> {
    limiter: Cow<'a, KeyedRateLimiter<Q::Owned, P>>,
    key: Cow<'k, Q>,
}

impl<K, P: Policy> KeyedRateLimiter<K, P> {
    /// The limiter of one key, named by a borrowed form such as `&str` of `String`: any whose [`ToOwned`] makes the key. A call
    /// at a known key makes none.
    ///
    /// The handle borrows both, and its grants the limiter alone. [`into_owned`](AtKey::into_owned) borrows nothing, for tasks
    /// and middleware.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter, ManualClock};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = KeyedRateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    /// let alice = limiter.at("alice").into_owned();
    /// let grant = tokio::spawn(async move { alice.acquire(1).await }).await??;
    /// assert_eq!((limiter.at("alice").available(), limiter.at("bob").available()), (0, 1));
    /// # drop(grant); Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn at<'k, Q>(&self, key: &'k Q) -> AtKey<'_, 'k, Q, P>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        AtKey { limiter: Cow::Borrowed(self), key: Cow::Borrowed(key) }
    }
}

impl<Q: ToOwned + ?Sized, P: Policy> AtKey<'_, '_, Q, P> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &Q {
        &self.key
    }

    /// The same key, without a borrow.
    #[must_use]
    pub fn into_owned(self) -> AtKey<'static, 'static, Q, P>
    where
        Q: 'static,
    {
        let Self { limiter, key } = self;
        AtKey { limiter: Cow::Owned(limiter.into_owned()), key: Cow::Owned(key.into_owned()) }
    }
}

impl<'a, Q, P> AtKey<'a, '_, Q, P>
where
    Q: ToOwned<Owned: Hash + Eq + Send + Sync + 'static> + Hash + Eq + Sync + ?Sized,
    P: Policy,
{
    #[inline(always)]
    fn call(&self) -> Call<'_, '_, Q, P> {
        Call { table: &self.limiter.table, key: &self.key }
    }

    #[inline(always)]
    fn decide(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'a, P>, Error> {
        match &self.limiter {
            Cow::Borrowed(limiter) => {
                Call { table: &limiter.table, key: &*self.key }.decide(cost, max_wait)
            }
            // Not inlined once more.
            Cow::Owned(_) => Ok(self.call().arrive(cost, max_wait)?.map(Grant::into_owned)),
        }
    }

    /// Acquires `n` permits if they are ready and the queue of the key is empty; never waits.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire`], and [`Error::TooManyKeys`].
    #[inline(always)]
    #[doc(alias = "check_key")]
    pub fn try_acquire(&self, n: P::Cost) -> Result<Grant<'a, P>, Error> {
        self.decide(n, Some(Duration::ZERO))?.or_else(|limiter| limiter.take_now(n))
    }

    /// The permits that can be acquired now without a wait for the next caller; see [`RateLimiter::available`].
    #[must_use]
    pub fn available(&self) -> P::Cost {
        self.quota().remaining
    }

    /// The limit and what remains of it; see [`RateLimiter::quota`].
    #[must_use]
    pub fn quota(&self) -> Quota<P::Cost> {
        self.call().look(|inner, now| inner.quota(now))
    }

    /// How long a call for `n` permits would wait if it came now; see [`RateLimiter::would_wait`]. It creates no key.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help.
    pub fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        Ok(self.call().look(|inner, now| inner.would_wait(now, n))?)
    }

    /// Calls the [function of the key](KeyedRateLimiter::builder_with_policies) again; use it after its result has changed. Does
    /// nothing if the key is absent, or if all keys have [one policy](KeyedRateLimiter::set_policy).
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
    /// let builder = KeyedRateLimiter::builder_with_policies(policy_of);
    /// let limiter = builder.clock(ManualClock::new()).build();
    /// limiter.at(&7).try_acquire(1)?;
    /// capacity.store(50, Ordering::Relaxed);
    /// assert!(limiter.at(&7).try_acquire(50).is_err());
    /// limiter.at(&7).refresh();
    /// assert_eq!(limiter.at(&7).quota().limit, 50);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refresh(&self) {
        self.call().refresh();
    }

    /// Grants nothing for `duration` from now; see [`RateLimiter::pause_for`].
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`]: the key is absent, and there is no room for it.
    pub fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.call().line(false)?.with_lock(|inner, now| inner.pause(now, duration));
        self.limiter.table.common.observer.paused(duration);
        Ok(())
    }

    /// Ends a pause now; see [`RateLimiter::resume`].
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    pub fn resume(&self) -> Result<(), Error> {
        self.call().line(false)?.with_lock(|inner, now| inner.resume(now));
        self.limiter.table.common.observer.report(&Event::Resumed);
        Ok(())
    }

    /// Makes the key new; see [`Limiter::reset`].
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    pub fn reset(&self) -> Result<(), Error> {
        self.call().line(false)?.with_lock(|inner, now| inner.reset(now));
        Ok(())
    }

    /// Takes a place in the queue of the key without waiting. Wait for the grant later, or drop the place.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::reserve`], and [`Error::TooManyKeys`].
    pub fn reserve(&self, n: P::Cost) -> Result<Reservation<RateLimiter<P>>, Error> {
        self.acquire(n).reserve_now()
    }

    forward! {
        in Limiter {
            /// Acquires `n` permits, waiting until they are granted; see [`RateLimiter::acquire`].
            #[doc(alias = "until_key_ready")]
            acquire(n: P::Cost) -> Acquire<Self>;
            /// Acquires `n` permits if they come within `timeout`, and fails at once if they cannot; see
            /// [`RateLimiter::try_acquire_timeout`].
            try_acquire_timeout(n: P::Cost, timeout: Duration) -> Acquire<Self>;
            /// As [`acquire`](Self::acquire), for threads.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire).
            blocking_acquire(n: P::Cost) -> Result<<Self as Queue>::Grant, Error>;
            /// See [`Limiter::close`].
            close() -> ();
            /// See [`Limiter::drain`].
            @async drain() -> ();
            /// See [`Limiter::is_closed`].
            #[must_use]
            is_closed() -> bool;
            /// The number of waiters.
            #[must_use]
            queue_len() -> usize;
            /// The permits that they wait for, all costs together.
            #[must_use]
            queued_permits() -> u64;
        }
    }
}

impl<Q: ToOwned + ?Sized, P: Policy> Clone for AtKey<'_, '_, Q, P> {
    #[inline]
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: self.key.clone() }
    }
}

/// Without the key, which need not be `Debug`.
impl<Q: ToOwned + ?Sized, P: Policy> fmt::Debug for AtKey<'_, '_, Q, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtKey").field("limiter", &*self.limiter).finish_non_exhaustive()
    }
}

/// Where a caller of a key stands: at the limiter of the key, once it has asked.
#[allow(missing_debug_implementations)] // no program holds one
#[derive(Default)]
pub enum KeyPlace<P: Policy> {
    #[default]
    Outside,
    At(Acquire<RateLimiter<P>>),
    Over,
}

impl<P: Policy> KeyPlace<P> {
    #[track_caller]
    fn at(&mut self) -> &mut Acquire<RateLimiter<P>> {
        let Self::At(acquire) = self else { panic!("`Acquire` polled after it was ready") };
        acquire
    }
}

impl<Q: ToOwned + ?Sized, P: Policy> Sealed for AtKey<'_, '_, Q, P> {}

impl<'a, Q, P> Queue for AtKey<'a, '_, Q, P>
where
    Q: ToOwned<Owned: Hash + Eq + Send + Sync + 'static> + Hash + Eq + Sync + ?Sized,
    P: Policy,
{
    type Cost = P::Cost;
    type Grant = Grant<'a, P>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        if matches!(place, KeyPlace::Outside) {
            *place = KeyPlace::Over;
            match limiter.decide(ask.cost, ask.max_wait)? {
                Ok(grant) => return Poll::Ready(Ok(grant)),
                Err(limiter) => *place = KeyPlace::At(Acquire::new(limiter, *ask)),
            }
        }
        let polled = Pin::new(place.at()).poll(context);
        if polled.is_ready() {
            // The key is not kept for a caller that has its grant.
            *place = KeyPlace::Over;
        }
        polled
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if matches!(place, KeyPlace::Outside) {
            let line = limiter.call().line(false)?;
            *place = KeyPlace::At(Acquire::new(RateLimiter::of_line(line), *ask));
        }
        place.at().poll_enter(context)
    }

    fn delay(_: &Self, place: &KeyPlace<P>) -> Duration {
        if let KeyPlace::At(acquire) = place { acquire.delay() } else { Duration::ZERO }
    }

    fn into_owned(_: &Self, _: &Ask<P::Cost>, place: KeyPlace<P>) -> Acquire<RateLimiter<P>> {
        let KeyPlace::At(acquire) = place else { unreachable!("it has entered") };
        acquire
    }
}

impl<Q, P> Limiter for AtKey<'_, '_, Q, P>
where
    Q: ToOwned<Owned: Hash + Eq + Send + Sync + 'static> + Hash + Eq + Sync + ?Sized,
    P: Policy,
{
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.pause_for(duration)
    }

    async fn resume(&self) -> Result<(), Error> {
        self.resume()
    }

    async fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        self.would_wait(n)
    }

    async fn reset(&self) -> Result<(), Error> {
        self.reset()
    }

    async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        Ok(self.quota())
    }

    async fn limits(&self, cost: P::Cost) -> Result<Vec<Limit<P::Cost>>, Error> {
        Ok(self.call().look(|inner, now| inner.limits(now, cost)))
    }

    fn end(&self, end: End<'_>) -> bool {
        match end {
            End::IsClosed => {
                let is_closed = |inner: &mut Inner<P>, now| inner.end(now, end) == Ok(true);
                self.limiter.is_closed() || self.call().look(is_closed)
            }
            _ => self.call().line(true).is_ok_and(|line| line.end(end)),
        }
    }

    fn queue_len(&self) -> usize {
        self.call().look(|inner, _| inner.queue_len())
    }

    fn queued_permits(&self) -> u64 {
        self.call().look(|inner, _| inner.queued_permits())
    }

    fn stats(&self) -> Stats {
        self.limiter.stats()
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
