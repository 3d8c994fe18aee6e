//! What the front desk asks of a limiter whose threads hold permits.

use std::fmt;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::grant::CachedGrant;
use super::shared::Shared;
use super::source::Source;
use super::{CachedRateLimiter, thread};
use crate::error::Error;
use crate::limiter::{Ask, Handle, InProcess, Limiter, Queue, sealed::Sealed};
use crate::policy::{Limit, Policy, Quota, Snapshot};
use crate::rate_limiter::place::LinePlace;
use crate::rate_limiter::{Grant, RateLimiter};
use crate::unwinding::in_drop;
use crate::wait_queue::{Claim, End};

/// Where a caller stands.
pub struct CachedPlace<P: Policy<Cost = u32>> {
    /// At the limiter.
    line: LinePlace<P>,
    /// The permits of a reservation that had not to wait.
    granted: Option<CachedGrant<P>>,
}

impl<P: Policy<Cost = u32>> Default for CachedPlace<P> {
    fn default() -> Self {
        Self { line: LinePlace::default(), granted: None }
    }
}

impl<P: Policy<Cost = u32>> fmt::Debug for CachedPlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.granted.is_some() { f.write_str("granted") } else { self.line.fmt(f) }
    }
}

impl<P: Policy<Cost = u32>> CachedRateLimiter<P> {
    fn take(&self, n: u32) -> Result<CachedGrant<P>, Error> {
        self.take_by(thread::known(), thread::number, n)
    }

    pub(super) fn take_by(
        &self,
        known: usize,
        number: impl FnOnce() -> usize,
        n: u32,
    ) -> Result<CachedGrant<P>, Error> {
        let slots = &self.shared.slots;
        let source = if slots.take(known, n) {
            Source { limiter: None, origin: slots.origin(known) }
        } else {
            self.shared.take_otherwise(number, n)?
        };
        Ok(CachedGrant::new(&self.shared, n, source))
    }

    /// Decides a call that has not been decided. `None` if it goes on in the limiter's queue.
    fn decide(
        &self,
        ask: &Ask<u32>,
        place: &mut CachedPlace<P>,
    ) -> Option<Result<CachedGrant<P>, Error>> {
        if !place.line.is_outside() {
            return None;
        }
        let answer = self.take(ask.cost);
        let is_over = ask.max_wait == Some(Duration::ZERO) && matches!(ask.claim, Claim::InOrder);
        if matches!(answer, Err(Error::Denied { .. })) && !is_over {
            return None;
        }
        place.line.is_over();
        Some(answer)
    }

    fn poll_decided(
        &self,
        ask: &Ask<u32>,
        place: &mut CachedPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<CachedGrant<P>, Error>> {
        if let Some(granted) = place.granted.take() {
            return Poll::Ready(Ok(granted));
        }
        let inner = &mut (&self.shared.limiter).into();
        let grant = ready!(<&RateLimiter<P>>::poll_acquire(inner, ask, &mut place.line, context))?;
        Poll::Ready(Ok(CachedGrant::new(&self.shared, ask.cost, Source::limiter(grant))))
    }
}

impl<P: Policy<Cost = u32>> Sealed for CachedRateLimiter<P> {}
impl<P: Policy<Cost = u32>> InProcess for CachedRateLimiter<P> {}

impl<P: Policy<Cost = u32>> Queue for CachedRateLimiter<P> {
    type Cost = u32;
    type Grant = CachedGrant<P>;
    type Handle = Option<Self>;
    type Place = CachedPlace<P>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<u32>,
        place: &mut CachedPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<CachedGrant<P>, Error>> {
        let limiter = limiter.get();
        match limiter.decide(ask, place) {
            Some(answer) => Poll::Ready(answer),
            None => limiter.poll_decided(ask, place, context),
        }
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<u32>,
        place: &mut CachedPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let limiter = limiter.get();
        if let Some(answer) = limiter.decide(ask, place) {
            place.granted = Some(answer?);
        }
        let inner = &mut (&limiter.shared.limiter).into();
        <&RateLimiter<P>>::poll_enter(inner, ask, &mut place.line, context)
    }

