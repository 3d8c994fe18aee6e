//! The future of every limiter, the reservation, and what a limiter does for both: [`Queue`], or [`Around`] for a limiter
//! around others, whose callers pass several queues, one after the other, and continue when they are polled.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::sealed::Sealed;
use super::{Ask, Granted};
use crate::error::Error;
use crate::park::block_on;
use crate::policy::Cost;
use crate::wait_queue::Tenant;

/// What the callers of a [`Limiter`](crate::Limiter) ask for and get: how a future polls its limiter, whose waiters are in a
/// `WaitQueue`. The trait is sealed.
pub trait Queue: Sealed + Sized {
    /// The cost of a call: permits, unless the policy is a tuple.
    type Cost: Cost;

    /// The permits that a call gets.
    type Grant: Granted<Cost = Self::Cost>;

    /// A caller's place.
    #[doc(hidden)]
    type Place: Default + Send + Sync;

    /// The limiter of a reservation, without a borrow.
    #[doc(hidden)]
    type Owned: Queue<Cost = Self::Cost> + Send + Sync + 'static;

    /// Waits for the grant.
    #[doc(hidden)]
    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<Self::Cost>,
        place: &mut Self::Place,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Grant, Error>>;

    /// Joins the queue, and waits only until the place is known.
    #[doc(hidden)]
    fn poll_enter(
        limiter: &Self,
        ask: &Ask<Self::Cost>,
        place: &mut Self::Place,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>>;

    /// The future is dropped: the caller leaves, or has its grant. Not needed if the place itself leaves when it is dropped.
    #[doc(hidden)]
    fn leave(_limiter: &Self, _ask: &Ask<Self::Cost>, _place: &mut Self::Place) {}

    /// The time until the grant of a caller that has entered.
    #[doc(hidden)]
    fn delay(limiter: &Self, place: &Self::Place) -> Duration;

    /// A caller that has entered, without a borrow.
    #[doc(hidden)]
    fn into_owned(
        limiter: &Self,
        ask: &Ask<Self::Cost>,
        place: Self::Place,
    ) -> Acquire<Self::Owned>;
}

/// A limiter around others: its callers wait at these.
pub trait Around: Sealed + Clone + Send + Sync + 'static {
    /// See [`Queue::Cost`].
    type Cost: Cost;

    /// See [`Queue::Grant`].
    type Grant: Granted<Cost = Self::Cost> + 'static;

    #[doc(hidden)]
    type Caller: Stages<Self::Grant>;

    /// A caller that has not asked yet.
    #[doc(hidden)]
    fn caller(&self, ask: &Ask<Self::Cost>) -> Self::Caller;
}

/// A caller on its way through several queues.
pub trait Stages<G>: Send + Sync + 'static {
    /// As [`Queue::poll_acquire`].
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<G, Error>>;

    /// As [`Queue::poll_enter`].
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// As [`Queue::delay`].
    fn delay(&self) -> Duration;
}

impl<L: Around> Queue for L {
    type Cost = L::Cost;
    type Grant = L::Grant;
    /// Not in a box, which would be an allocation for each call.
    type Place = Option<L::Caller>;
    type Owned = L;

    #[inline]
    fn poll_acquire(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut Option<L::Caller>,
        context: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, Error>> {
        place.get_or_insert_with(|| limiter.caller(ask)).poll(context)
    }

    fn poll_enter(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut Option<L::Caller>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        place.get_or_insert_with(|| limiter.caller(ask)).poll_enter(context)
    }

    fn delay(_: &L, place: &Option<L::Caller>) -> Duration {
        place.as_ref().map_or(Duration::ZERO, Stages::delay)
    }

    fn into_owned(limiter: &L, ask: &Ask<L::Cost>, place: Option<L::Caller>) -> Acquire<L> {
        Acquire::at(limiter.clone(), *ask, place)
    }
}

/// A future that waits for a grant of any [`Limiter`](crate::Limiter), returned by [`acquire`](crate::RateLimiter::acquire) and
/// [`try_acquire_timeout`](crate::RateLimiter::try_acquire_timeout).
///
/// # Cancel safety
///
/// Dropping it leaves the queue; see [`acquire`](crate::RateLimiter::acquire).
///
/// # Panics
///
/// If it is polled again after it returned `Poll::Ready`.
///
/// ```
/// use tollgate::{Acquire, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let acquire: Acquire<&RateLimiter<SmoothBursty>> = limiter.acquire(1);
/// let grant = acquire.await?;
/// # drop(grant); Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<L: Queue> {
    limiter: L,
    ask: Ask<L::Cost>,
    place: L::Place,
}

