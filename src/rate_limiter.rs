//! The limiter of one process.

pub(crate) mod builder;
mod grant;
mod open_grant;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use grant::Grant;
pub(crate) use grant::{GrantOwner, Keys};
pub(crate) use open_grant::{GrantId, OpenGrant};

#[cfg(feature = "feedback")]
use crate::clock::AfterUnlock;
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, Limiter, Queue, Reservation, forward, sealed::Sealed};
use crate::line::{Caller, Inner, Line};
#[cfg(feature = "metrics")]
use crate::observe;
use crate::observe::Event;
use crate::policy::{Limit, Policy, Quota, Rated};
use crate::stats::Stats;
use crate::units::Rate;
use crate::wait_queue::{End, Tenant};

/// Grants permits by a [`Policy`]; callers that must wait queue in FIFO order, unless they enter
/// [ahead of others](Acquire::ahead_by).
///
/// A limiter is a handle: clones share one quota, one queue and one clock, across tasks and threads.
/// [`builder`](Self::builder) sets a clock, a name and the bounds of the queue.
///
/// A caller is charged when it is granted. Giving up is free: a dropped future leaves the queue and
/// takes nothing. No waiter depends on another future being polled. A call that need not wait is
/// decided without a lock for [`SmoothBursty`](crate::SmoothBursty),
/// [`TokenBucket`](crate::TokenBucket) (unless it is refilled in steps), [`LeakyBucket`](crate::LeakyBucket) and
/// [`Gcra`](crate::Gcra), except at most 64 calls in the time in which the bucket fills, and under a mutex for the other
/// policies.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock.clone());
/// for _ in 0..11 {
///     limiter.acquire(1).await?;
/// }
/// assert_eq!(clock.elapsed().as_secs_f64(), 2.0);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A limiter has one type parameter, its policy. An alias (`type Quota = (SmoothBursty, InFlight);`) names it once; a
/// struct that should not know the policy has an [`AnyRateLimiter`](crate::AnyRateLimiter).
///
/// # Shutdown
///
/// [`close`](Self::close) ends all waits, of tasks and of blocked threads, and [`drain`](Self::drain) serves the queue
/// first. A limiter need not be closed: a waiting task leaves the queue when its future is dropped, by `select!`, a timeout
/// or an abort of the task, and nothing is charged.
pub struct RateLimiter<P: Policy> {
    line: Arc<Line<P>>,
}

