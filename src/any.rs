//! One trait for all limiters, for code that should not name their policy or store.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Error;
use crate::keyed::KeyedAcquire;
use crate::keyed::at_key::AtKey;
use crate::limiter::metered::sealed as sealed_grant;
use crate::limiter::{Acquire, Grant, Metered, RateLimiter, SettleOnDrop};
use crate::policy::{Cost, Limit, Policy, Quota};

/// Any limiter: a [`RateLimiter`], one [key](AtKey) of a [`KeyedRateLimiter`](crate::KeyedRateLimiter),
/// or, with the feature `redis`, a `RedisRateLimiter`.
///
/// `C` is the cost of a call: permits, unless the policy is a tuple, whose limiter is a
/// `dyn AnyRateLimiter<(u32, u32)>`.
///
/// For a struct field, a table of limits read from a file, or middleware, without a type parameter.
/// Each call allocates its future, and its grant; a program that knows its policy calls the limiter
/// itself. All methods return futures, because a shared limiter asks a server; in process,
/// `try_acquire` and `pause_for` are ready at the first poll.
///
/// The futures do not borrow the limiter. A policy of your own must be [`Debug`](fmt::Debug), so that
/// a struct with a limiter can be. The trait is sealed: methods may be added.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::{AnyRateLimiter, InFlight, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let search = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
/// let uploads = RateLimiter::with_clock(InFlight::new(2), &clock);
/// let mut limits: HashMap<&str, Arc<dyn AnyRateLimiter>> = HashMap::new();
/// limits.insert("search", Arc::new(search));
/// limits.insert("uploads", Arc::new(uploads));
///
/// limits["search"].acquire(1).await?;
/// assert_eq!(limits["search"].acquire(1).await?.waited(), Duration::from_millis(200));
/// let both = [limits["uploads"].acquire(1).await?, limits["uploads"].acquire(1).await?];
/// assert!(limits["uploads"].try_acquire(1).await.is_err());
/// drop(both); // no longer in flight
/// assert!(limits["uploads"].try_acquire(1).await.is_ok());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait AnyRateLimiter<C: Cost = u32>: sealed::Sealed + fmt::Debug + Send + Sync {
    /// Takes `n` permits and waits for them; see [`RateLimiter::acquire`].
    ///
    /// # Errors
    ///
    /// Those of the limiter's own `acquire`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and takes nothing, as [`RateLimiter::acquire`] says; over
    /// Redis, as the limiter's own `acquire` says.
    fn acquire(&self, n: C) -> AnyFuture<AnyGrant<C>>;

    /// Takes `n` permits if they are ready and the queue is empty; does not wait for permits.
    ///
    /// # Errors
    ///
    /// Those of the limiter's own `try_acquire`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    fn try_acquire(&self, n: C) -> AnyFuture<AnyGrant<C>>;

    /// Takes as many of `n` permits as are available now, and at least one; see
    /// [`RateLimiter::try_acquire_up_to`]. Over Redis it looks first and then takes what it saw, in two requests: if
    /// another process takes it in between, one permit.
    ///
    /// # Errors
    ///
    /// Those of `try_acquire` for one permit.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    fn try_acquire_up_to(&self, n: C) -> AnyFuture<AnyGrant<C>>;

    /// Takes `n` permits if they come within `timeout`, and fails at once if they cannot; see
    /// [`RateLimiter::try_acquire_timeout`].
    ///
    /// # Errors
    ///
    /// Those of the limiter's own `try_acquire_timeout`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    fn try_acquire_timeout(&self, n: C, timeout: Duration) -> AnyFuture<AnyGrant<C>>;

    /// Grants nothing for `duration`, counted from the first poll; see [`RateLimiter::pause_for`].
    ///
    /// # Errors
    ///
    /// None for a [`RateLimiter`]; [`Error::TooManyKeys`] at a key; `Error::Store` over Redis.
    ///
    /// # Cancel safety
    ///
    /// In process, the future is ready at the first poll. Over Redis a request that was sent may
    /// still take effect.
    fn pause_for(&self, duration: Duration) -> AnyFuture<()>;

    /// How much of the limit is left; see [`RateLimiter::quota`]. Over Redis this is a request of its own.
    ///
    /// # Errors
    ///
    /// None in process; `Error::Store` over Redis.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    fn quota(&self) -> AnyFuture<Quota<C>>;

    /// How much is left of each limit of the policy, for a request of `cost`. Over Redis this is one request.
    #[doc(hidden)]
    fn limits(&self, cost: C) -> AnyFuture<Vec<Limit<C>>>;

    /// Ends a pause; see [`RateLimiter::resume`].
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    ///
    /// # Cancel safety
    ///
    /// As [`pause_for`](Self::pause_for).
    fn resume(&self) -> AnyFuture<()>;

    /// Takes what is available beyond `remaining`; see [`RateLimiter::shrink_to`].
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    ///
    /// # Cancel safety
    ///
    /// As [`pause_for`](Self::pause_for).
    fn shrink_to(&self, remaining: C) -> AnyFuture<AnyGrant<C>>;

    /// The clock by which callers of this process wait.
    fn clock(&self) -> &Clock;

    /// The limiter's name, if its builder was given one.
    fn name(&self) -> Option<&str>;
}