// No field is ever pinned.
impl<L: Queue> Unpin for Acquire<L> {}

impl<L: Queue> Acquire<L> {
    #[inline]
    pub(crate) fn new(limiter: L, ask: Ask<L::Cost>) -> Self {
        Self::at(limiter, ask, L::Place::default())
    }

    /// A caller that has entered.
    #[inline]
    pub(crate) fn at(limiter: L, ask: Ask<L::Cost>, place: L::Place) -> Self {
        Self { limiter, ask, place }
    }

    /// Enters the queue as if this caller had arrived `ahead` earlier: for interactive callers beside a batch.
    ///
    /// **No waiter starves**: only callers that arrive less than `ahead` after a waiter overtake it. So it waits at most
    /// `ahead` longer than in a FIFO queue, as long as such callers alone do not exceed the rate. Callers with the same
    /// `ahead` stay in FIFO order. Choose `ahead` longer than a batch may have waited; more than the
    /// [horizon](crate::Nanos::HORIZON) counts as the horizon.
    ///
    /// A call that does not wait (a timeout of zero) is granted if it goes ahead of all waiters and its permits are ready.
    /// **Overtaken waiters wait longer** than was predicted: the [delay](crate::Reservation::delay) of a reservation grows, and
    /// a waiter with a timeout may be refused at its deadline.
    ///
    /// It replaces a [tenant](Self::for_tenant), and goes ahead of callers without a tenant only. No effect once the future has
    /// been polled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(10.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// // 200 batch tasks, one of which is granted at once.
    /// let batch: Vec<_> = (0..200).map(|_| limiter.reserve(1)).collect::<Result<_, _>>()?;
    /// assert_eq!(batch[199].delay().as_millis(), 19_900);
    ///
    /// let urgent = limiter.acquire(1).ahead_by(Duration::from_secs(60)).blocking_wait()?;
    /// assert_eq!(urgent.waited().as_millis(), 100);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        (self.ask.ahead, self.ask.tenant) = (ahead, None);
        self
    }

    /// Waits in the turn of `tenant`: the form of [`acquire_for`](crate::RateLimiter::acquire_for) for the other methods.
    ///
    /// A limiter over Redis has no turns: this caller queues in the order of arrival.
    ///
    /// It replaces an [`ahead_by`](Self::ahead_by), and has no effect once the future has been polled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty, block_on};
    /// # let policy = SmoothBursty::new(Rate::per_second(10.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(1)?;
    /// let batch: Vec<_> =
    ///     (0..100).map(|_| block_on(limiter.acquire_for("ann", 1).reserve())).collect::<Result<_, _>>()?;
    /// let second = Duration::from_secs(1);
    /// assert!(limiter.try_acquire_timeout(1, second).for_tenant("ann").blocking_wait().is_err());
    /// let grant = limiter.try_acquire_timeout(1, second).for_tenant("bob").blocking_wait()?;
    /// assert_eq!(grant.waited().as_millis(), 200);
    /// # drop(batch); Ok::<(), tollgate::Error>(())
    /// ```
    pub fn for_tenant<T: Hash + ?Sized>(mut self, name: &T) -> Self {
        (self.ask.ahead, self.ask.tenant) = (Duration::ZERO, Some(Tenant::new(name)));
        self
    }

    /// The weight of a call for a [tenant](Self::for_tenant): `n` permits count as `n / weight` against its share. So a
    /// tenant whose calls have a weight of 3 gets three times the permits of one with the default, 1, while both
    /// wait.
    ///
    /// No effect on calls without a tenant.
    ///
    /// # Panics
    ///
    /// If the weight is zero.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty, block_on};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::new();
    /// # let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(10.0)), &clock);
    /// limiter.try_acquire(1)?;
    /// for _ in 0..100 {
    ///     std::mem::forget(block_on(limiter.acquire_for("free", 1).reserve())?);
    ///     std::mem::forget(block_on(limiter.acquire_for("paying", 1).weight(3).reserve())?);
    /// }
    /// clock.advance(Duration::from_secs(4));
    /// assert_eq!((limiter.queue_len_for("free"), limiter.queue_len_for("paying")), (90, 70));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[track_caller]
    pub fn weight(mut self, weight: u32) -> Self {
        let weight = NonZeroU32::new(weight).expect("a weight must not be zero");
        if let Some(tenant) = &mut self.ask.tenant {
            tenant.weight = weight;
        }
        self
    }

    /// Waits on this thread, as [`blocking_acquire`](crate::RateLimiter::blocking_acquire) does.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    #[inline]
    pub fn blocking_wait(self) -> Result<L::Grant, Error> {
        block_on(self)
    }

    /// Joins the queue without waiting for the grant. In process it is ready at the first poll; over Redis when a
    /// reply says how long the wait is. A call with a timeout keeps its place until its deadline.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(1)?;
    /// let batch = limiter.reserve(1)?;
    /// let urgent = limiter.acquire(1).ahead_by(Duration::from_secs(60)).reserve().await?;
    /// assert_eq!((urgent.delay().as_millis(), batch.delay().as_millis()), (200, 400));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn reserve(mut self) -> Result<Reservation<L::Owned>, Error> {
        poll_fn(|context| self.poll_enter(context)).await?;
        Ok(self.into_reservation())
    }

    /// As [`reserve`](Self::reserve), in process.
    pub(crate) fn reserve_now(mut self) -> Result<Reservation<L::Owned>, Error> {
        let entered = self.poll_enter(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(entered) = entered else { unreachable!("a place in process is known") };
        entered?;
        Ok(self.into_reservation())
    }

    pub(crate) fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        L::poll_enter(&self.limiter, &self.ask, &mut self.place, context)
    }

    /// The caller that has entered, without a borrow of the limiter.
    fn into_reservation(mut self) -> Reservation<L::Owned> {
        let place = std::mem::take(&mut self.place);
        Reservation { acquire: L::into_owned(&self.limiter, &self.ask, place) }
    }

    pub(crate) fn delay(&self) -> Duration {
        L::delay(&self.limiter, &self.place)
    }
}