impl<P: Policy> RateLimiter<P> {
    /// A limiter with the [system clock](Clock::system). It keeps real time under
    /// `tokio::time::pause`: use [`with_clock`](Self::with_clock) with `Clock::tokio()` there.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::builder(policy).build()
    }

    /// A limiter with another clock: a [`ManualClock`](crate::ManualClock) in tests, or `Clock::tokio()`.
    #[must_use]
    pub fn with_clock(policy: P, clock: impl Into<Clock>) -> Self {
        Self::builder(policy).clock(clock).build()
    }

    /// Takes `n` permits, and waits until they are granted.
    ///
    /// The future joins the queue when it is first polled; that is the order of grants, unless a
    /// caller enters [ahead of others](Acquire::ahead_by). Nothing is taken before the grant. `acquire(0)` is granted at once
    /// unless the limiter is closed, takes nothing and is not counted.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help, [`Error::QueueFull`] if the queue is
    /// [bounded](crate::RateLimiterBuilder::max_waiters), and [`Error::Closed`] once the limiter is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue: nothing was charged, and the waiters behind it move up.
    /// If it was granted but not yet polled again, the permits are given back as by
    /// [`Grant::refund`]. A future that is kept but never polled again is granted in its turn, and
    /// delays no other waiter. A new call joins at the end of the queue.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// assert_eq!(limiter.acquire(10).await?.waited().as_millis(), 0);
    /// assert_eq!(limiter.acquire(1).await?.waited().as_millis(), 2000);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("consume", "until_ready", "wait", "WaitN"))]
    #[inline]
    pub fn acquire(&self, n: P::Cost) -> Acquire<&Self> {
        Acquire::new(self, Ask::new(n, None))
    }

    /// As [`acquire`](Self::acquire), for one of many tenants that share this limiter. Waiting tenants take turns, so a burst
    /// of one delays only that tenant.
    ///
    /// Waiting tenants get equal shares of the permits, or shares by [weight](Acquire::weight); one that waits alone gets all
    /// of them. The callers of one tenant stay in FIFO order. [`for_tenant`](Acquire::for_tenant) is the form for other methods.
    ///
    /// - **No tenant starves**: one that begins to wait is granted after at most one call of each waiting tenant. A call that
    ///   costs more than others uses up as many rounds of its tenant.
    /// - **Shares count what callers wait for.** A call that need not wait does not count; an empty queue forgets all shares.
    /// - **A timeout** is judged by the turns of all waiters, and again at the deadline, as another tenant may go ahead.
    /// - A tenant is any value with a hash; use one type for all. Callers without a tenant count as one more.
    ///
    /// [`max_waiters_per_tenant`](crate::RateLimiterBuilder::max_waiters_per_tenant) bounds the queue of each.
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) has a limit for each.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire). A caller that leaves before it is granted does not cost its tenant a turn.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(10.0)), clock);
    /// limiter.acquire(1).await?;
    /// // A customer floods the queue, and another one arrives.
    /// let mut flood = Vec::new();
    /// for _ in 0..10_000 {
    ///     flood.push(limiter.acquire_for("ann", 1).reserve().await?);
    /// }
    /// let grant = limiter.acquire_for("bob", 1).await?;
    /// assert_eq!(grant.waited().as_millis(), 200); // after one call of the flood
    /// # drop(flood); Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn acquire_for<T: Hash + ?Sized>(&self, tenant: &T, n: P::Cost) -> Acquire<&Self> {
        self.acquire(n).for_tenant(tenant)
    }

    /// As [`acquire`](Self::acquire), but the future and the grant do not borrow the limiter.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). So is the cancel safety.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// let task = tokio::spawn(limiter.acquire_owned(1));
    /// assert_eq!(task.await??.waited().as_millis(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_owned(&self, n: P::Cost) -> Acquire<Self> {
        Acquire::new(self.clone(), Ask::new(n, None))
    }

    /// Takes `n` permits if they are ready and the queue is empty; never waits.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] with the wait that the call would have needed behind the queue;
    /// [`Error::ExceedsCapacity`]. Nothing has been taken.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let clock = ManualClock::new();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// assert!(limiter.try_acquire(3).is_ok());
    /// let error = limiter.try_acquire(1).unwrap_err();
    /// assert_eq!(error.to_string(), "no permits available, retry after 600ms");
    /// ```
    ///
    /// To *throttle* events as user interfaces do, drop those for which this returns an error.
    #[doc(alias("allow", "AllowN", "check", "throttle", "tryConsume"))]
    // Or a grant that is dropped at once passes through memory.
    #[inline(always)]
    pub fn try_acquire(&self, n: P::Cost) -> Result<Grant<'_, P>, Error> {
        match self.line.decide(n, Some(Duration::ZERO)) {
            Some(charge) => Grant::borrowing(&self.line, n, charge),
            None => self.try_in_line(n),
        }
    }

    // The code of a composed policy is large, and its grant would enlarge the code of each call.
    #[inline(never)]
    fn try_in_line(&self, n: P::Cost) -> Result<Grant<'_, P>, Error> {
        Grant::borrowing(&self.line, n, self.line.enter_now(n))
    }

    /// Takes `n` permits if they come within `timeout`; fails **at once** if they cannot.
    ///
    /// The first 128 waiters ahead are counted; for a rule of one rate all of them, or 8,192 among tenants and
    /// with [`ahead_by`](Acquire::ahead_by). If a new rate, a pause, or a caller that
    /// enters [ahead](Acquire::ahead_by) makes the deadline impossible, the call is refused at its deadline at the latest.
    /// At a window the alarm may be late: give a millisecond or two more than the `retry_after` of an error.
    /// `Duration::MAX` waits without a limit.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] with the wait that it would have needed, [`Error::ExceedsCapacity`],
    /// [`Error::QueueFull`]. Nothing has been taken.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// limiter.acquire(5).await?;
    /// let error = limiter.try_acquire_timeout(1, Duration::from_millis(999)).await.unwrap_err();
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_secs(1)).await.is_ok());
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_acquire_timeout(&self, n: P::Cost, timeout: Duration) -> Acquire<&Self> {
        Acquire::new(self, Ask::new(n, Some(timeout)))
    }

    /// As [`acquire`](Self::acquire), for threads: parks this one until it is granted.
    ///
    /// Blocking and async callers share one queue. In async code use `acquire`: this method blocks
    /// the executor's thread; with `Clock::tokio()` on a current-thread runtime it never returns.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// limiter.blocking_acquire(1)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    pub fn blocking_acquire(&self, n: P::Cost) -> Result<Grant<'_, P>, Error> {
        self.acquire(n).blocking_wait()
    }

    /// Takes a place in the queue without waiting; wait for it later, or drop it.
    /// [`Acquire::reserve`] is for a call with a tenant, a timeout or a place ahead.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`], [`Error::QueueFull`].
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// let first = limiter.reserve(5)?;
    /// let second = limiter.reserve(1)?;
    /// assert_eq!(second.delay().as_millis(), 1000);
    /// drop(first); // leaves the queue, as if it had never entered
    /// assert_eq!(second.delay().as_millis(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[doc(alias = "ReserveN")]
    pub fn reserve(&self, n: P::Cost) -> Result<Reservation<Self>, Error> {
        self.acquire_owned(n).reserve_now()
    }

    /// Replaces the policy, for all clones. It also applies to callers already waiting. Idle time up
    /// to now counts at the old rate, and debt keeps its old price.
    ///
    /// Waiters whose request exceeds the new capacity get [`Error::ExceedsCapacity`].
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::auto_advance();
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy.clone(), clock.clone());
    /// limiter.set_policy(policy.max_burst(Duration::from_secs(10)));
    /// clock.advance(Duration::from_secs(3600));
    /// assert_eq!(limiter.available(), 50);
    /// ```
    pub fn set_policy(&self, policy: P) {
        self.line.set_policy(|_| policy).run();
        self.line.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Grants nothing for `duration` from now, for example after a response with `Retry-After`. Waiters keep their places.
    ///
    /// No credit accrues in a pause, and **rules of a rate have nothing stored when it ends**: a bucket of 10 a second, full
    /// before, grants `acquire(10)` a second after the pause. Windows and logs are not changed. A refund gives nothing back
    /// across a pause, so [refund](Grant::refund) first.
    ///
    /// Another pause can make this one longer, not shorter; [`resume`](Self::resume) ends it. Limit the value that you accept
    /// from a server. More than the [horizon](crate::Nanos::HORIZON) counts as the horizon.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
    /// limiter.pause_for(Duration::from_secs(30));
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_secs(), 30);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn pause_for(&self, duration: Duration) {
        self.line.with_lock(|inner, now| inner.pause(now, duration));
        self.line.observer.paused(duration);
    }

    /// Ends a pause now, as if [`pause_for`](Self::pause_for) had been called with the time since.
    /// Debt from before the pause is still owed. In the instant in which the pause began it discards nothing. Without a
    /// pause it does nothing.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
    /// limiter.pause_for(Duration::from_secs(30));
    /// clock.advance(Duration::from_secs(2));
    /// limiter.resume();
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 0);
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn resume(&self) {
        self.line.with_lock(|inner, now| inner.resume(now));
        self.line.observer.report(&Event::Resumed);
    }

    /// Makes the limiter new; see [`Limiter::reset`].
    pub fn reset(&self) {
        self.line.with_lock(|inner, now| inner.reset(now));
    }

    /// Takes `n` permits now, before all waiters, whether they are ready or not: as a debt, which is not refundable.
    #[cfg(feature = "feedback")]
    pub(crate) fn take_anyway(&self, n: P::Cost) -> Result<Grant<'static, P>, Error> {
        let nothing = crate::line::Charge::at_once(None);
        let mut grant =
            Grant::new(GrantOwner::owned(Arc::clone(&self.line)), P::Cost::default(), nothing);
        grant.settle(n)?;
        Ok(grant)
    }

    /// How long a call for `n` permits would wait if it arrived now; see [`Limiter::would_wait`].
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help.
    pub fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        Ok(self.line.with_lock(|inner, now| inner.would_wait(now, n))?)
    }

    /// The permits that can be taken now without a wait for the next caller. Zero while callers wait
    /// or the limiter is paused.
    ///
    /// The smooth policies grant more than this at once; the next caller waits for the excess.
    #[doc(alias("balance", "permits", "tokens"))]
    #[must_use]
    pub fn available(&self) -> P::Cost {
        self.line.look(Inner::available)
    }

    /// The limit, what remains of it, and the time until all of it is available again. Nothing
    /// remains while callers wait or the limiter is paused.
    #[must_use]
    pub fn quota(&self) -> Quota<P::Cost> {
        self.line.look(Inner::quota)
    }

    /// The number of waiters of a tenant; see [`acquire_for`](Self::acquire_for).
    #[must_use]
    pub fn queue_len_for<T: Hash + ?Sized>(&self, tenant: &T) -> usize {
        let tenant = Tenant::new(tenant);
        self.line.look(|inner, _| inner.queue_len_of(tenant))
    }

    forward! {
        in Limiter {
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
            /// The permits that callers wait for, all costs together: what
            /// [`max_queued_permits`](crate::RateLimiterBuilder::max_queued_permits) bounds.
            #[must_use]
            queued_permits() -> u64;
            /// Counts since the limiter was made, how long callers waited, and for which part of the policy.
            #[must_use]
            stats() -> Stats;
            /// The name given to the [builder](crate::RateLimiterBuilder::name).
            #[must_use]
            name() -> Option<&str>;
            /// The clock that decides and wakes waiters.
            #[must_use]
            clock() -> &Clock;
        }
    }

    /// The current policy.
    #[must_use]
    pub fn policy(&self) -> P {
        self.line.policy()
    }

    /// As [`set_policy`](Self::set_policy), for a caller that holds a lock.
    #[cfg(feature = "feedback")]
    pub(crate) fn set_policy_quietly(&self, policy: P) -> AfterUnlock {
        self.line.set_policy(|_| policy)
    }

    /// The line of a key, as a limiter.
    pub(crate) fn of_line(line: Arc<Line<P>>) -> Self {
        Self { line }
    }

    /// For a caller that has tried without the queue, and has no time to wait.
    pub(crate) fn take_now(self, n: P::Cost) -> Result<Grant<'static, P>, Error> {
        self.try_in_line(n).map(Grant::into_owned)
    }
}