/// Waits for `n`, at most `max_wait`.
#[cfg(any(feature = "feedback", feature = "tower"))]
pub(crate) fn acquire_within<C: Cost>(
    limiter: &dyn AnyRateLimiter<C>,
    n: C,
    max_wait: Option<Duration>,
) -> AnyFuture<AnyGrant<C>> {
    match max_wait {
        None => limiter.acquire(n),
        Some(Duration::ZERO) => limiter.try_acquire(n),
        Some(max_wait) => limiter.try_acquire_timeout(n, max_wait),
    }
}

mod sealed {
    /// Keeps [`AnyRateLimiter`](super::AnyRateLimiter) to this crate.
    pub trait Sealed {}
}

/// The future of a call of an [`AnyRateLimiter`].
///
/// ```
/// use tollgate::{AnyFuture, AnyGrant, AnyRateLimiter, InFlight, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter: Box<dyn AnyRateLimiter> = Box::new(RateLimiter::new(InFlight::new(2)));
/// let acquire: AnyFuture<AnyGrant> = limiter.acquire(2);
/// drop(limiter); // it is not borrowed
/// assert_eq!(acquire.await?.cost(), 2);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct AnyFuture<T>(Pin<Box<dyn Call<Output = Result<T, Error>> + Send>>);

/// A future that a caller may still change.
trait Call: Future {
    fn go_ahead_by(self: Pin<&mut Self>, ahead: Duration);
}

/// A call that takes no permits.
struct Plain<F>(Pin<Box<F>>);

impl<F: Future> Future for Plain<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<F: Future> Call for Plain<F> {
    fn go_ahead_by(self: Pin<&mut Self>, _: Duration) {}
}

/// The future of a limiter.
trait Acquiring: Future + Unpin {
    fn go_ahead_by(&mut self, ahead: Duration);
}

impl<P: Policy> Acquiring for Acquire<'static, P> {
    fn go_ahead_by(&mut self, ahead: Duration) {
        self.go_ahead_by(ahead);
    }
}

impl<K, P, S> Acquiring for KeyedAcquire<'static, K, P, K, S>
where
    K: Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn go_ahead_by(&mut self, ahead: Duration) {
        self.go_ahead_by(ahead);
    }
}

/// A call that takes permits, as an [`AnyGrant`].
struct Erased<F, C>(F, PhantomData<fn() -> C>);

impl<F, G, C> Future for Erased<F, C>
where
    F: Acquiring<Output = Result<G, Error>>,
    G: ErasedGrant<C> + 'static,
    C: Cost,
{
    type Output = Result<AnyGrant<C>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = std::task::ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(granted.map(|grant| AnyGrant(Box::new(grant))))
    }
}

impl<F, G, C> Call for Erased<F, C>
where
    F: Acquiring<Output = Result<G, Error>>,
    G: ErasedGrant<C> + 'static,
    C: Cost,
{
    fn go_ahead_by(mut self: Pin<&mut Self>, ahead: Duration) {
        self.0.go_ahead_by(ahead);
    }
}

impl<T> AnyFuture<T> {
    fn new(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Box::pin(Plain(Box::pin(future))))
    }
}

impl<C: Cost> AnyFuture<AnyGrant<C>> {
    fn of<G: ErasedGrant<C> + 'static>(
        acquire: impl Acquiring<Output = Result<G, Error>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(Erased(acquire, PhantomData)))
    }

    /// A call that has no place in a queue.
    fn at_once<G: ErasedGrant<C> + 'static>(
        taken: impl Future<Output = Result<G, Error>> + Send + 'static,
    ) -> Self {
        Self::new(async { Ok(AnyGrant(Box::new(taken.await?))) })
    }

    /// Enters the queue as if this caller had come `ahead` earlier; see [`Acquire::ahead_by`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{AnyRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let policy = SmoothBursty::new(Rate::per_second(10.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let batch: Vec<_> = (0..200).map(|_| limiter.reserve(1)).collect::<Result<_, _>>()?;
    /// let limiter: Box<dyn AnyRateLimiter> = Box::new(limiter);
    /// let urgent = limiter.acquire(1).ahead_by(Duration::from_secs(60)).await?;
    /// assert_eq!(urgent.waited().as_millis(), 100);
    /// # drop(batch); Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.0.as_mut().go_ahead_by(ahead);
        self
    }
}

