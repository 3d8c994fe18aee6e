//! Permits that were granted, and where they come from: a line, or a key without waiters.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::time::Duration;

use super::open_grant::{GrantId, OpenGrant};
use crate::error::Error;
use crate::limiter::{Granted, Metered, forward, sealed::Sealed};
use crate::line::{Change, Charge, Inner, Line};
use crate::part::Part;
use crate::policy::{Cost, Policy, Quota};

/// Permits that were granted.
///
/// For a rule with a rate, dropping the grant does nothing: the permits stay charged. The grant reports the
/// wait and can correct the cost. For [`InFlight`](crate::InFlight), alone or as a part of a composed policy,
/// **dropping the grant gives the place back**: keep it as long as the call takes. A statement
/// `limiter.acquire(1).await?;` drops it at once, and so limits nothing in flight. The type is not
/// `#[must_use]`, because that statement is correct for all other rules.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// limiter.blocking_acquire(1)?;
/// let grant = limiter.blocking_acquire(3)?;
/// assert_eq!(grant.waited().as_millis(), 200);
/// assert_eq!(grant.cost(), 3);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct Grant<'a, P: Policy> {
    source: GrantOwner<'a, P>,
    cost: P::Cost,
    /// The part of the cost that can be given back at the price that was paid.
    returnable: P::Cost,
    charge: Charge<P::Receipt>,
}

impl<'a, P: Policy> Grant<'a, P> {
    #[inline]
    pub(crate) fn new(
        source: GrantOwner<'a, P>,
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Self {
        Self { source, cost, returnable: cost, charge }
    }

    /// The grant of a call that borrows its limiter.
    #[inline(always)]
    pub(super) fn borrowing(
        line: &'a Arc<Line<P>>,
        cost: P::Cost,
        charge: Result<Charge<P::Receipt>, Error>,
    ) -> Result<Self, Error> {
        charge.map(|charge| Self::new(GrantOwner::borrowed(line), cost, charge))
    }

    forward! {
        in Granted {
            /// The time that the caller waited, from its arrival to the time at which the grant was due. Its task or
            /// thread may have run a little later.
            #[must_use]
            waited() -> Duration;
            /// The requested permits; after [`settle`](Self::settle), the corrected cost.
            #[must_use]
            cost() -> P::Cost;
            /// The limit of a composed policy that made the caller wait: the one that was ready last.
            /// `None` for a single rule, or if the caller did not wait.
            #[must_use]
            limited_by() -> Option<Part>;
        }
    }

    /// What the policy noted when it was charged.
    #[cfg(feature = "feedback")]
    pub(crate) fn receipt(&self) -> Option<&P::Receipt> {
        self.charge.receipt.as_ref()
    }

    /// The quota that remains now, after this and all later grants.
    #[must_use]
    pub fn quota(&self) -> Quota<P::Cost> {
        self.source.with_line(|line| line.look(Inner::quota))
    }

    /// Converts the grant into one without a borrow, which can move into a task.
    ///
    /// ```
    /// # use tollgate::{InFlight, ManualClock, RateLimiter};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    /// let grant = limiter.try_acquire(1)?.into_owned();
    /// assert!(limiter.try_acquire(1).is_err());
    /// tokio::spawn(async move { drop(grant) }).await?;
    /// assert!(limiter.try_acquire(1).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_owned(mut self) -> Grant<'static, P> {
        let source = self.source.take_owned();
        let (returnable, charge) = (self.returnable, self.charge.take());
        // `self` keeps no permits to give back.
        Grant { source, cost: mem::take(&mut self.cost), returnable, charge }
    }

    /// Corrects the cost once the actual one is known. An excess returns as by [`refund`](Self::refund), also under load; a
    /// shortfall becomes debt, for which the next caller waits. [`metered`](Self::metered) settles also when the call is
    /// cancelled.
    ///
    /// `settle` can be called again. A later call does not return permits that an earlier call added, except
    /// places in flight.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if paying off the shortfall would take longer than
    /// [146 years](crate::Nanos::HORIZON); then nothing changes.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.blocking_acquire(10)?.settle(12)?;
    /// assert_eq!(limiter.blocking_acquire(1)?.waited().as_millis(), 2400);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn settle(&mut self, actual: P::Cost) -> Result<(), Error> {
        let (more, less) = (actual.saturating_sub(self.cost), self.cost.saturating_sub(actual));
        // The smaller of `less` and `returnable`.
        let part = less.saturating_sub(less.saturating_sub(self.returnable));
        let receipt = self.charge.receipt.clone();
        let change = Change { more, part, less, receipt };
        self.charge.receipt = self.source.with_line(|line| line.change(&change))?;
        self.returnable = self.returnable.saturating_sub(part);
        self.cost = actual;
        Ok(())
    }

    /// Gives the permits back, for a request that was not made.
    ///
    /// Before a later grant all of them return. After one a bucket returns `min(n, capacity - the most it has held since)`, so
    /// that it holds what it would without the charge; windows and logs return all permits that still count. Policies that
    /// store nothing ([`evenly_spaced`](crate::SmoothBursty::evenly_spaced), [`SmoothWarmingUp`](crate::SmoothWarmingUp)) return
    /// nothing after a later grant. A pause loses what it would have stored.
    ///
    /// Without a refund the permits stay charged when the grant is dropped; only places in flight return then.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.try_acquire(10)?.refund();
    /// assert!(limiter.try_acquire(1).is_ok());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refund(mut self) {
        self.refund_now();
    }

    /// The grant, settled when it is dropped: at what the call reports until then, or else at its estimate.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let mut call = limiter.acquire(2_000).await?.metered();
    /// call.add(500);
    /// drop(call);
    /// assert_eq!(limiter.available(), 89_500);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Metered::new(self)
    }

    fn refund_now(&mut self) {
        let (part, receipt) = (self.returnable, self.charge.receipt.take());
        // Nothing is left for the drop to release.
        let held = mem::take(&mut self.cost);
        // Permits and places at once: between the two a waiter could be refused.
        // Without a shortfall it cannot fail.
        let change = Change::back(part, held, receipt);
        let _ = self.source.with_line(|line| line.change(&change));
    }
}

