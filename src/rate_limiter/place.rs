//! Waiting: where a caller stands in a line, and the loop that waits on a thread.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::grant::Grant;
use super::grant_owner::GrantOwner;
use crate::error::Error;
use crate::limiter::Ask;
use crate::line::{Admission, Charge, Line, WaitStatus};
use crate::park::block_on;
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
    #[inline]
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.0, WaiterState::Outside)
    }

    /// The caller has its grant.
    #[inline]
    pub(crate) fn is_over(&mut self) {
        self.0 = WaiterState::Over;
    }

    pub(super) fn enter_unless_there(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
    ) -> Result<(), Error> {
        if self.is_outside() { self.enter(line, ask, false, None) } else { Ok(()) }
    }

    /// Joins the queue. `has_tried` if the caller has already been decided to need it.
    fn enter(
        &mut self,
        line: &Line<P>,
        ask: &Ask<P::Cost>,
        has_tried: bool,
        waker: Option<&Waker>,
    ) -> Result<(), Error> {
        if !has_tried && let Some(charge) = line.decide(ask.cost, ask.max_wait) {
            return self.end(charge);
        }
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
        has_tried: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if self.is_outside() {
            if !has_tried && let Some(charge) = line.decide(ask.cost, ask.max_wait) {
                self.0 = WaiterState::Over;
                return Poll::Ready(charge);
            }
            self.enter(line, ask, true, Some(context.waker()))?;
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

// Inlined for the reason given at `Line::decide`.
#[inline(always)]
pub(super) fn block<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Grant<'_, P>, Error> {
    match line.decide(cost, max_wait) {
        Some(charge) => grant(line, cost, charge),
        None => grant(line, cost, block_in_line(line, cost, max_wait)),
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

#[inline(never)]
fn block_in_line<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Charge<P::Receipt>, Error> {
    /// Leaves the line if the thread panics.
    struct Blocked<'a, P: Policy>(&'a Line<P>, Ask<P::Cost>, LinePlace<P>);
    impl<P: Policy> Drop for Blocked<'_, P> {
        fn drop(&mut self) {
            self.2.leave(self.0, self.1.cost);
        }
    }
    let mut blocked = Blocked(line, Ask::new(cost, max_wait), LinePlace::default());
    block_on(poll_fn(|context| blocked.2.poll_in_line(line, &blocked.1, true, context)))
}