impl<P: Rated> RateLimiter<P> {
    /// The current rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.policy().rate()
    }

    /// Replaces the rate, for all clones; see [`set_policy`](Self::set_policy). A [`Rate`] is never zero: to grant
    /// nothing, call [`pause_for`](Self::pause_for).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let clock = ManualClock::auto_advance();
    /// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1.0)), clock);
    /// limiter.blocking_acquire(1)?;
    /// limiter.set_rate(Rate::per_second(10.0));
    /// // Debt keeps its old price; later charges have the new one.
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 1000);
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 100);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_rate(&self, rate: Rate) {
        self.line.set_policy(|policy| policy.clone().with_rate(rate)).run();
        self.line.observer.report(&Event::PolicyChanged { rate: Some(rate) });
    }
}

/// Another handle on the same limiter.
impl<P: Policy> Clone for RateLimiter<P> {
    fn clone(&self) -> Self {
        Self { line: Arc::clone(&self.line) }
    }
}

impl<P: Policy> Sealed for RateLimiter<P> {}
#[doc(hidden)]
impl<P: Policy> Sealed for &RateLimiter<P> {}

impl<P: Policy> Queue for RateLimiter<P> {
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;
    type Place = Caller<P>;
    type Owned = Self;

    #[inline(never)]
    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        caller: &mut Caller<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Grant, Error>> {
        let line = &limiter.line;
        let charge = match caller.decide(line, ask) {
            Some(charge) => Poll::Ready(charge),
            None => caller.poll_in_line(line, ask, context),
        };
        charge.map_ok(|charge| Grant::new(GrantOwner::owned(Arc::clone(line)), ask.cost, charge))
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        caller: &mut Caller<P>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        Poll::Ready(caller.enter(&limiter.line, ask, None))
    }

