//! Waiting: the future that all methods share, and the loop that runs it on a thread.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Shared;
use super::grant::Grant;
use super::grant_owner::GrantOwner;
use super::shared::in_drop;
use crate::error::Error;
use crate::line::{Admission, Charge, WaitStatus};
use crate::park::block_on;
use crate::policy::Policy;
use crate::wait_queue::{Claim, Tenant, WaiterId};

/// A future that waits for a [`Grant`], returned by [`acquire`](crate::RateLimiter::acquire) and
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
/// let acquire: Acquire<'_, SmoothBursty> = limiter.acquire(1);
/// let grant = acquire.await?;
/// # drop(grant); Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a, P: Policy> {
    source: GrantOwner<'a, P>,
    cost: P::Cost,
    max_wait: Option<Duration>,
    place: WaiterState<P>,
}

enum WaiterState<P: Policy> {
    /// It will claim this place.
    Outside(Claim),
    Waiting(WaiterId),
    Granted(Charge<P::Receipt>),
    Over,
}

// No field is ever pinned.
impl<P: Policy> Unpin for Acquire<'_, P> {}

impl<'a, P: Policy> Acquire<'a, P> {
    #[inline]
    pub(crate) fn new(
        source: GrantOwner<'a, P>,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { source, cost, max_wait, place: WaiterState::Outside(Claim::InOrder) }
    }

