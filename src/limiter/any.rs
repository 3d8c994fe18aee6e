//! A limiter without its type.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Acquire, Ask, Granted, Handle, Limiter, OwnedLimiter, Queue, sealed};
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::part::Part;
use crate::policy::{Cost, Limit, Quota};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

/// Any [`Limiter`], without its type: for a struct field, a table of limits, or middleware.
///
/// `C` is the cost of a call: permits, unless the policy is a tuple, whose limiter is an
/// `AnyRateLimiter<(u32, u32)>`. It is a handle: clones share the limiter.
///
/// Each call allocates its future, and its grant; a program that knows its policy calls the limiter itself. A
/// policy of your own must be [`Debug`](fmt::Debug), so that a struct with a limiter can be.
///
/// A policy cannot be set here, as its type is not known: keep the limiter itself for that.
///
/// ```
/// use std::collections::HashMap;
/// use std::time::Duration;
/// use tollgate::{AnyRateLimiter, InFlight, Limiter, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let search = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
/// let uploads = RateLimiter::with_clock(InFlight::new(2), &clock);
/// let mut limits: HashMap<&str, AnyRateLimiter> = HashMap::new();
/// limits.insert("search", AnyRateLimiter::new(search));
/// limits.insert("uploads", AnyRateLimiter::new(uploads));
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
pub struct AnyRateLimiter<C: Cost = u32>(Arc<dyn Erased<C>>);

impl<C: Cost> AnyRateLimiter<C> {
    /// The limiter without its type. Of an `AnyRateLimiter` this is a clone.
    #[must_use]
    pub fn new(limiter: impl OwnedLimiter<Cost = C>) -> Self {
        match (&limiter as &dyn Any).downcast_ref::<Self>() {
            Some(any) => any.clone(),
            None => Self(Arc::new(limiter)),
        }
    }
}

impl<C: Cost> Clone for AnyRateLimiter<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Cost> fmt::Debug for AnyRateLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What is asked of a limiter without its type.
trait Erased<C: Cost>: fmt::Debug + Send + Sync {
    fn caller(&self, ask: &Ask<C>) -> Box<dyn Caller<C>>;
    fn pause_for(&self, duration: Duration) -> Answer<'_, ()>;
    fn resume(&self) -> Answer<'_, ()>;
    fn reset(&self) -> Answer<'_, ()>;
    fn shrink_to(&self, remaining: C) -> Answer<'_, AnyGrant<C>>;
    fn would_wait(&self, n: C) -> Answer<'_, Option<Duration>>;
    fn quota(&self) -> Answer<'_, Quota<C>>;
    fn limits(&self, cost: C) -> Answer<'_, Vec<Limit<C>>>;
    fn end(&self, end: End<'_>) -> bool;
    fn queue_len(&self) -> usize;
    fn queued_permits(&self) -> u64;
    fn stats(&self) -> Stats;
    fn waits(&self) -> Waits;
    fn clock(&self) -> &Clock;
    fn name(&self) -> Option<&str>;
    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe;
}

/// A caller of a limiter without its type.
trait Caller<C: Cost>: fmt::Debug + Send + Sync {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<AnyGrant<C>, Error>>;
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>;
    fn delay(&self) -> Duration;
}

impl<L: OwnedLimiter> Caller<L::Cost> for Acquire<L> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<AnyGrant<L::Cost>, Error>> {
        Pin::new(self).poll(context).map_ok(AnyGrant::new)
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_enter(context)
    }

    fn delay(&self) -> Duration {
        self.delay()
    }
}

/// Where a caller of a limiter without its type stands: dropping it leaves the queue.
#[derive(Debug)]
pub struct AnyPlace<C: Cost>(Option<Box<dyn Caller<C>>>);

impl<C: Cost> Default for AnyPlace<C> {
    fn default() -> Self {
        Self(None)
    }
}

impl<L: OwnedLimiter> Erased<L::Cost> for L {
    fn caller(&self, ask: &Ask<L::Cost>) -> Box<dyn Caller<L::Cost>> {
        Box::new(Acquire::new(self.clone(), *ask))
    }

    fn pause_for(&self, duration: Duration) -> Answer<'_, ()> {
        Box::pin(Limiter::pause_for(self, duration))
    }

    fn resume(&self) -> Answer<'_, ()> {
        Box::pin(Limiter::resume(self))
    }

    fn reset(&self) -> Answer<'_, ()> {
        Box::pin(Limiter::reset(self))
    }

    fn shrink_to(&self, remaining: L::Cost) -> Answer<'_, AnyGrant<L::Cost>> {
        Box::pin(async move { Limiter::shrink_to(self, remaining).await.map(AnyGrant::new) })
    }

    fn would_wait(&self, n: L::Cost) -> Answer<'_, Option<Duration>> {
        Box::pin(Limiter::would_wait(self, n))
    }

    fn quota(&self) -> Answer<'_, Quota<L::Cost>> {
        Box::pin(Limiter::quota(self))
    }

    fn limits(&self, cost: L::Cost) -> Answer<'_, Vec<Limit<L::Cost>>> {
        Box::pin(Limiter::limits(self, cost))
    }

    fn end(&self, end: End<'_>) -> bool {
        Limiter::end(self, end)
    }

    fn queue_len(&self) -> usize {
        Limiter::queue_len(self)
    }

    fn queued_permits(&self) -> u64 {
        Limiter::queued_permits(self)
    }

    fn stats(&self) -> Stats {
        Limiter::stats(self)
    }

    fn waits(&self) -> Waits {
        Limiter::waits(self)
    }

    fn clock(&self) -> &Clock {
        Limiter::clock(self)
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        Limiter::observe(self)
    }

    fn name(&self) -> Option<&str> {
        Limiter::name(self)
    }
}

