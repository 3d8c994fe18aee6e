//! Waiting: where a caller stands in a line, and the loop that waits on a thread.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::grant::Grant;
use super::grant_owner::GrantOwner;
use crate::error::Error;
use crate::limiter::Ask;
use crate::line::{Admission, Charge, Line, WaitStatus};
use crate::policy::Policy;
use crate::unwinding::in_drop;
use crate::wait_queue::WaiterId;

/// Where a caller of a line stands.
pub struct LinePlace<P: Policy>(WaiterState<P>);

enum WaiterState<P: Policy> {
    Outside,
    Waiting(WaiterId),
    Granted(Charge<P::Receipt>),
    Over,
}

impl<P: Policy> Default for LinePlace<P> {
    #[inline]
    fn default() -> Self {
        Self(WaiterState::Outside)
    }
}

impl<P: Policy> LinePlace<P> {
    /// That of a caller that was decided elsewhere.
    pub(crate) fn over() -> Self {
        Self(WaiterState::Over)
    }

    #[inline]
    fn is_outside(&self) -> bool {
        matches!(self.0, WaiterState::Outside)
    }

    /// Decides a new call at once if possible.
    #[inline(always)]
    pub(super) fn decide(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let charge = if self.is_outside() { line.decide(ask.cost, ask.max_wait) } else { None }?;
        self.0 = WaiterState::Over;
        Some(charge)
    }

    pub(super) fn enter_unless_there(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
    ) -> Result<(), Error> {
        match self.decide(line, ask) {
            Some(charge) => self.end(charge),
            None if self.is_outside() => self.enter(line, ask, None),
            None => Ok(()),
        }
    }

    /// Is granted, or joins the queue.
    fn enter(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<(), Error> {
        self.0 = WaiterState::Over;
        self.0 = match line.enter(ask, waker)? {
            Admission::Granted(charge) => WaiterState::Granted(charge),
            Admission::Waiting(key) => WaiterState::Waiting(key),
        };
        Ok(())
    }

    pub(super) fn delay(&self, line: &Line<P>) -> Duration {
        match self.0 {
            WaiterState::Waiting(key) => line.with_lock(|inner, now| inner.delay(key, now)),
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
        if self.is_outside() {
            self.enter(line, ask, Some(context.waker()))?;
            if matches!(self.0, WaiterState::Waiting(_)) && !line.clock.advances_by_itself() {
                return Poll::Pending;
            }
        }
        match self.0 {
            WaiterState::Granted(_) => Poll::Ready(Ok(self.take(line))),
            WaiterState::Waiting(key) => self.wait(line, key, context.waker()),
            WaiterState::Outside | WaiterState::Over => {
                panic!("`Acquire` polled after it was ready")
            }
        }
    }

    fn wait(
        &mut self,
        line: &Line<P>,
        key: WaiterId,
        waker: &Waker,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if let Some(outcome) = line.take_outcome(key) {
            self.end(outcome)?;
            return Poll::Ready(Ok(self.take(line)));
        }
        loop {
            match line.with_lock(|inner, _| inner.poll(key, waker)) {
                WaitStatus::Over(outcome) => {
                    self.end(outcome)?;
                    return Poll::Ready(Ok(self.take(line)));
                }
                // A clock that advances by itself skips to the time at which the queue moves.
                WaitStatus::Waiting(Some(due)) if line.clock.skip_to(due) => {}
                WaitStatus::Waiting(_) => return Poll::Pending,
            }
        }
    }

    #[inline(always)]
    fn end(&mut self, outcome: Result<Charge<P::Receipt>, Error>) -> Result<(), Error> {
        self.0 = WaiterState::Over;
        self.0 = WaiterState::Granted(outcome?);
        Ok(())
    }

    /// Reports the grant and takes it. The place keeps it until it is reported, as a listener may panic.
    #[inline(always)]
    fn take(&mut self, line: &Line<P>) -> Charge<P::Receipt> {
        let WaiterState::Granted(charge) = &mut self.0 else { unreachable!("no grant") };
        if charge.waited > 0 {
            let observer = line.observer.get();
            observer.granted(Duration::from_nanos(charge.waited), charge.limited_by);
        }
        let charge = charge.take();
        self.0 = WaiterState::Over;
        charge
    }

    /// As `Limiter::leave`.
    #[inline(always)]
    pub(super) fn leave(&mut self, line: &Line<P>, cost: P::Cost) {
        if !matches!(self.0, WaiterState::Outside | WaiterState::Over) {
            self.leave_line(line, cost);
        }
    }

    #[inline(never)]
    fn leave_line(&mut self, line: &Line<P>, cost: P::Cost) {
        in_drop(|| match &mut self.0 {
            WaiterState::Outside | WaiterState::Over => {}
            WaiterState::Waiting(key) => line.leave(*key),
            WaiterState::Granted(charge) => {
                line.with_lock(|inner, now| inner.give_up(now, cost, charge.take()));
            }
        });
    }
}

impl<P: Policy> fmt::Debug for LinePlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            WaiterState::Outside => "outside",
            WaiterState::Waiting(_) => "waiting",
            WaiterState::Granted(_) => "granted",
            WaiterState::Over => "over",
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
        None if size_of::<P::Receipt>() <= 3 * size_of::<u64>() => {
            grant(line, cost, line.enter_now(cost))
        }
        None => enter_now_for_grant(line, cost),
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

/// The code of a composed policy is large, and the grant of a call that comes here would enlarge the code of each call.
#[inline(never)]
fn enter_now_for_grant<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
) -> Result<Grant<'_, P>, Error> {
    grant(line, cost, line.enter_now(cost))
}
