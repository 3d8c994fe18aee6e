//! Permits that a shared limiter has granted.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::line::change::{Done, KeyChange, Refund, confirmed};
use super::line::waiter::GrantInfo;
use super::script::{Scripted, wire};
use super::shared::SharedKey;
use crate::error::Error;
use crate::limiter::Metered;
use crate::limiter::{Granted, sealed::Sealed};
use crate::park::block_on;
use crate::part::Part;
use crate::policy::{Cost, PolicyExt};
use crate::rate_limiter::Grant;

/// Permits that a [`RedisRateLimiter`](super::RedisRateLimiter) has granted.
///
/// For policies that limit calls in flight, dropping it gives the permits back, as for a [`Grant`]; the
/// lease on them is renewed until then. For other policies dropping it does nothing.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::redis::{Reconnecting, RedisRateLimiter};
/// use tollgate::{Rate, TokenBucket};
///
/// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
/// let connection = Reconnecting::open("redis://127.0.0.1/")?;
/// let limiter = RedisRateLimiter::new(policy, connection, "quota:tokens");
/// let mut grant = limiter.acquire(800).await?;
/// println!("waited {:?}", grant.waited());
/// grant.settle(1_100).await?; // what the answer says it cost
/// # Ok(()) }
/// ```
pub struct RedisGrant<P: Scripted, C: Connection = Reconnecting> {
    shared: Arc<SharedKey<P, C>>,
    cost: P::Cost,
    /// The permits that can be given back at the price that was paid.
    returnable: P::Cost,
    settling: Option<Settlement<P::Cost>>,
    origin: Origin<P>,
}

/// A settlement that was sent. The lease counts it already.
struct Settlement<C> {
    answer: Receiver<Done<C>>,
    actual: C,
    more: C,
    less: C,
    /// What is given back of `less`.
    part: C,
}

enum Origin<P: Scripted> {
    Redis(GrantInfo),
    /// And how long the caller had waited before it asked the local limiter.
    Local(Grant<'static, P>, Duration),
}

impl<P: Scripted, C: Connection> RedisGrant<P, C> {
    pub(super) fn new(shared: Arc<SharedKey<P, C>>, cost: P::Cost, info: GrantInfo) -> Self {
        Self { shared, cost, returnable: cost, settling: None, origin: Origin::Redis(info) }
    }

    pub(super) fn of_local(
        shared: Arc<SharedKey<P, C>>,
        grant: Grant<'static, P>,
        before: Duration,
    ) -> Self {
        let cost = grant.cost();
        Self {
            shared,
            cost,
            returnable: cost,
            settling: None,
            origin: Origin::Local(grant, before),
        }
    }

    /// Returns how long the caller waited: from its arrival until the permits were due.
    #[must_use]
    pub fn waited(&self) -> Duration {
        match &self.origin {
            Origin::Redis(info) => info.waited,
            Origin::Local(grant, before) => before.saturating_add(grant.waited()),
        }
    }

    /// Returns the cost: as asked for, or as settled since.
    #[must_use]
    pub fn cost(&self) -> P::Cost {
        self.cost
    }

    /// Returns which part of a composed policy made it wait: see [`Grant::limited_by`].
    #[must_use]
    pub fn limited_by(&self) -> Option<Part> {
        match &self.origin {
            Origin::Redis(info) => info.limited_by,
            Origin::Local(grant, _) => grant.limited_by(),
        }
    }

    /// Returns whether the fleet's quota was charged: not for a caller served without Redis, nor for a cost
    /// of zero.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let is_any = !self.cost.is_zero() || !self.returnable.is_zero();
        is_any && matches!(&self.origin, Origin::Redis(info) if info.booking.is_some())
    }