impl<P: Policy> Sealed for Grant<'_, P> {}

impl<P: Policy> Granted for Grant<'_, P> {
    type Cost = P::Cost;

    fn cost(&self) -> P::Cost {
        self.cost
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.charge.waited)
    }

    fn limited_by(&self) -> Option<Part> {
        self.charge.limited_by
    }

    fn send_settlement(&mut self, actual: P::Cost) -> Result<(), Error> {
        self.settle(actual)
    }

    fn give_back(&mut self) {
        self.refund_now();
    }

    fn holds_places(&self) -> bool {
        P::HELD
    }
}

impl<P: Policy> Drop for Grant<'_, P> {
    // Inlined like `Line::decide`; otherwise a grant that is dropped at once would be written to memory.
    #[inline(always)]
    fn drop(&mut self) {
        if P::HELD && !self.cost.is_zero() {
            self.source.release(self.cost);
        }
    }
}

impl<P: Policy> fmt::Debug for Grant<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("waited", &self.waited()).finish()
    }
}

/// The source of a grant's permits. A call that is decided at once borrows it, so that it counts no reference.
// Dropped by hand: dropping a borrow does nothing, but the compiler calls the drop of this enum as a
// function, which takes a quarter of the time of a call.
pub(crate) struct GrantOwner<'a, P: Policy>(ManuallyDrop<Kind<'a, P>>);

enum Kind<'a, P: Policy> {
    Borrowed(&'a Arc<Line<P>>),
    Owned(Arc<Line<P>>),
    /// A key without waiters. It stays in the table as long as the grant can be settled.
    Key(&'a dyn Keys<P>, &'a OpenGrant, GrantId),
    OwnedKey(Arc<dyn Keys<P>>, GrantId),
    Dropped,
}

/// A table of keys.
pub(crate) trait Keys<P: Policy>: Send + Sync {
    /// The limiter of the key of a grant that is kept.
    fn line(&self, id: GrantId) -> Option<Arc<Line<P>>>;

    /// The grant can no longer be settled.
    fn close(&self, id: GrantId);

    fn share(&self) -> Arc<dyn Keys<P>>;
}

impl<'a, P: Policy> GrantOwner<'a, P> {
    #[inline]
    fn borrowed(line: &'a Arc<Line<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Borrowed(line)))
    }

    pub(crate) fn owned(line: Arc<Line<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Owned(line)))
    }

    /// The grant must have been opened.
    #[inline]
    pub(crate) fn key(keys: &'a dyn Keys<P>, open: &'a OpenGrant, id: GrantId) -> Self {
        Self(ManuallyDrop::new(Kind::Key(keys, open, id)))
    }

    /// Moves the source out.
    fn take(&mut self) -> Kind<'a, P> {
        ManuallyDrop::into_inner(mem::replace(&mut self.0, ManuallyDrop::new(Kind::Dropped)))
    }

    /// Uses the line. A key gets one now, if it has none.
    fn with_line<R>(&self, act: impl FnOnce(&Arc<Line<P>>) -> R) -> R {
        let of_key = match &*self.0 {
            Kind::Borrowed(line) => return act(line),
            Kind::Owned(line) => return act(line),
            Kind::Key(keys, _, id) => keys.line(*id),
            Kind::OwnedKey(keys, id) => keys.line(*id),
            Kind::Dropped => None,
        };
        act(&of_key.unwrap_or_else(|| unreachable!("the grant keeps its key")))
    }

    /// Called when the grant is dropped.
    #[inline(always)]
    fn release(&self, cost: P::Cost) {
        match &*self.0 {
            Kind::Borrowed(line) => line.release(cost),
            Kind::Owned(line) => line.release(cost),
            // A key with a place in flight has a line.
            Kind::Key(..) | Kind::OwnedKey(..) | Kind::Dropped => {}
        }
    }

    /// Without a borrow; the source is moved out.
    fn take_owned(&mut self) -> GrantOwner<'static, P> {
        GrantOwner(ManuallyDrop::new(match self.take() {
            Kind::Borrowed(line) => Kind::Owned(Arc::clone(line)),
            Kind::Owned(line) => Kind::Owned(line),
            Kind::Key(keys, _, id) => Kind::OwnedKey(keys.share(), id),
            Kind::OwnedKey(keys, id) => Kind::OwnedKey(keys, id),
            Kind::Dropped => Kind::Dropped,
        }))
    }
}

// Takes the source by value: a reference to it would keep each grant in memory.
#[inline(never)]
fn drop_what_is_owned<P: Policy>(source: Kind<'_, P>) {
    match source {
        Kind::Key(keys, _, id) => keys.close(id),
        Kind::OwnedKey(keys, id) => keys.close(id),
        Kind::Borrowed(_) | Kind::Owned(_) | Kind::Dropped => {}
    }
}

impl<P: Policy> Drop for GrantOwner<'_, P> {
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        match &*self.0 {
            Kind::Borrowed(_) => {}
            // Most are the last one of their shard when they are dropped.
            Kind::Key(_, open, id) if open.close(*id) => {}
            _ => drop_what_is_owned(self.take()),
        }
    }
}