    /// Enters the queue as if this caller had come `ahead` earlier: ahead of waiters that came later than
    /// that. For interactive callers beside a batch.
    ///
    /// **No waiter starves**: a waiter is overtaken only by callers that come less than `ahead` after it. So it
    /// is granted no later than a FIFO queue grants a caller that comes `ahead` later, and waits at most `ahead`
    /// longer than in that queue as long as the callers ahead alone do not exceed the rate. Callers with the same
    /// `ahead` stay in FIFO order, and so do all others. Choose `ahead` longer than a batch may have waited; more
    /// than the [horizon](crate::Nanos::HORIZON) counts as the horizon.
    ///
    /// The caller gets its place when it joins, and pays for that: other callers pay nothing, and with a
    /// timeout it also visits the waiters ahead of it. The bounds of the queue count it like others. A call
    /// that does not wait (a timeout of zero) is granted if it goes ahead of all waiters and its permits are ready.
    ///
    /// **Waiters that are overtaken wait longer** than was predicted when they joined: the
    /// [delay](crate::Reservation::delay) of a reservation grows, and a waiter with a timeout is refused if it cannot be
    /// granted in time any more, when it reaches the head of the queue, at the latest at its deadline.
    ///
    /// Beside callers of [tenants](Self::for_tenant) it goes ahead of others without a tenant only, which take turns with
    /// them. It replaces a tenant. No effect once the future has been polled.
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
        self.go_ahead_by(ahead);
        self
    }

    pub(crate) fn go_ahead_by(&mut self, ahead: Duration) {
        self.claim(Claim::Ahead(ahead));
    }

    /// Waits in the turn of `tenant`: the form of [`acquire_for`](crate::RateLimiter::acquire_for) for the other methods.
    ///
    /// It replaces an [`ahead_by`](Self::ahead_by), and has no effect once the future has been polled.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(10.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(1)?;
    /// let batch: Vec<_> =
    ///     (0..100).map(|_| limiter.acquire_for("ann", 1).reserve()).collect::<Result<_, _>>()?;
    /// let second = Duration::from_secs(1);
    /// assert!(limiter.try_acquire_timeout(1, second).for_tenant("ann").blocking_wait().is_err());
    /// let grant = limiter.try_acquire_timeout(1, second).for_tenant("bob").blocking_wait()?;
    /// assert_eq!(grant.waited().as_millis(), 200);
    /// # drop(batch); Ok::<(), tollgate::Error>(())
    /// ```
    pub fn for_tenant<T: Hash + ?Sized>(mut self, tenant: &T) -> Self {
        self.claim(Claim::TurnOf(Tenant::new(tenant)));
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
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::new();
    /// # let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(10.0)), &clock);
    /// limiter.try_acquire(1)?;
    /// for _ in 0..100 {
    ///     std::mem::forget(limiter.acquire_for("free", 1).reserve()?);
    ///     std::mem::forget(limiter.acquire_for("paying", 1).weight(3).reserve()?);
    /// }
    /// clock.advance(Duration::from_secs(4));
    /// assert_eq!((limiter.queue_len_for("free"), limiter.queue_len_for("paying")), (90, 70));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[track_caller]
    pub fn weight(mut self, weight: u32) -> Self {
        let weight = NonZeroU32::new(weight).expect("a weight must not be zero");
        if let WaiterState::Outside(Claim::TurnOf(tenant)) = self.place {
            self.claim(Claim::TurnOf(tenant.with_weight(weight)));
        }
        self
    }

    /// No effect once it has been polled.
    fn claim(&mut self, claim: Claim) {
        if let WaiterState::Outside(own) = &mut self.place {
            *own = claim;
        }
    }

    /// Enters the queue now, and borrows nothing.
    pub(super) fn enter_now(mut self) -> Result<Acquire<'static, P>, Error> {
        let place = std::mem::replace(&mut self.place, WaiterState::Over);
        let source = self.source.take().into_owned();
        let mut acquire = Acquire { source, cost: self.cost, max_wait: self.max_wait, place };
        if let WaiterState::Outside(claim) = acquire.place {
            acquire.enter(claim, None)?;
        }
        Ok(acquire)
    }

    /// Waits on this thread, as [`blocking_acquire`](crate::RateLimiter::blocking_acquire) does.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.acquire(1).blocking_wait()?;
    /// assert_eq!(limiter.acquire(1).blocking_wait()?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_wait(self) -> Result<Grant<'a, P>, Error> {
        block_on(self)
    }

    /// The line of this caller.
    fn line(&self) -> &Shared<P> {
        line(&self.source)
    }

    /// Enters the queue with `waker`, or is granted at once. Does not wait.
    fn enter(&mut self, claim: Claim, waker: Option<&Waker>) -> Result<(), Error> {
        let Self { source, cost, max_wait, place } = self;
        // A borrowed call in FIFO order has already tried this inline.
        if (source.as_borrowed().is_none() || !matches!(claim, Claim::InOrder))
            && let Some(charge) = line(source).decide(*cost, *max_wait)
        {
            *place = WaiterState::Over;
            *place = WaiterState::Granted(charge?);
            return Ok(());
        }
        let entered = line(source).enter(*cost, *max_wait, claim, waker, |entered| {
            *place = match entered {
                Admission::Granted(charge) => WaiterState::Granted(charge),
                Admission::Waiting(key) => WaiterState::Waiting(key),
            };
        });
        if entered.is_err() {
            *place = WaiterState::Over;
        }
        entered
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    pub(crate) fn now(mut self) -> Result<Grant<'a, P>, Error> {
        let charge = self.line().enter_now(self.cost)?;
        Ok(Grant::new(self.source.take(), self.cost, charge))
    }

    /// The remaining wait, as far as is known now.
    pub(super) fn delay(&self) -> Duration {
        match self.place {
            WaiterState::Waiting(key) => self.line().with_lock(|inner, now| inner.delay(key, now)),
            _ => Duration::ZERO,
        }
    }

    /// Polls a call that is not decided at once.
    // Returns a charge and not a grant: a grant would be returned through memory, and would force the calls that
    // are decided at once through memory too.
    #[inline(never)]
    fn poll_in_line(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if let WaiterState::Outside(claim) = self.place {
            self.enter(claim, Some(context.waker()))?;
            if matches!(self.place, WaiterState::Waiting(_))
                && !self.line().clock.advances_by_itself()
            {
                return Poll::Pending;
            }
        }
        match self.place {
            WaiterState::Granted(charge) => {
                self.report(charge);
                self.place = WaiterState::Over;
                Poll::Ready(Ok(charge))
            }
            WaiterState::Waiting(key) => self.wait(key, context.waker()),
            WaiterState::Outside(_) | WaiterState::Over => {
                panic!("`Acquire` polled after it was ready")
            }
        }
    }

    /// Polls an owned future. The grant takes over the future's share of the limiter.
    #[inline(never)]
    fn poll_owned(&mut self, context: &mut Context<'_>) -> Poll<Result<Grant<'a, P>, Error>> {
        let charge = self.poll_in_line(context);
        charge.map_ok(|charge| Grant::new(self.source.take(), self.cost, charge))
    }

    fn wait(&mut self, key: WaiterId, waker: &Waker) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if let Some(outcome) = self.line().take_outcome(key) {
            return self.ended(outcome);
        }
        loop {
            let Self { source, place, .. } = self;
            let standing = line(source).with_lock(|inner, _| {
                let standing = inner.poll(key, waker);
                // Stored under the lock, so that a panic of another waiter leaves no grant without an owner.
                match standing {
                    WaitStatus::Over(Ok(charge)) => *place = WaiterState::Granted(charge),
                    WaitStatus::Over(Err(_)) => *place = WaiterState::Over,
                    WaitStatus::Waiting(_) => {}
                }
                standing
            });
            match standing {
                WaitStatus::Over(outcome) => return self.ended(outcome),
                // A clock that advances by itself skips to the time at which the queue moves.
                WaitStatus::Waiting(Some(due)) if self.line().clock.skip_to(due) => {}
                WaitStatus::Waiting(_) => return Poll::Pending,
            }
        }
    }

    /// The wait is over.
    fn ended(
        &mut self,
        outcome: Result<Charge<P::Receipt>, Error>,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if let Ok(charge) = outcome {
            self.place = WaiterState::Granted(charge);
            self.report(charge);
        }
        self.place = WaiterState::Over;
        Poll::Ready(outcome)
    }

    /// Before the grant leaves this future: the listener may panic.
    fn report(&self, charge: Charge<P::Receipt>) {
        if charge.waited > 0 {
            let observer = self.line().observer.get();
            observer.granted(Duration::from_nanos(charge.waited), charge.limited_by);
        }
    }

    #[inline(never)]
    fn leave(&mut self) {
        in_drop(|| match self.place {
            WaiterState::Outside(_) | WaiterState::Over => {}
            WaiterState::Waiting(key) => self.line().leave(key),
            WaiterState::Granted(charge) => {
                self.line().with_lock(|inner, now| inner.give_up(now, self.cost, charge));
            }
        });
    }
}