    fn leave(limiter: &Self, ask: &Ask<P::Cost>, caller: &mut Caller<P>) {
        caller.leave(&limiter.line, ask.cost);
    }

    fn delay(limiter: &Self, caller: &Caller<P>) -> Duration {
        caller.delay(&limiter.line)
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, caller: Caller<P>) -> Acquire<Self> {
        Acquire::at(limiter.clone(), *ask, caller)
    }
}

#[doc(hidden)]
impl<'a, P: Policy> Queue for &'a RateLimiter<P> {
    type Cost = P::Cost;
    type Grant = Grant<'a, P>;
    type Place = Caller<P>;
    type Owned = RateLimiter<P>;

    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        caller: &mut Caller<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        let line: &'a Arc<Line<P>> = &limiter.line;
        if let Some(charge) = caller.decide(line, ask) {
            return Poll::Ready(Grant::borrowing(line, ask.cost, charge));
        }
        let charge = caller.poll_in_line(line, ask, context);
        charge.map(|charge| Grant::borrowing(line, ask.cost, charge))
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        caller: &mut Caller<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        RateLimiter::poll_enter(limiter, ask, caller, context)
    }

    #[inline(always)]
    fn leave(limiter: &Self, ask: &Ask<P::Cost>, caller: &mut Caller<P>) {
        caller.leave(&limiter.line, ask.cost);
    }

    fn delay(limiter: &Self, caller: &Caller<P>) -> Duration {
        caller.delay(&limiter.line)
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, caller: Caller<P>) -> Acquire<Self::Owned> {
        RateLimiter::into_owned(limiter, ask, caller)
    }
}