impl<T> Future for AnyFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for AnyFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyFuture").finish_non_exhaustive()
    }
}

/// Permits granted by an [`AnyRateLimiter`]. It does not borrow the limiter.
///
/// Dropping it gives back places in flight ([`InFlight`](crate::InFlight)) and nothing else: keep it
/// as long as the call takes.
///
/// ```
/// use tollgate::{AnyRateLimiter, InFlight, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter: Box<dyn AnyRateLimiter> = Box::new(RateLimiter::new(InFlight::new(2)));
/// let grant = limiter.acquire(2).await?;
/// assert_eq!((grant.cost(), grant.waited().as_millis()), (2, 0));
/// assert!(limiter.try_acquire(1).await.is_err());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyGrant<C: Cost = u32>(Box<dyn ErasedGrant<C>>);

/// What can be asked of every grant.
trait ErasedGrant<C: Cost>: Send + Sync {
    fn cost(&self) -> C;
    fn waited(&self) -> Duration;
    fn limited_by(&self) -> Option<usize>;
    fn settle<'a>(&'a mut self, actual: C) -> Settle<'a>;
    fn refund(self: Box<Self>);
    fn settle_on_drop(&mut self, actual: C);
    #[cfg_attr(not(feature = "reqwest"), allow(dead_code))]
    fn holds_places(&self) -> bool;
}

type Settle<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

impl<C: Cost> AnyGrant<C> {
    /// The permits that were granted; after [`settle`](Self::settle) the corrected number.
    #[must_use]
    pub fn cost(&self) -> C {
        self.0.cost()
    }

    /// Whether dropping it gives places in flight back, or would under another policy of its limiter.
    #[cfg(feature = "reqwest")]
    pub(crate) fn holds_places(&self) -> bool {
        self.0.holds_places()
    }

    /// How long the call waited; see [`Grant::waited`].
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.waited()
    }

    /// The index of the rule that made the call wait; see [`Grant::limited_by`].
    #[must_use]
    pub fn limited_by(&self) -> Option<usize> {
        self.0.limited_by()
    }

    /// Corrects the cost once the true one is known; see [`Grant::settle`]. In process it is ready
    /// at the first poll.
    ///
    /// # Errors
    ///
    /// As [`Grant::settle`]; over Redis also `Error::Store`.
    ///
    /// # Cancel safety
    ///
    /// In process the future is ready at the first poll. Over Redis a request that was sent may
    /// still take effect.
    ///
    /// ```
    /// # use tollgate::{AnyRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let limiter: Box<dyn AnyRateLimiter> = Box::new(limiter);
    /// limiter.acquire(10).await?.settle(12).await?;
    /// assert_eq!(limiter.acquire(1).await?.waited().as_millis(), 2400);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn settle(&mut self, actual: C) -> Result<(), Error> {
        self.0.settle(actual).await
    }

    /// Gives the permits back; see [`Grant::refund`].
    ///
    /// ```
    /// # use tollgate::{AnyRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let limiter: Box<dyn AnyRateLimiter> = Box::new(limiter);
    /// limiter.acquire(10).await?.refund();
    /// assert_eq!(limiter.acquire(1).await?.waited().as_millis(), 0);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund(self) {
        self.0.refund();
    }

    /// The grant, settled when it is dropped: see [`Grant::metered`].
    ///
    /// ```
    /// # use tollgate::{AnyRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let limiter: Box<dyn AnyRateLimiter> = Box::new(limiter);
    /// let mut call = limiter.acquire(10).await?.metered();
    /// call.add(3);
    /// drop(call);
    /// assert_eq!(limiter.acquire(1).await?.waited().as_millis(), 600);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Metered::new(self)
    }
}

impl<C: Cost> sealed_grant::Sealed for AnyGrant<C> {}

impl<C: Cost> SettleOnDrop for AnyGrant<C> {
    type Cost = C;

    fn granted(&self) -> C {
        self.cost()
    }

    fn settle_on_drop(&mut self, actual: C) {
        self.0.settle_on_drop(actual);
    }
}

impl<C: Cost> fmt::Debug for AnyGrant<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyGrant")
            .field("cost", &self.cost())
            .field("waited", &self.waited())
            .finish()
    }
}

