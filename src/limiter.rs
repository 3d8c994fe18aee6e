//! The trait of all limiters. A limiter implements [`Queue`]; the methods, the future, the reservation and
//! [`AnyRateLimiter`](any::AnyRateLimiter) are built on it.

mod acquire;
pub(crate) mod and;
pub(crate) mod any;
mod granted;
mod methods;
pub(crate) mod sealed;
#[cfg(feature = "stream")]
mod throttle;

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::task::Poll;
use std::time::Duration;

pub use acquire::{Acquire, Queue, Reservation};
pub(crate) use acquire::{Around, Stages};
use and::And;
pub use granted::{Granted, Metered};
#[cfg(any(feature = "feedback", feature = "tower"))]
pub(crate) use granted::{Hearing, Reply, both};
pub(crate) use methods::forward;
#[cfg(any(feature = "feedback", feature = "redis"))]
pub(crate) use methods::methods_of_limiter;

use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Quota};
use crate::stats::Stats;
pub(crate) use crate::wait_queue::Ask;
use crate::wait_queue::End;

/// Any limiter: a [`RateLimiter`](crate::RateLimiter), one [key](crate::AtKey) of a
/// [`KeyedRateLimiter`](crate::KeyedRateLimiter), and, with their features, a `RedisRateLimiter` and a `Feedback` around
/// any of them.
///
/// A function over `impl Limiter` takes any of them; an [`AnyRateLimiter`](crate::AnyRateLimiter) is one type for them all. A
/// limiter is a handle: clones share one quota and one queue.
///
/// These methods return futures, because a shared limiter asks a server. In process they are ready at the first
/// poll, unless they wait for a grant. Most limiters have the same methods without the trait.
///
/// [Which limiter can do what](crate::guide::abilities) is in the guide. The trait is sealed: methods may be added.
///
/// ```
/// use tollgate::{AnyRateLimiter, Error, InFlight, KeyedRateLimiter, Limiter, RateLimiter};
///
/// async fn fetch(limiter: impl Limiter<Cost = u32>) -> Result<(), Error> {
///     let _place = limiter.acquire(1).await?;
///     Ok(())
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// fetch(RateLimiter::new(InFlight::new(2))).await?;
/// fetch(KeyedRateLimiter::new(InFlight::new(2)).at("alice").into_owned()).await?;
/// fetch(AnyRateLimiter::new(RateLimiter::new(InFlight::new(2)))).await?;
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "not a limiter",
    note = "limiters are handles: pass a `RateLimiter` or its clone, one key of a `KeyedRateLimiter` by `at(&key).into_owned()`, \
            or an `AnyRateLimiter`"
)]
pub trait Limiter: Queue + Clone + fmt::Debug + Send + Sync {
    /// Takes `n` permits, and waits until they are granted; see [`RateLimiter::acquire`](crate::RateLimiter::acquire).
    ///
    /// The future joins the queue when it is first polled, and does not borrow the limiter.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help, [`Error::QueueFull`] if the queue is bounded,
    /// [`Error::Closed`] once the limiter is closed, [`Error::TooManyKeys`] at a key, and `Error::Store` over Redis.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue and takes nothing.
    fn acquire(&self, n: Self::Cost) -> Acquire<Self> {
        Acquire::new(self.clone(), Ask::new(n, None))
    }

    /// As [`acquire`](Self::acquire), in the turn of one of many tenants that share the limiter; see
    /// [`RateLimiter::acquire_for`](crate::RateLimiter::acquire_for). Over Redis tenants do not take turns: the caller
    /// queues in the order of arrival.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). So is the cancel safety.
    fn acquire_for<T: Hash + ?Sized>(&self, tenant: &T, n: Self::Cost) -> Acquire<Self> {
        self.acquire(n).for_tenant(tenant)
    }