/// The futures of these methods do not borrow the limiter, as its own methods' futures do.
impl<P: Policy> Limiter for RateLimiter<P> {
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.pause_for(duration);
        Ok(())
    }

    async fn resume(&self) -> Result<(), Error> {
        self.resume();
        Ok(())
    }

    async fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        self.would_wait(n)
    }

    async fn reset(&self) -> Result<(), Error> {
        self.reset();
        Ok(())
    }

    async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        Ok(self.quota())
    }

    async fn limits(&self, cost: P::Cost) -> Result<Vec<Limit<P::Cost>>, Error> {
        Ok(self.line.look(|inner, now| inner.limits(now, cost)))
    }

    fn end(&self, end: End<'_>) -> bool {
        self.line.end(end)
    }

    fn queue_len(&self) -> usize {
        self.line.look(|inner, _| inner.queue_len())
    }

    fn queued_permits(&self) -> u64 {
        self.line.look(|inner, _| inner.queued_permits())
    }

    fn stats(&self) -> Stats {
        self.line.stats().with(&self.line.observer.waits)
    }

    fn clock(&self) -> &Clock {
        &self.line.clock
    }

    fn name(&self) -> Option<&str> {
        self.line.observer.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> observe::Observe {
        observe::observe(&self.line, |line| {
            use crate::policy::{Cost as _, PolicyExt as _};
            let (waiting, rate, permits) = line.look(|inner, now| {
                let rate = inner.policy.steady_rate();
                (inner.queue_len(), rate, inner.available(now).number(0))
            });
            observe::Observation {
                stats: line.stats().with(&line.observer.waits),
                waiting,
                rate,
                permits: Some(permits),
                ..observe::Observation::default()
            }
        })
    }
}

impl<P: Policy> fmt::Debug for RateLimiter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RateLimiter");
        if let Some(name) = self.name() {
            shown.field("name", &name);
        }
        shown
            .field("policy", &self.policy())
            .field("clock", &self.line.clock)
            .field("quota", &self.quota())
            .field("waiting", &self.queue_len())
            .finish()
    }
}
