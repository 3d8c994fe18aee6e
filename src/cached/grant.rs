//! Permits that a limiter with threads that hold some has granted.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::source::Source;
use super::thread;
use crate::error::Error;
use crate::limiter::{Granted, sealed::Sealed};
use crate::part::Part;
use crate::policy::Policy;
use crate::rate_limiter::Grant;

/// Permits granted by a [`CachedRateLimiter`](crate::CachedRateLimiter) as a [`Limiter`](crate::Limiter). Dropping it does nothing: the permits stay charged.
///
/// A correction upward is charged to the limiter. A refund or a correction downward returns what came from the
/// limiter, as [`Grant::refund`] does. What a thread held returns to it only on the same thread, before that has drawn
/// permits again, and not after a pause or a new policy. Otherwise it is lost, as is what was taken from another
/// thread: to put it back could let more through than the policy allows.
///
/// ```
/// use tollgate::{CachedGrant, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// let policy = TokenBucket::new(Rate::per_second(100_000.0), 1_000);
/// let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(1, 100);
/// let mut grant: CachedGrant<TokenBucket> = Limiter::blocking_acquire(&limiter, 10)?;
/// grant.settle(4)?;
/// assert_eq!((grant.cost(), limiter.available()), (4, 896));
/// # Ok::<(), tollgate::Error>(())
/// ```
pub struct CachedGrant<P: Policy<Cost = u32>> {
    shared: Arc<Shared<P>>,
    /// The permits that did not come from the limiter.
    held: u32,
    source: Source<'static, P>,
}

impl<P: Policy<Cost = u32>> CachedGrant<P> {
    crate::limiter::methods_of_granted!(in_process);

    pub(super) fn new(shared: &Arc<Shared<P>>, cost: u32, source: Source<'_, P>) -> Self {
        let Source { limiter, origin } = source;
        let held = cost - limiter.as_ref().map_or(0, Grant::cost);
        let source = Source { limiter: limiter.map(Grant::into_owned), origin };
        Self { shared: Arc::clone(shared), held, source }
    }

    /// Corrects the cost on `thread`; `correct` does so for the permits of the limiter.
    pub(super) fn correct<E>(
        &mut self,
        thread: usize,
        actual: u32,
        correct: impl FnOnce(&mut Grant<'static, P>, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let of_limiter = actual.saturating_sub(self.held);
        let grant = &mut self.source.limiter;
        if grant.as_ref().map_or(0, Grant::cost) != of_limiter {
            let limiter = &self.shared.limiter;
            // It takes nothing, but can be charged more.
            let nothing = || limiter.shrink_to(u32::MAX).into_owned();
            correct(grant.get_or_insert_with(nothing), of_limiter)?;
        }
        let less = self.held.saturating_sub(actual);
        self.held -= less;
        if less > 0
            && let Some(origin) = self.source.origin
        {
            self.shared.slots.give_back(thread, origin, less);
        }
        Ok(())
    }
}

impl<P: Policy<Cost = u32>> Sealed for CachedGrant<P> {}

impl<P: Policy<Cost = u32>> Granted for CachedGrant<P> {
    type Cost = u32;

    fn cost(&self) -> u32 {
        self.source.limiter.as_ref().map_or(0, Grant::cost).saturating_add(self.held)
    }

    fn waited(&self) -> Duration {
        self.source.limiter.as_ref().map_or(Duration::ZERO, Grant::waited)
    }

    fn limited_by(&self) -> Option<Part> {
        self.source.limiter.as_ref().and_then(Grant::limited_by)
    }

    fn send_settlement(&mut self, actual: u32) -> Result<(), Error> {
        self.correct(thread::known(), actual, Grant::settle)
    }

    fn settle_on_drop(&mut self, actual: u32) {
        let Ok(()) = self.correct(thread::known(), actual, |grant, actual| {
            grant.settle_on_drop(actual);
            Ok::<_, Infallible>(())
        });
    }

    fn give_back(&mut self) {
        let Ok(()) = self.correct(thread::known(), 0, |grant, _| {
            grant.give_back();
            Ok::<_, Infallible>(())
        });
    }

    fn holds_places(&self) -> bool {
        false
    }
}

impl<P: Policy<Cost = u32>> fmt::Debug for CachedGrant<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedGrant")
            .field("cost", &self.cost())
            .field("waited", &self.waited())
            .finish()
    }
}