impl<P: Policy> ErasedGrant<P::Cost> for Grant<'static, P> {
    fn cost(&self) -> P::Cost {
        self.cost()
    }

    fn waited(&self) -> Duration {
        self.waited()
    }

    fn limited_by(&self) -> Option<usize> {
        self.limited_by()
    }

    fn settle<'a>(&'a mut self, actual: P::Cost) -> Settle<'a> {
        Box::pin(async move { self.settle(actual) })
    }

    fn refund(self: Box<Self>) {
        (*self).refund();
    }

    fn settle_on_drop(&mut self, actual: P::Cost) {
        SettleOnDrop::settle_on_drop(self, actual);
    }

    fn holds_places(&self) -> bool {
        P::HELD
    }
}

impl<P: Policy + fmt::Debug> sealed::Sealed for RateLimiter<P> {}

impl<P: Policy + fmt::Debug> AnyRateLimiter<P::Cost> for RateLimiter<P> {
    fn acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_owned(n))
    }

    fn try_acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_owned_within(n, Duration::ZERO))
    }

    fn try_acquire_up_to(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        let limiter = self.clone();
        AnyFuture::at_once(async move { Ok(limiter.try_acquire_up_to(n)?.into_owned()) })
    }

    fn try_acquire_timeout(&self, n: P::Cost, timeout: Duration) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_owned_within(n, timeout))
    }

    fn pause_for(&self, duration: Duration) -> AnyFuture<()> {
        let limiter = self.clone();
        AnyFuture::new(async move {
            limiter.pause_for(duration);
            Ok(())
        })
    }

    fn quota(&self) -> AnyFuture<Quota<P::Cost>> {
        let limiter = self.clone();
        AnyFuture::new(async move { Ok(limiter.quota()) })
    }

    fn limits(&self, cost: P::Cost) -> AnyFuture<Vec<Limit<P::Cost>>> {
        let limiter = self.clone();
        AnyFuture::new(async move { Ok(limiter.limits(cost)) })
    }

    fn resume(&self) -> AnyFuture<()> {
        let limiter = self.clone();
        AnyFuture::new(async move {
            limiter.resume();
            Ok(())
        })
    }

    fn shrink_to(&self, remaining: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        let limiter = self.clone();
        AnyFuture::at_once(async move { Ok(limiter.shrink_to(remaining).into_owned()) })
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn name(&self) -> Option<&str> {
        self.name()
    }
}

impl<K, P: Policy, S> sealed::Sealed for AtKey<K, P, S> {}

impl<K, P, S> AnyRateLimiter<P::Cost> for AtKey<K, P, S>
where
    K: Clone + fmt::Debug + Hash + Eq + Send + Sync + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_within(n, None))
    }

    fn try_acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_within(n, Some(Duration::ZERO)))
    }

    fn try_acquire_up_to(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::at_once(async move { limiter.try_acquire_up_to(&key, n) })
    }

    fn try_acquire_timeout(&self, n: P::Cost, timeout: Duration) -> AnyFuture<AnyGrant<P::Cost>> {
        AnyFuture::of(self.acquire_within(n, Some(timeout)))
    }

    fn pause_for(&self, duration: Duration) -> AnyFuture<()> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::new(async move { limiter.pause_for(&key, duration) })
    }

    fn quota(&self) -> AnyFuture<Quota<P::Cost>> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::new(async move { Ok(limiter.quota(&key)) })
    }

    fn limits(&self, cost: P::Cost) -> AnyFuture<Vec<Limit<P::Cost>>> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::new(async move { Ok(limiter.limits(&key, cost)) })
    }

    fn resume(&self) -> AnyFuture<()> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::new(async move { limiter.resume(&key) })
    }

    fn shrink_to(&self, remaining: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
        let (limiter, key) = (self.limiter().clone(), self.key().clone());
        AnyFuture::at_once(async move { limiter.shrink_to(&key, remaining) })
    }

    fn clock(&self) -> &Clock {
        self.limiter().clock()
    }

    fn name(&self) -> Option<&str> {
        self.limiter().name()
    }
}

impl<K, P, S> AtKey<K, P, S>
where
    K: Clone + Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn acquire_within(
        &self,
        n: P::Cost,
        max_wait: Option<Duration>,
    ) -> KeyedAcquire<'static, K, P, K, S> {
        self.limiter().acquire_within(self.key().clone(), n, max_wait)
    }
}

impl<L: ?Sized> sealed::Sealed for Arc<L> {}

impl<C: Cost, L: AnyRateLimiter<C> + ?Sized> AnyRateLimiter<C> for Arc<L> {
    fn acquire(&self, n: C) -> AnyFuture<AnyGrant<C>> {
        (**self).acquire(n)
    }

