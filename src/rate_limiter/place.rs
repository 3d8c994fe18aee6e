//! A caller of a limiter: it is decided at once, or waits in the queue.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::RateLimiter;
use super::grant::{Grant, GrantOwner};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, InProcess, Limiter, Queue, sealed::Sealed};
use crate::line::{Admission, Charge, Decided, Line};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Policy, Quota};
use crate::stats::{Stats, Waits};
use crate::unwinding::in_drop;
use crate::wait_queue::{End, WaiterId};

/// Where a caller of a line stands.
pub enum LinePlace<P: Policy> {
    Outside,
    Waiting(WaiterId),
    Granted(Charge<P::Receipt>),
    Over,
}

impl<P: Policy> Default for LinePlace<P> {
    #[inline]
    fn default() -> Self {
        Self::Outside
    }
}

impl<P: Policy> LinePlace<P> {
    /// Decides a new call at once if possible.
    #[inline(always)]
    fn decide(&mut self, line: &Line<P>, ask: &Ask<P::Cost>) -> Decided<P> {
        let is_new = matches!(self, Self::Outside);
        let charge = if is_new { line.decide(ask.cost, ask.max_wait) } else { None }?;
        *self = Self::Over;
        Some(charge)
    }

    /// Is granted, or joins the queue, unless it is there.
    fn enter(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<(), Error> {
        if matches!(self, Self::Outside) {
            *self = Self::Over;
            *self = match line.enter(ask, waker)? {
                Admission::Granted(charge) => Self::Granted(charge),
                Admission::Waiting(id) => Self::Waiting(id),
            };
        }
        Ok(())
    }

    fn delay(&self, line: &Line<P>) -> Duration {
        match *self {
            Self::Waiting(id) => line.with_lock(|inner, now| inner.delay(id, now)),
            _ => Duration::ZERO,
        }
    }

    /// Waits in the queue.
    // Returns a charge and not a grant: a grant would be returned through memory, and would force the calls that
    // are decided at once through memory too.
    #[inline(never)]
    fn poll_in_line(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if matches!(self, Self::Outside) {
            self.enter(line, ask, Some(context.waker()))?;
            if matches!(self, Self::Waiting(_)) && !line.clock.advances_by_itself() {
                return Poll::Pending;
            }
        }
        while let Self::Waiting(id) = *self {
            let outcome = match line.take_outcome(id) {
                Some(outcome) => outcome,
                None => match line.with_lock(|inner, _| inner.poll(id, context.waker())) {
                    Ok(outcome) => outcome,
                    // A clock that advances by itself skips to the time at which the queue moves.
                    Err(Some(due)) if line.clock.skip_to(due) => continue,
                    Err(_) => return Poll::Pending,
                },
            };
            *self = Self::Over;
            *self = Self::Granted(outcome?);
        }
        let Self::Granted(charge) = self else { panic!("`Acquire` polled after it was ready") };
        if charge.waited > 0 {
            // The place keeps the charge until it is reported, as a listener may panic.
            line.observer.granted(Duration::from_nanos(charge.waited), charge.limited_by);
        }
        let charge = charge.take();
        *self = Self::Over;
        Poll::Ready(Ok(charge))
    }

    /// As `Limiter::leave`.
    #[inline(always)]
    fn leave(&mut self, line: &Line<P>, cost: P::Cost) {
        if !matches!(self, Self::Outside | Self::Over) {
            self.leave_line(line, cost);
        }
    }

    #[inline(never)]
    fn leave_line(&mut self, line: &Line<P>, cost: P::Cost) {
        in_drop(|| match self {
            Self::Outside | Self::Over => {}
            Self::Waiting(id) => line.leave(*id),
            Self::Granted(charge) => {
                line.with_lock(|inner, now| inner.give_up(now, cost, charge.take()));
            }
        });
    }
}

impl<P: Policy> fmt::Debug for LinePlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "outside",
            Self::Waiting(_) => "waiting",
            Self::Granted(_) => "granted",
            Self::Over => "over",
        })
    }
}

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
        let limiter: &'a RateLimiter<P> = limiter;
        if let Some(charge) = place.decide(&limiter.line, ask) {
            return Poll::Ready(Grant::borrowing(&limiter.line, ask.cost, charge));
        }
        let charge = place.poll_in_line(&limiter.line, ask, context);
        charge.map(|charge| Grant::borrowing(&limiter.line, ask.cost, charge))
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        RateLimiter::poll_enter(limiter, ask, place, context)
    }

    #[inline(always)]
    fn leave(limiter: &Self, ask: &Ask<P::Cost>, place: &mut LinePlace<P>) {
        place.leave(&limiter.line, ask.cost);
    }

    fn delay(limiter: &Self, place: &LinePlace<P>) -> Duration {
        place.delay(&limiter.line)
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, place: LinePlace<P>) -> Acquire<Self::Owned> {
        RateLimiter::into_owned(limiter, ask, place)
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
