//! Permits that a shared limiter has granted.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::line::change::{Done, KeyChange, Refund};
use super::line::roster::GrantInfo;
use super::script::{Scripted, wire};
use super::shared::SharedKey;
use crate::error::Error;
use crate::limiter::{Granted, Metered, sealed::Sealed};
use crate::park::block_on;
use crate::part::Part;
use crate::policy::{Cost, PolicyExt};
use crate::rate_limiter::Grant;

/// Permits that a [`RedisRateLimiter`](super::RedisRateLimiter) has granted.
///
/// For policies that limit calls in flight, dropping it gives the permits back, as for a [`Grant`]; the
/// lease on them is renewed until then. For other policies dropping it does nothing.
///
/// A settlement is sent from the first poll of [`settle`](Self::settle) on, even if the future is dropped, and the next one
/// first waits for its outcome. It fails with [`Error::Store`] if Redis has not confirmed it, and with
/// [`Error::ExceedsCapacity`] if it can never be paid off; it can then be tried again. After an error that
/// [may have charged](super::StoreError::may_have_charged) a retry charges the difference, perhaps for the second time, and
/// gives nothing back twice: permits may be lost, and the limit holds. [`cost`](Self::cost) is the cost from which the next
/// settlement starts.
///
/// [`refund`](Self::refund) is sent at once, and only once: if Redis cannot be reached, nothing comes back. The drop of a
/// [`metered`](Self::metered) grant sends its settlement and does not wait for it: if Redis cannot be reached, the estimate
/// stays charged.
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
    info: GrantInfo,
    /// A settlement that was sent, and `cost` and `returnable` before it. The lease counts it already.
    settling: Option<Settlement<P::Cost>>,
    /// Of the local limiter, while Redis was away.
    local: Option<Grant<'static, P>>,
}

type Settlement<C> = (Receiver<Done<C>>, [C; 2]);

impl<P: Scripted, C: Connection> RedisGrant<P, C> {
    /// `local`: the grant of the local limiter.
    pub(super) fn new(
        shared: Arc<SharedKey<P, C>>,
        cost: P::Cost,
        info: GrantInfo,
        local: Option<Grant<'static, P>>,
    ) -> Self {
        Self { shared, cost, returnable: cost, info, settling: None, local }
    }

    crate::limiter::forward! {
        in Granted {
            /// Returns how long the caller waited: from its arrival until the permits were due.
            #[must_use]
            waited() -> Duration;
            /// Returns the cost: as asked for, or as settled since.
            #[must_use]
            cost() -> P::Cost;
            /// Returns which part of a composed policy made it wait: see [`Grant::limited_by`].
            #[must_use]
            limited_by() -> Option<Part>;
        }
    }

    /// Corrects the cost once it is known: see [`Grant::settle`].
    ///
    /// # Errors
    ///
    /// As the type says.
    pub async fn settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        Granted::settle(self, actual).await
    }

    /// Gives the permits back, for a request that was not made. See [`Grant::refund`] for how much comes back.
    pub fn refund(self) {
        Granted::refund(self);
    }

    /// The grant, settled when it is dropped: see [`Grant::metered`].
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Metered::new(self)
    }

    /// Returns whether the fleet's quota was charged: not for a caller served without Redis, nor for a cost
    /// of zero.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let is_any = !self.cost.is_zero() || !self.returnable.is_zero();
        is_any && self.info.booking.is_some()
    }

    /// As [`settle`](Self::settle), for threads.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub fn blocking_settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        block_on(self.settle(actual))
    }

    /// A settlement has failed, and the next one makes up for it: a charge is made again, a refund only if it certainly
    /// was not made.
    fn settlement_failed(&mut self, [cost, returnable]: [P::Cost; 2], error: &Error) {
        let (more, less) = (self.cost.saturating_sub(cost), cost.saturating_sub(self.cost));
        let is_unknown = matches!(error, Error::Store(error) if error.may_have_charged());
        self.shared.with_lock(|line| {
            line.let_go(more);
            if !is_unknown {
                line.lease.hold::<P>(less);
            }
        });
        self.cost = if is_unknown { cost.saturating_sub(less) } else { cost };
        if !is_unknown {
            self.returnable = returnable;
        }
    }
}

impl<P: Scripted, C: Connection> Sealed for RedisGrant<P, C> {}

impl<P: Scripted, C: Connection> Granted for RedisGrant<P, C> {
    type Cost = P::Cost;

    fn cost(&self) -> P::Cost {
        self.cost
    }

    fn waited(&self) -> Duration {
        self.info.waited
    }

    fn limited_by(&self) -> Option<Part> {
        self.info.limited_by
    }

    fn send_settlement(&mut self, actual: P::Cost) -> Result<(), Error> {
        if let Some(local) = &mut self.local {
            local.settle(actual)?;
        }
        let before = [self.cost, self.returnable];
        let (more, less) = (actual.saturating_sub(self.cost), self.cost.saturating_sub(actual));
        // The smaller of `less` and `returnable` comes back.
        let kept = self.returnable.saturating_sub(less);
        let part = self.returnable.saturating_sub(kept);
        let answer = match self.info.booking {
            None => None,
            Some(booking) => self.shared.with_lock(|line| -> Result<_, Error> {
                let mut todo = Vec::new();
                if !more.is_zero() {
                    let now = line.now();
                    let policy = &line.agreement.policy;
                    policy.check_debt(&policy.idle(now), now, more)?;
                    todo = wire::with_cost(b'S', more);
                    line.lease.hold::<P>(more);
                }
                if !less.is_zero() {
                    line.let_go(less);
                }
                let refund = Refund::of(part, self.returnable, booking);
                let is_any = refund.is_some() || !todo.is_empty();
                Ok(is_any.then(|| line.request(KeyChange { refund, ..KeyChange::of(todo) })))
            })?,
        };
        (self.cost, self.returnable) = (actual, kept);
        self.settling = answer.map(|answer| (answer, before));
        Ok(())
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some((answer, before)) = &mut self.settling else { return Poll::Ready(Ok(())) };
        // The line that reports it lives as long as this grant.
        let outcome = ready!(Pin::new(answer).poll(context)).unwrap_or(Ok(None));
        let before = *before;
        self.settling = None;
        Poll::Ready(outcome.map(drop).inspect_err(|error| self.settlement_failed(before, error)))
    }

    fn settle_on_drop(&mut self, actual: P::Cost) {
        // While the outcome of another one is unknown, so is the difference.
        if self.settling.is_none() {
            // A shortfall that takes 146 years to pay off.
            drop(Granted::send_settlement(self, actual));
        }
    }

    fn give_back(&mut self) {
        if let Some(booking) = self.info.booking {
            let all = self.returnable;
            self.shared.with_lock(|line| line.refund(all, all, booking));
        }
        if let Some(local) = &mut self.local {
            // After that the drop gives nothing back.
            drop(local.settle(P::Cost::default()));
        }
    }

    fn holds_places(&self) -> bool {
        P::HELD
    }
}

impl<P: Scripted, C: Connection> Drop for RedisGrant<P, C> {
    fn drop(&mut self) {
        let held = self.cost;
        if P::HELD && !held.is_zero() && self.info.booking.is_some() {
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