    fn try_acquire(&self, n: C) -> AnyFuture<AnyGrant<C>> {
        (**self).try_acquire(n)
    }

    fn try_acquire_up_to(&self, n: C) -> AnyFuture<AnyGrant<C>> {
        (**self).try_acquire_up_to(n)
    }

    fn try_acquire_timeout(&self, n: C, timeout: Duration) -> AnyFuture<AnyGrant<C>> {
        (**self).try_acquire_timeout(n, timeout)
    }

    fn pause_for(&self, duration: Duration) -> AnyFuture<()> {
        (**self).pause_for(duration)
    }

    fn quota(&self) -> AnyFuture<Quota<C>> {
        (**self).quota()
    }

    fn limits(&self, cost: C) -> AnyFuture<Vec<Limit<C>>> {
        (**self).limits(cost)
    }

    fn resume(&self) -> AnyFuture<()> {
        (**self).resume()
    }

    fn shrink_to(&self, remaining: C) -> AnyFuture<AnyGrant<C>> {
        (**self).shrink_to(remaining)
    }

    fn clock(&self) -> &Clock {
        (**self).clock()
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::fmt;
    use std::time::Duration;

    use super::{Acquiring, AnyFuture, AnyGrant, AnyRateLimiter, ErasedGrant, Settle, sealed};
    use crate::clock::Clock;
    use crate::limiter::SettleOnDrop;
    use crate::policy::{Limit, Quota};
    use crate::redis::{Connection, RedisAcquire, RedisGrant, RedisRateLimiter, Scripted};

    impl<P: Scripted, C: Connection> Acquiring for RedisAcquire<P, C> {
        fn go_ahead_by(&mut self, ahead: Duration) {
            self.go_ahead_by(ahead);
        }
    }

    impl<P: Scripted, C: Connection> ErasedGrant<P::Cost> for RedisGrant<P, C> {
        fn cost(&self) -> P::Cost {
            self.cost()
        }

        fn waited(&self) -> Duration {
            self.waited()
        }

        fn limited_by(&self) -> Option<usize> {
            self.limited_by()
        }

        fn settle<'a>(&'a mut self, actual: P::Cost) -> Settle<'a> {
            Box::pin(self.settle(actual))
        }

        fn refund(self: Box<Self>) {
            (*self).refund();
        }

        fn settle_on_drop(&mut self, actual: P::Cost) {
            SettleOnDrop::settle_on_drop(self, actual);
        }

        fn holds_places(&self) -> bool {
            P::HELD
        }
    }

    impl<P: Scripted + fmt::Debug, C: Connection> sealed::Sealed for RedisRateLimiter<P, C> {}

    impl<P: Scripted + fmt::Debug, C: Connection> AnyRateLimiter<P::Cost> for RedisRateLimiter<P, C> {
        fn acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
            AnyFuture::of(self.acquire(n))
        }

        fn try_acquire(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
            AnyFuture::of(self.try_acquire(n))
        }

        fn try_acquire_up_to(&self, n: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
            let limiter = self.clone();
            AnyFuture::at_once(async move { limiter.try_acquire_up_to(n).await })
        }

        fn try_acquire_timeout(
            &self,
            n: P::Cost,
            timeout: Duration,
        ) -> AnyFuture<AnyGrant<P::Cost>> {
            AnyFuture::of(self.try_acquire_timeout(n, timeout))
        }

        fn pause_for(&self, duration: Duration) -> AnyFuture<()> {
            let limiter = self.clone();
            AnyFuture::new(async move { limiter.pause_for(duration).await })
        }

        fn quota(&self) -> AnyFuture<Quota<P::Cost>> {
            let limiter = self.clone();
            AnyFuture::new(async move { limiter.quota().await })
        }

        fn limits(&self, cost: P::Cost) -> AnyFuture<Vec<Limit<P::Cost>>> {
            let limiter = self.clone();
            AnyFuture::new(async move { limiter.limits(cost).await })
        }

        fn resume(&self) -> AnyFuture<()> {
            let limiter = self.clone();
            AnyFuture::new(async move { limiter.resume().await })
        }

        fn shrink_to(&self, remaining: P::Cost) -> AnyFuture<AnyGrant<P::Cost>> {
            let limiter = self.clone();
            AnyFuture::at_once(async move { limiter.shrink_to(remaining).await })
        }

        fn clock(&self) -> &Clock {
            self.clock()
        }

        fn name(&self) -> Option<&str> {
            self.name()
        }
    }
}