/// The line of `source`, which is never a key here.
fn line<'a, P: Policy>(source: &'a GrantOwner<'_, P>) -> &'a Shared<P> {
    source.line().unwrap_or_else(|| unreachable!("the source of a waiter is a line"))
}

impl<'a, P: Policy> Future for Acquire<'a, P> {
    type Output = Result<Grant<'a, P>, Error>;

    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let acquire = self.get_mut();
        let Some(shared) = acquire.source.as_borrowed() else {
            return acquire.poll_owned(context);
        };
        if matches!(acquire.place, WaiterState::Outside(Claim::InOrder))
            && let Some(charge) = shared.decide(acquire.cost, acquire.max_wait)
        {
            acquire.place = WaiterState::Over;
            return Poll::Ready(grant(shared, acquire.cost, charge));
        }
        acquire.poll_in_line(context).map(|charge| grant(shared, acquire.cost, charge))
    }
}

impl<P: Policy> Drop for Acquire<'_, P> {
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(self.place, WaiterState::Outside(_) | WaiterState::Over) {
            self.leave();
        }
    }
}

impl<P: Policy> fmt::Debug for Acquire<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            WaiterState::Outside(_) => "outside",
            WaiterState::Waiting(_) => "waiting",
            WaiterState::Granted(_) => "granted",
            WaiterState::Over => "over",
        };
        f.debug_struct("Acquire").field("cost", &self.cost).field("place", &place).finish()
    }
}

/// Acquires `cost` now, or fails.
#[inline(always)]
pub(super) fn try_now<P: Policy>(
    shared: &Arc<Shared<P>>,
    cost: P::Cost,
) -> Result<Grant<'_, P>, Error> {
    match shared.decide(cost, Some(Duration::ZERO)) {
        Some(charge) => grant(shared, cost, charge),
        None if P::HOOKS.small => grant(shared, cost, shared.enter_now(cost)),
        None => enter_now_for_grant(shared, cost),
    }
}

/// Acquires `cost`, and parks this thread until it is granted.
#[inline(always)]
pub(super) fn block<P: Policy>(
    shared: &Arc<Shared<P>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Grant<'_, P>, Error> {
    match shared.decide(cost, max_wait) {
        Some(charge) => grant(shared, cost, charge),
        None => grant(shared, cost, block_in_line(shared, cost, max_wait)),
    }
}

#[inline(always)]
fn grant<P: Policy>(
    shared: &Arc<Shared<P>>,
    cost: P::Cost,
    charge: Result<Charge<P::Receipt>, Error>,
) -> Result<Grant<'_, P>, Error> {
    charge.map(|charge| Grant::new(GrantOwner::borrowed(shared), cost, charge))
}

/// The same, for policies with receipts so large that copying them would enlarge the code of each call.
#[inline(never)]
fn enter_now_for_grant<P: Policy>(
    shared: &Arc<Shared<P>>,
    cost: P::Cost,
) -> Result<Grant<'_, P>, Error> {
    grant(shared, cost, shared.enter_now(cost))
}

#[inline(never)]
fn block_in_line<P: Policy>(
    shared: &Arc<Shared<P>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Charge<P::Receipt>, Error> {
    let mut acquire = Acquire::new(GrantOwner::borrowed(shared), cost, max_wait);
    block_on(poll_fn(|context| acquire.poll_in_line(context)))
}
