//! What the front desk asks of a limiter of one process, and of a borrow of it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::RateLimiter;
use super::grant::Grant;
use super::grant_owner::GrantOwner;
use super::place::{LinePlace, grant};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, InProcess, Limiter, Queue, sealed::Sealed};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Policy, Quota};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

impl<P: Policy> Sealed for RateLimiter<P> {}
#[doc(hidden)]
impl<P: Policy> Sealed for &RateLimiter<P> {}
impl<P: Policy> InProcess for RateLimiter<P> {}
#[doc(hidden)]
impl<P: Policy> InProcess for &RateLimiter<P> {}

impl<P: Policy> Queue for RateLimiter<P> {
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;
    type Place = LinePlace<P>;
    type Owned = Self;

    #[inline(never)]
    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Grant, Error>> {
        let charge = match place.decide(&limiter.line, ask) {
            Some(charge) => Poll::Ready(charge),
            None => place.poll_in_line(&limiter.line, ask, context),
        };
        charge.map_ok(|charge| {
            Grant::new(GrantOwner::owned(Arc::clone(&limiter.line)), ask.cost, charge)
        })
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        Poll::Ready(place.enter(&limiter.line, ask, None))
    }

    fn leave(limiter: &Self, ask: &Ask<P::Cost>, place: &mut LinePlace<P>) {
        place.leave(&limiter.line, ask.cost);
    }

    fn delay(limiter: &Self, place: &LinePlace<P>) -> Duration {
        place.delay(&limiter.line)
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, place: LinePlace<P>) -> Acquire<Self> {
        Acquire::at(limiter.clone(), *ask, place)
    }
}

#[doc(hidden)]
impl<'a, P: Policy> Queue for &'a RateLimiter<P> {
    type Cost = P::Cost;
    type Grant = Grant<'a, P>;
    type Place = LinePlace<P>;
    type Owned = RateLimiter<P>;

    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        let limiter: &'a RateLimiter<P> = *limiter;
        if let Some(charge) = place.decide(&limiter.line, ask) {
            return Poll::Ready(grant(&limiter.line, ask.cost, charge));
        }
        let charge = place.poll_in_line(&limiter.line, ask, context);
        charge.map(|charge| grant(&limiter.line, ask.cost, charge))
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        Poll::Ready(place.enter(&limiter.line, ask, None))
    }

    #[inline(always)]
    fn leave(limiter: &Self, ask: &Ask<P::Cost>, place: &mut LinePlace<P>) {
        place.leave(&limiter.line, ask.cost);
    }

    fn delay(limiter: &Self, place: &LinePlace<P>) -> Duration {
        place.delay(&limiter.line)
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, place: LinePlace<P>) -> Acquire<Self::Owned> {
        Acquire::at((*limiter).clone(), *ask, place)
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
        Ok(self.limits(cost))
    }

    fn end(&self, end: End<'_>) -> bool {
        self.line.end(end)
    }

    fn queue_len(&self) -> usize {
        self.queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.queued_permits()
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn waits(&self) -> Waits {
        self.waits()
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn name(&self) -> Option<&str> {
        self.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        self.observe()
    }
}