    /// Corrects the cost once it is known: see [`Grant::settle`].
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if Redis has not confirmed it, [`Error::ExceedsCapacity`] if it can never be paid
    /// off. It can then be tried again. After an error that
    /// [may have charged](super::StoreError::may_have_charged) a retry charges the difference, perhaps for the
    /// second time, and gives nothing back twice: permits may be lost, and the limit holds. [`cost`](Self::cost)
    /// is the cost from which the next settlement starts.
    ///
    /// # Cancel safety
    ///
    /// It is sent from the first poll on, even if the future is dropped. The next settlement first waits for the
    /// outcome of that one.
    ///
    /// ```no_run
    /// # use tollgate::redis::RedisGrant;
    /// # fn grant() -> RedisGrant<tollgate::TokenBucket> { todo!() }
    /// # async fn example() -> Result<(), tollgate::Error> {
    /// grant().settle(1_100).await
    /// # }
    /// ```
    pub async fn settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        Granted::settle(self, actual).await
    }

    fn send_settlement(&mut self, actual: P::Cost) -> Result<(), Error> {
        let booking = match &mut self.origin {
            Origin::Redis(info) => info.booking,
            Origin::Local(grant, _) => {
                grant.settle(actual)?;
                None
            }
        };
        let (more, less) = (actual.saturating_sub(self.cost), self.cost.saturating_sub(actual));
        // The smaller of `less` and `returnable`.
        let part = less.saturating_sub(less.saturating_sub(self.returnable));
        let all = self.returnable;
        let answer = match booking {
            None => None,
            Some(booking) => self.shared.with_lock(|line| -> Result<_, Error> {
                let mut todo = Vec::new();
                if !more.is_zero() {
                    let now = line.now();
                    line.policy().check_debt(&line.policy().idle(now), now, more)?;
                    wire::put_settle::<P>(&mut todo, more);
                    line.hold(more);
                }
                if !less.is_zero() {
                    line.let_go(less);
                }
                let refund = Refund::of(part, all, booking);
                let is_any = refund.is_some() || !todo.is_empty();
                Ok(is_any.then(|| line.request(KeyChange { refund, ..KeyChange::of(todo) })))
            })?,
        };
        match answer {
            Some(answer) => {
                self.settling = Some(Settlement { answer, actual, more, less, part });
            }
            None => {
                self.returnable = self.returnable.saturating_sub(part);
                self.cost = actual;
            }
        }
        Ok(())
    }

    /// Waits for the outcome of a settlement that was sent. If it failed, the next one makes up for it: a charge is
    /// made again, a refund only if it certainly was not made.
    async fn settled(&mut self) -> Result<(), Error> {
        let Some(settling) = &mut self.settling else { return Ok(()) };
        let outcome = confirmed(&mut settling.answer).await;
        let Some(Settlement { actual, more, less, part, .. }) = self.settling.take() else {
            unreachable!("it is taken here only")
        };
        let is_unknown = matches!(&outcome, Err(Error::Store(error)) if error.may_have_charged());
        if outcome.is_err() {
            self.shared.with_lock(|line| {
                line.let_go(more);
                if !is_unknown {
                    line.hold(less);
                }
            });
        }
        if outcome.is_ok() || is_unknown {
            self.returnable = self.returnable.saturating_sub(part);
            self.cost = if is_unknown { self.cost.saturating_sub(less) } else { actual };
        }
        outcome.map(drop)
    }

    /// As [`settle`](Self::settle), for threads.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub fn blocking_settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        block_on(self.settle(actual))
    }

    /// Gives the permits back, for a request that was not made. See [`Grant::refund`] for how much comes
    /// back.
    ///
    /// It is sent at once, and only once; if Redis cannot be reached, nothing comes back.
    ///
    /// ```no_run
    /// # use tollgate::redis::RedisGrant;
    /// # fn grant() -> RedisGrant<tollgate::TokenBucket> { todo!() }
    /// grant().refund();
    /// ```
    pub fn refund(mut self) {
        self.refund_now();
    }

    fn refund_now(&mut self) {
        let grant = self;
        if let Origin::Redis(GrantInfo { booking: Some(booking), .. }) = grant.origin {
            let part = grant.settling.as_ref().map_or(P::Cost::default(), |settling| settling.part);
            let all = grant.returnable.saturating_sub(part);
            grant.shared.with_lock(|line| line.refund(all, all, booking));
        } else if let Origin::Local(local, _) = &mut grant.origin {
            // After that the drop gives nothing back.
            drop(local.settle(P::Cost::default()));
        }
    }
}

impl<P: Scripted, C: Connection> RedisGrant<P, C> {
    /// The grant, settled when it is dropped: see [`Grant::metered`]. The drop sends the settlement, and does not
    /// wait for it; if Redis cannot be reached, the estimate stays charged.
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Metered::new(self)
    }
}

impl<P: Scripted, C: Connection> Sealed for RedisGrant<P, C> {}

impl<P: Scripted, C: Connection> Granted for RedisGrant<P, C> {
    type Cost = P::Cost;

    fn cost(&self) -> P::Cost {
        self.cost
    }

    fn waited(&self) -> Duration {
        self.waited()
    }

    fn limited_by(&self) -> Option<Part> {
        self.limited_by()
    }

    fn send_settlement(&mut self, actual: P::Cost) -> Result<(), Error> {
        self.send_settlement(actual)
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // `settled` keeps its state in the grant: a new future goes on where the last one was.
        pin!(self.settled()).poll(context)
    }

    fn settle_on_drop(&mut self, actual: P::Cost) {
        // While the outcome of another one is unknown, so is the difference.
        if self.settling.is_none() {
            // A shortfall that takes 146 years to pay off.
            drop(self.send_settlement(actual));
        }
    }

    fn give_back(&mut self) {
        self.refund_now();
    }

    fn holds_places(&self) -> bool {
        P::HELD
    }
}

impl<P: Scripted, C: Connection> Drop for RedisGrant<P, C> {
    fn drop(&mut self) {
        let held = self.settling.as_ref().map_or(self.cost, |settling| settling.actual);
        if P::HELD
            && !held.is_zero()
            && let Origin::Redis(GrantInfo { booking: Some(_), .. }) = self.origin
        {
            self.shared.with_lock(|line| line.let_go(held));
        }
    }
}

impl<P: Scripted, C: Connection> fmt::Debug for RedisGrant<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisGrant")
            .field("cost", &self.cost)
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