    fn leave(limiter: &Self::Handle, ask: &Ask<u32>, place: &mut CachedPlace<P>) {
        if let Some(limiter) = limiter {
            let inner = &(&limiter.shared.limiter).into();
            <&RateLimiter<P>>::leave(inner, ask, &mut place.line);
        }
        if let Some(granted) = place.granted.take() {
            in_drop(|| granted.refund());
        }
    }

    fn delay(limiter: &Self::Handle, place: &CachedPlace<P>) -> Duration {
        <&RateLimiter<P>>::delay(&(&limiter.get().shared.limiter).into(), &place.line)
    }

    fn into_owned(limiter: &mut Self::Handle, place: CachedPlace<P>) -> (Self, CachedPlace<P>) {
        (Handle::take(limiter), place)
    }
}

impl<P: Policy<Cost = u32>> Limiter for CachedRateLimiter<P> {
    async fn try_acquire_up_to(&self, n: u32) -> Result<Self::Grant, Error> {
        let Shared { slots, limiter, .. } = &*self.shared;
        let held = slots.take_up_to(thread::number(), n);
        let (held, origin) = held.map_or((0, None), |held| (held.permits, Some(held.origin)));
        // On credit only if there is nothing else.
        let rest = if held > 0 { limiter.available().min(n - held) } else { n };
        let rest = (rest > 0).then(|| limiter.try_acquire_up_to(rest).ok()).flatten();
        if rest.is_none() && held == 0 {
            return self.take(n.min(1));
        }
        let n = held + rest.as_ref().map_or(0, Grant::cost);
        Ok(CachedGrant::new(&self.shared, n, Source { limiter: rest, origin }))
    }

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.pause_for(duration);
        Ok(())
    }

    async fn resume(&self) -> Result<(), Error> {
        self.resume();
        Ok(())
    }

    async fn reset(&self) -> Result<(), Error> {
        self.shared.slots.discard();
        self.shared.limiter.reset();
        Ok(())
    }

    async fn shrink_to(&self, remaining: u32) -> Result<Self::Grant, Error> {
        let Shared { slots, limiter, .. } = &*self.shared;
        let held = slots.held();
        if held > remaining {
            slots.discard();
        }
        let grant = limiter.shrink_to(remaining.checked_sub(held).unwrap_or(remaining));
        Ok(CachedGrant::new(&self.shared, grant.cost(), Source::limiter(grant)))
    }

    async fn take_anyway(&self, n: u32) -> Result<Self::Grant, Error> {
        let grant = self.shared.limiter.take_anyway(n)?;
        Ok(CachedGrant::new(&self.shared, n, Source::limiter(grant)))
    }

    async fn would_wait(&self, n: u32) -> Result<Option<Duration>, Error> {
        if self.shared.slots.held() >= n {
            return Ok(Some(Duration::ZERO));
        }
        self.shared.limiter.would_wait(n)
    }

    async fn quota(&self) -> Result<Quota<u32>, Error> {
        let Shared { slots, limiter, .. } = &*self.shared;
        let mut quota = limiter.quota();
        quota.remaining = quota.remaining.saturating_add(slots.held());
        Ok(quota)
    }

    async fn snapshot(&self) -> Result<Snapshot<u32>, Error> {
        let quota = Limiter::quota(self).await?;
        Ok(Snapshot { quota, ..self.shared.limiter.snapshot() })
    }

    async fn limits(&self, cost: u32) -> Result<Vec<Limit<u32>>, Error> {
        let Shared { slots, limiter, .. } = &*self.shared;
        let mut limits = limiter.limits(cost);
        for limit in &mut limits {
            limit.remaining = limit.remaining.saturating_add(slots.held());
        }
        Ok(limits)
    }

    fn end(&self, end: End<'_>) -> bool {
        let answer = self.shared.limiter.end(end);
        if matches!(end, End::Close | End::Serve) {
            // After the limiter: what is drawn before that is of an earlier epoch.
            self.shared.slots.close();
        }
        answer
    }

    crate::limiter::as_inner_limiter!(counts, Limiter | cached | &cached.shared.limiter);
    crate::limiter::as_inner_limiter!(reports, Limiter | cached | &cached.shared.limiter);
}
