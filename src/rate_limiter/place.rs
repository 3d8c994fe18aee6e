//! Where a caller of a limiter stands: it is decided at once, or waits in the queue.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::grant::Grant;
use super::grant_owner::GrantOwner;
use crate::error::Error;
use crate::limiter::Ask;
use crate::line::{Admission, Charge, Decided, Line, WaitStatus};
use crate::policy::Policy;
use crate::unwinding::in_drop;
use crate::wait_queue::WaiterId;

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
    pub(super) fn decide(&mut self, line: &Line<P>, ask: &Ask<P::Cost>) -> Decided<P> {
        let is_new = matches!(self, Self::Outside);
        let charge = if is_new { line.decide(ask.cost, ask.max_wait) } else { None }?;
        *self = Self::Over;
        Some(charge)
    }

    /// Is granted, or joins the queue, unless it is there.
    pub(super) fn enter(
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

    pub(super) fn delay(&self, line: &Line<P>) -> Duration {
        match *self {
            Self::Waiting(id) => line.with_lock(|inner, now| inner.delay(id, now)),
            _ => Duration::ZERO,
        }
    }

    // Returns a charge and not a grant: a grant would be returned through memory, and would force the calls that
    // are decided at once through memory too.
    #[inline(never)]
    pub(super) fn poll_in_line(
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
        if let Self::Waiting(id) = *self {
            let outcome = ready!(Self::poll_outcome(line, id, context.waker()));
            *self = Self::Over;
            *self = Self::Granted(outcome?);
        }
        Poll::Ready(Ok(self.take(line)))
    }

    fn poll_outcome(
        line: &Line<P>,
        id: WaiterId,
        waker: &Waker,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if let Some(outcome) = line.take_outcome(id) {
            return Poll::Ready(outcome);
        }
        loop {
            match line.with_lock(|inner, _| inner.poll(id, waker)) {
                WaitStatus::Over(outcome) => return Poll::Ready(outcome),
                // A clock that advances by itself skips to the time at which the queue moves.
                WaitStatus::Waiting(Some(due)) if line.clock.skip_to(due) => {}
                WaitStatus::Waiting(_) => return Poll::Pending,
            }
        }
    }

    /// Reports the grant and takes it. The place keeps it until it is reported, as a listener may panic.
    #[inline(always)]
    #[track_caller]
    fn take(&mut self, line: &Line<P>) -> Charge<P::Receipt> {
        let Self::Granted(charge) = self else { panic!("`Acquire` polled after it was ready") };
        if charge.waited > 0 {
            let observer = line.observer.get();
            observer.granted(Duration::from_nanos(charge.waited), charge.limited_by);
        }
        let charge = charge.take();
        *self = Self::Over;
        charge
    }

    /// As `Limiter::leave`.
    #[inline(always)]
    pub(super) fn leave(&mut self, line: &Line<P>, cost: P::Cost) {
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

// Inlined for the reason given at `Line::decide`.
#[inline(always)]
pub(super) fn try_now<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
) -> Result<Grant<'_, P>, Error> {
    match line.decide(cost, Some(Duration::ZERO)) {
        Some(charge) => grant(line, cost, charge),
        None => enter_now(line, cost),
    }
}

#[inline(always)]
pub(super) fn grant<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
    charge: Result<Charge<P::Receipt>, Error>,
) -> Result<Grant<'_, P>, Error> {
    charge.map(|charge| Grant::new(GrantOwner::borrowed(line), cost, charge))
}

// The code of a composed policy is large, and the grant of a call that comes here would enlarge the code of each call.
#[inline(never)]
fn enter_now<P: Policy>(line: &Arc<Line<P>>, cost: P::Cost) -> Result<Grant<'_, P>, Error> {
    grant(line, cost, line.enter_now(cost))
}