impl<L: Queue> Future for Acquire<L> {
    type Output = Result<L::Grant, Error>;

    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, ask, place } = self.get_mut();
        L::poll_acquire(limiter, ask, place, context)
    }
}

impl<L: Queue> Drop for Acquire<L> {
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        L::leave(&self.limiter, &self.ask, &mut self.place);
    }
}

impl<L: Queue> fmt::Debug for Acquire<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("cost", &self.ask.cost).finish_non_exhaustive()
    }
}

/// A place in the queue; see [`reserve`](crate::RateLimiter::reserve).
///
/// It is granted in its turn, whether it is awaited or not. Dropping it leaves the queue or, once it is
/// granted, gives the permits back as [`Grant::refund`](crate::Grant::refund) does.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// limiter.try_acquire(1)?;
/// let reservation = limiter.reserve(1)?;
/// assert_eq!(reservation.delay().as_millis(), 200);
/// assert_eq!(reservation.blocking_wait()?.waited().as_millis(), 200);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use = "a reservation that is dropped gives its place up"]
pub struct Reservation<L: Queue> {
    acquire: Acquire<L>,
}

impl<L: Queue> Reservation<L> {
    /// The time until the grant, as far as is known now. It becomes shorter if waiters ahead leave, and longer
    /// after a pause, at a lower rate, or if callers enter [ahead](Acquire::ahead_by) of it. Zero if the reservation is granted. With
    /// several queues it is the time in the present one.
    ///
    /// This method visits the waiters ahead one by one.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.acquire.delay()
    }

    /// Waits for the grant.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if the policy was changed and cannot grant it any more; [`Error::Denied`] if
    /// the call had a timeout that is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place, like dropping the reservation.
    pub fn wait(self) -> Acquire<L> {
        self.acquire
    }

    /// Waits for the grant on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if the policy was changed and cannot grant it any more, [`Error::Closed`] if the limiter was
    /// closed.
    pub fn blocking_wait(self) -> Result<L::Grant, Error> {
        block_on(self.acquire)
    }
}

impl<L: Queue> fmt::Debug for Reservation<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("delay", &self.delay()).finish()
    }
}