    /// Takes `n` permits if they are ready and the queue is empty; does not wait for permits.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`], with the time after which a retry makes sense, and the errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    fn try_acquire(&self, n: Self::Cost) -> Acquire<Self> {
        Acquire::new(self.clone(), Ask::new(n, Some(Duration::ZERO)))
    }

    /// Takes `n` permits if they come within `timeout`, and fails **at once** if they cannot.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    fn try_acquire_timeout(&self, n: Self::Cost, timeout: Duration) -> Acquire<Self> {
        Acquire::new(self.clone(), Ask::new(n, Some(timeout)))
    }

    /// Joins the queue without waiting for the grant; over Redis it waits until a reply says how long the wait is.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). So is the cancel safety.
    fn reserve(
        &self,
        n: Self::Cost,
    ) -> impl Future<Output = Result<Reservation<Self::Owned>, Error>> + Send {
        self.acquire(n).reserve()
    }

    /// As [`acquire`](Self::acquire), for threads: parks the calling thread until the permits are granted. Each other call
    /// that waits has a [`blocking_wait`](Acquire::blocking_wait).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    fn blocking_acquire(&self, n: Self::Cost) -> Result<Self::Grant, Error> {
        self.acquire(n).blocking_wait()
    }

    /// One limiter of this one and `second`, which both have to grant a call. Keep it in a struct as an
    /// [`AnyRateLimiter`](crate::AnyRateLimiter).
    ///
    /// A caller waits at the first limiter, then at the second, in the order of arrival at each:
    ///
    /// - It joins the second queue when it is polled after the first has granted it, and holds nothing of the second before. So
    ///   put the narrow limiter first: what a customer cannot use yet is not kept from the others.
    /// - While it waits at the second, it holds its permits of the first. If it leaves, they are
    ///   [refunded](Granted::refund) at once; if the second refuses it, with the poll that says so.
    ///
    /// A timeout covers both waits; the second queue is checked after the first grant. `ahead_by` and tenants apply at both. A
    /// [reservation](Self::reserve) that has to wait at the first limiter stands there until it is awaited. Both limiters count
    /// in the same permits; for different costs make one policy of a tuple. The grant is of both: it settles and refunds at each.
    ///
    /// **Places in flight can deadlock**: if some callers take a place of `a` and then one of `b`, and others a place of `b`
    /// and then one of `a`, each may wait for a place that the other one holds. Take them in the same order everywhere.
    ///
    /// `quota` has the smaller numbers and the longer times of both, and counts are sums, but `granted` is what
    /// the second granted; a caller that waited twice counts twice among the waits. `name` and `clock` are those of the first.
    /// `pause_for`, `resume`, `reset`, `close` and `drain` change the first only, as others may share the second. A part (of an
    /// error, or `limited_by`) is limit 1 of 2 or limit 2 of 2.
    ///
    /// A `Feedback` around it therefore teaches the first. To teach one of the two, put the feedback around that one:
    /// `Feedback::new(one).and(&other)`.
    ///
    /// ```
    /// use tollgate::{
    ///     AnyRateLimiter, InFlight, KeyedRateLimiter, Limiter, ManualClock, Part, Rate, RateLimiter, TokenBucket,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::auto_advance();
    /// let customers = KeyedRateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), &clock);
    /// let all = RateLimiter::with_clock(InFlight::new(2), &clock);
    ///
    /// let ann = AnyRateLimiter::new(customers.at("ann").into_owned().and(&all));
    /// let (first, second) = (ann.acquire(1).await?, ann.acquire(1).await?);
    /// assert_eq!((second.waited().as_millis(), second.limited_by()), (100, Some(Part::new(0, 2))));
    /// // Two are in flight, so others are refused by the second limiter, and keep what the first one gave them.
    /// let bob = customers.at("bob").into_owned().and(&all);
    /// let error = bob.try_acquire(1).await.unwrap_err();
    /// assert_eq!((error.part(), customers.at("bob").available()), (Some(Part::new(1, 2)), 1));
    /// drop(first);
    /// bob.try_acquire(1).await?;
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn and<B: Limiter<Cost = Self::Cost> + 'static>(
        &self,
        second: &B,
    ) -> impl Limiter<Cost = Self::Cost> + 'static + use<Self, B>
    where
        Self: 'static,
    {
        And { first: self.clone(), second: second.clone() }
    }

    /// Yields the items of a stream, each after a permit. The next item is asked for before its permit, so a stream that is
    /// idle or over takes none. Of a stream that is not `Unpin` give a `Box::pin` or `pin!`.
    ///
    /// An item comes without its grant, so it cannot be refunded or settled, and a place in flight comes back when the item
    /// is yielded. To limit how many items are worked on at a time, use `buffer_unordered` of the futures crate. For one
    /// stream it replaces an [`InFlight`](crate::InFlight). Where jobs need their grants, [acquire](Self::acquire) inside
    /// them, and let `buffer_unordered` run some at a time.
    ///
    /// # Errors
    ///
    /// An item is an error of [`acquire`](Self::acquire) if no permit is granted. The stream's own item is not
    /// lost: it comes next, after another `acquire`.
    ///
    /// # Cancel safety
    ///
    /// A future for the next item can be dropped: the stream keeps the item and its place in the queue.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tollgate::{Limiter, ManualClock, Rate, RateLimiter, SmoothBursty};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
    /// let mut pages = limiter.throttle(futures::stream::iter(1..=3));
    /// while let Some(page) = pages.next().await {
    ///     println!("page {} after {:?}", page?, clock.elapsed()); // 0, 200 and 400 ms
    /// }
    /// assert_eq!(clock.elapsed().as_millis(), 400);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "stream")]
    fn throttle<S: futures_core::Stream + Unpin>(
        &self,
        stream: S,
    ) -> impl futures_core::Stream<Item = Result<S::Item, Error>> + Unpin + use<Self, S> {
        throttle::Throttled::new(stream, self.clone())
    }

    /// Takes `n` permits, runs `future`, and gives places in flight back at its end.
    ///
    /// The future is first polled when the permits are granted. For calls that need no method of the grant, such as a
    /// database query; otherwise use [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); then `future` is not polled. An error that `future` returns is part of its output, and
    /// the permits stay charged; [`run_metered`](Self::run_metered) with a cost of zero returns them.
    ///
    /// # Cancel safety
    ///
    /// Dropping it while it waits leaves the queue and takes nothing. Dropping it later drops `future` and returns places in
    /// flight; other permits stay charged, as the call may have been made. A panic of `future` does the same.
    ///
    /// ```
    /// use tollgate::{InFlight, Limiter, RateLimiter};
    ///
    /// # async fn query() -> Result<u32, std::io::Error> { Ok(7) }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::new(InFlight::new(8));
    /// assert_eq!(limiter.run(1, query()).await??, 7);
    /// assert_eq!(limiter.available(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn run<F>(
        &self,
        n: Self::Cost,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Error>> + Send
    where
        F: Future<Output: Send> + Send,
    {
        async move {
            let _grant = self.acquire(n).await?;
            Ok(future.await)
        }
    }

    /// As [`run`](Self::run), and settles the cost by the output of `future`, as a [`metered`](Granted::metered) grant does:
    /// over Redis it does not wait for the reply.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run): a call that is cancelled or panics stays charged with `n`.
    ///
    /// ```
    /// use tollgate::{Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// # async fn complete() -> (String, u32) { ("an answer".to_owned(), 1_100) }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let (_answer, _) = limiter.run_metered(2_000, complete(), |(_, tokens)| *tokens).await?;
    /// assert_eq!(limiter.available(), 88_900);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn run_metered<F>(
        &self,
        n: Self::Cost,
        future: F,
        cost_of: impl FnOnce(&F::Output) -> Self::Cost + Send,
    ) -> impl Future<Output = Result<F::Output, Error>> + Send
    where
        F: Future<Output: Send> + Send,
    {
        async move {
            let mut grant = self.acquire(n).await?.metered();
            let output = future.await;
            grant.set(cost_of(&output));
            Ok(output)
        }
    }

    /// Grants nothing for `duration`; see [`RateLimiter::pause_for`](crate::RateLimiter::pause_for).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`] at a key, and `Error::Store` over Redis.
    ///
    /// # Cancel safety
    ///
    /// In process the future is ready at the first poll. Over Redis a request that was sent may still take effect.
    fn pause_for(&self, duration: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends a pause; see [`RateLimiter::resume`](crate::RateLimiter::resume).
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for). So is the cancel safety.
    fn resume(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// How long a call for `n` permits would wait if it arrived now, behind all waiters. `None` if that depends on when other
    /// callers drop their grants. It takes nothing and keeps no place; a [reservation](Self::reserve) does.
    ///
    /// Over Redis it sends a request. Behind callers of this process, and for several costs, it joins the queue and leaves it,
    /// which counts as given up; if the queue is full, it is `None`, which counts as refused. Of two limiters in
    /// [`and`](Self::and) it is the longer wait.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help, and `Error::Store` over Redis. A closed limiter answers as if it
    /// were open: ask [`is_closed`](Self::is_closed).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{AnyRateLimiter, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = AnyRateLimiter::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// limiter.acquire(2).await?;
    /// assert_eq!(limiter.would_wait(1).await?, Some(Duration::ZERO));
    /// assert_eq!(limiter.would_wait(3).await?, Some(Duration::from_millis(400)));
    /// assert_eq!(limiter.available().await?, 1);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn would_wait(
        &self,
        n: Self::Cost,
    ) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;

    /// Makes the limiter new, or over Redis its key absent: nothing is taken, owed or paused. Waiters stay in the queue, and
    /// places in flight stay taken until their grants are dropped. Do not refund earlier grants, nor settle them at less. A
    /// `Feedback` keeps what its server said, and [`and`](Self::and) resets its first limiter only.
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for). So is the cancel safety.
    ///
    /// ```
    /// use tollgate::{AnyRateLimiter, FixedWindow, Limiter, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = FixedWindow::new(100, std::time::Duration::from_secs(86_400));
    /// let limiter = AnyRateLimiter::new(RateLimiter::new(policy));
    /// limiter.acquire(100).await?;
    /// limiter.reset().await?;
    /// assert_eq!(limiter.available().await?, 100);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn reset(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Closes the limiter and its clones for good: waiters (futures, reservations, blocked threads) and later calls get
    /// [`Error::Closed`]. Grants stay valid: they settle, refund and return places as before. A caller that was granted before
    /// gets its grant, polled or not.
    ///
    /// - [`AtKey`](crate::AtKey) closes its key, and [`KeyedRateLimiter::close`](crate::KeyedRateLimiter::close) all keys.
    /// - Over Redis it closes the key in this process: bookings go back, and other processes continue.
    /// - [`and`](Self::and) closes the first limiter, as others may share the second: callers granted by the first continue.
    /// - `Feedback` closes its limiter as well.
    ///
    /// ```
    /// use tollgate::{Error, InFlight, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(InFlight::new(1));
    /// let grant = limiter.try_acquire(1)?;
    /// let waiting = limiter.reserve(1)?;
    /// limiter.close();
    /// assert_eq!(waiting.blocking_wait().unwrap_err(), Error::Closed);
    /// assert_eq!(limiter.try_acquire(1).unwrap_err(), Error::Closed);
    /// # drop(grant); Ok::<(), Error>(())
    /// ```
    fn close(&self) {
        self.end(End::Close);
    }

    /// Shuts down gracefully: from the first poll on, new callers get [`Error::Closed`], and waiters are served. Resolves when
    /// no caller waits and no place in flight ([`InFlight`](crate::InFlight)) is held, those of reservations included. It closes
    /// what [`close`](Self::close) does. After `close` it waits for the places alone.
    ///
    /// [`and`](Self::and) waits for the first limiter. A `Feedback` waits until its calls end; a caller that the server sends back to the
    /// queue gets `Error::Closed`. Over Redis the places of this process count.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not open the limiter: new callers are refused, and waiters are served. After a timeout,
    /// [`close`](Self::close) refuses the rest.
    ///
    /// ```
    /// use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = SmoothBursty::new(Rate::per_second(1.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let queue = [limiter.reserve(1)?, limiter.reserve(1)?];
    /// limiter.drain().await;
    /// assert_eq!(limiter.acquire(1).await.unwrap_err(), Error::Closed);
    /// let [_, second] = queue;
    /// assert_eq!(second.wait().await?.waited().as_secs(), 1);
    /// # Ok::<(), Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn drain(&self) -> impl Future<Output = ()> + Send {
        let mut is_closed = false;
        poll_fn(move |context| {
            is_closed = is_closed || self.end(End::Serve);
            let is_drained = self.end(End::IsDrained(context.waker()));
            if is_drained { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Whether new callers get [`Error::Closed`].
    fn is_closed(&self) -> bool {
        self.end(End::IsClosed)
    }

    #[doc(hidden)]
    fn end(&self, end: End<'_>) -> bool;

    /// How much of the limit is left; over Redis this sends a request.
    ///
    /// # Errors
    ///
    /// `Error::Store` over Redis.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    fn quota(&self) -> impl Future<Output = Result<Quota<Self::Cost>, Error>> + Send;

    /// The permits that a call without a wait could take now: what [`quota`](Self::quota) says remains.
    ///
    /// # Errors
    ///
    /// As [`quota`](Self::quota). So is the cancel safety.
    fn available(&self) -> impl Future<Output = Result<Self::Cost, Error>> + Send {
        async { Ok(self.quota().await?.remaining) }
    }

    /// How much is left of each limit of the policy, for a request of `cost`.
    #[doc(hidden)]
    fn limits(
        &self,
        cost: Self::Cost,
    ) -> impl Future<Output = Result<Vec<Limit<Self::Cost>>, Error>> + Send;

    /// The number of callers of this process that wait.
    fn queue_len(&self) -> usize;

    /// The permits that callers of this process wait for, all costs together: what
    /// [`max_queued_permits`](crate::RateLimiterBuilder::max_queued_permits) bounds. A `Feedback` counts callers of its limiter
    /// only.
    fn queued_permits(&self) -> u64;

    /// The number of grants, refusals and callers that left, and the waits, in this process; of a limiter with keys, at all
    /// keys.
    fn stats(&self) -> Stats;

    /// The clock by which callers of this process wait.
    fn clock(&self) -> &Clock;

    /// The limiter's name, if its builder was given one.
    fn name(&self) -> Option<&str>;

    /// What is published of it.
    #[cfg(feature = "metrics")]
    #[doc(hidden)]
    fn observe(&self) -> Observe;
}

/// Waits for `n`, at most `max_wait`.
#[cfg(any(feature = "reqwest", feature = "tower", feature = "ureq"))]
pub(crate) fn acquire_within<L: Limiter>(
    limiter: &L,
    n: L::Cost,
    max_wait: Option<Duration>,
) -> Acquire<L> {
    Acquire::new(limiter.clone(), Ask::new(n, max_wait))
}