impl<C: Cost> sealed::Sealed for AnyRateLimiter<C> {}

impl<C: Cost> Queue for AnyRateLimiter<C> {
    type Cost = C;
    type Grant = AnyGrant<C>;
    type Handle = Option<Self>;
    type Place = AnyPlace<C>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<C>,
        place: &mut AnyPlace<C>,
        context: &mut Context<'_>,
    ) -> Poll<Result<AnyGrant<C>, Error>> {
        place.0.get_or_insert_with(|| limiter.get().0.caller(ask)).poll(context)
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<C>,
        place: &mut AnyPlace<C>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        place.0.get_or_insert_with(|| limiter.get().0.caller(ask)).poll_enter(context)
    }

    fn leave(_: &Self::Handle, _: &Ask<C>, place: &mut AnyPlace<C>) {
        place.0 = None;
    }

    fn delay(_: &Self::Handle, place: &AnyPlace<C>) -> Duration {
        place.0.as_ref().map_or(Duration::ZERO, |caller| caller.delay())
    }

    fn into_owned(limiter: &mut Self::Handle, place: AnyPlace<C>) -> (Self, AnyPlace<C>) {
        (Handle::take(limiter), place)
    }
}

impl<C: Cost> Limiter for AnyRateLimiter<C> {
    const IS_REMOTE: bool = true;

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.0.pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        self.0.resume().await
    }

    async fn reset(&self) -> Result<(), Error> {
        self.0.reset().await
    }

    async fn shrink_to(&self, remaining: C) -> Result<AnyGrant<C>, Error> {
        self.0.shrink_to(remaining).await
    }

    async fn would_wait(&self, n: C) -> Result<Option<Duration>, Error> {
        self.0.would_wait(n).await
    }

    async fn quota(&self) -> Result<Quota<C>, Error> {
        self.0.quota().await
    }

    async fn limits(&self, cost: C) -> Result<Vec<Limit<C>>, Error> {
        self.0.limits(cost).await
    }

    fn end(&self, end: End<'_>) -> bool {
        self.0.end(end)
    }

    fn queue_len(&self) -> usize {
        self.0.queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.0.queued_permits()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn waits(&self) -> Waits {
        self.0.waits()
    }

    fn clock(&self) -> &Clock {
        self.0.clock()
    }

    fn name(&self) -> Option<&str> {
        self.0.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        self.0.observe()
    }
}

/// Permits granted by an [`AnyRateLimiter`]. It does not borrow the limiter.
///
/// Dropping it gives back places in flight ([`InFlight`](crate::InFlight)) and nothing else: keep it
/// as long as the call takes.
///
/// ```
/// use tollgate::{AnyRateLimiter, InFlight, Limiter, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = AnyRateLimiter::new(RateLimiter::new(InFlight::new(2)));
/// let grant = limiter.acquire(2).await?;
/// assert_eq!((grant.cost(), grant.waited().as_millis()), (2, 0));
/// assert!(limiter.try_acquire(1).await.is_err());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyGrant<C: Cost = u32>(Box<dyn Granted<Cost = C>>);

impl<C: Cost> AnyGrant<C> {
    crate::limiter::methods_of_granted!();

    pub(crate) fn new(grant: impl Granted<Cost = C> + 'static) -> Self {
        Self(Box::new(grant))
    }
}

impl<C: Cost> sealed::Sealed for AnyGrant<C> {}

impl<C: Cost> Granted for AnyGrant<C> {
    type Cost = C;

    fn cost(&self) -> C {
        self.0.cost()
    }

    fn waited(&self) -> Duration {
        self.0.waited()
    }

    fn limited_by(&self) -> Option<Part> {
        self.0.limited_by()
    }

    fn send_settlement(&mut self, actual: C) -> Result<(), Error> {
        self.0.send_settlement(actual)
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_settled(context)
    }

    fn settle_on_drop(&mut self, actual: C) {
        self.0.settle_on_drop(actual);
    }

    fn give_back(&mut self) {
        self.0.give_back();
    }

    fn holds_places(&self) -> bool {
        self.0.holds_places()
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn hear(&mut self, status: http::StatusCode, headers: &http::HeaderMap) -> super::Hearing {
        self.0.hear(status, headers)
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn hear_failure(&mut self) {
        self.0.hear_failure();
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn hears_body(&self) -> bool {
        self.0.hears_body()
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn hear_body(&mut self, trailers: Option<&http::HeaderMap>) {
        self.0.hear_body(trailers);
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
