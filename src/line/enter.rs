//! What a caller gets of a line: permits now, or a place in the queue.

use std::task::Waker;
use std::time::Duration;

use super::Line;
use super::charge::{Charge, Taking};
use super::inner::{Admission, Inner};
use crate::error::Error;
use crate::policy::Policy;
use crate::units::Nanos;
use crate::unwinding::in_drop;
use crate::wait_queue::{Claim, WaiterId};

impl<P: Policy> Line<P> {
    /// Takes `cost` if it is ready and no caller waits, else joins the queue for up to `max_wait`, at the place
    /// that it claims; fails at once if that cannot be enough. `entered` gets the outcome.
    #[inline]
    pub(crate) fn enter(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        match self.decide_again(cost, max_wait) {
            Some(charge) => charge.map(Admission::Granted).map(entered),
            None => self.enter_with_lock(cost, max_wait, claim, waker, entered),
        }
    }

    // Not inlined, to keep the path without a wait short.
    #[inline(never)]
    fn enter_with_lock(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        self.with_lock(|inner, now| inner.enter(now, cost, max_wait, claim, waker).map(entered))
    }

    /// Takes permits by `take`, which does not count them as granted.
    pub(crate) fn take(&self, take: impl FnOnce(&mut Inner<P>, Nanos) -> Taking<P>) -> Taking<P> {
        let mut taken = Taken::new(self);
        taken.is_granted = false;
        self.with_lock(|inner, now| taken.charge = Some(take(inner, now)));
        taken.handed_over()
    }

    /// Takes permits by `take`, which counts them as granted, or fails.
    #[cfg(feature = "feedback")]
    pub(crate) fn try_take<E>(
        &self,
        take: impl FnOnce(&mut Inner<P>, Nanos) -> Result<Taking<P>, E>,
    ) -> Result<Taking<P>, E> {
        let mut taken = Taken::new(self);
        self.with_lock(|inner, now| take(inner, now).map(|taking| taken.charge = Some(taking)))?;
        Ok(taken.handed_over())
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    // Not a grant, for the reason given at `LinePlace::poll_in_line`.
    #[inline(never)]
    pub(crate) fn enter_now(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        let decided = self.decide_again(cost, Some(Duration::ZERO));
        decided.unwrap_or_else(|| self.enter_now_with_lock(cost))
    }

    #[inline(never)]
    fn enter_now_with_lock(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        let mut taken = Taken::new(self);
        let hand_over = |entered| match entered {
            Admission::Granted(charge) => taken.charge = Some((cost, charge)),
            // A caller with no time to wait is granted or refused; see `Inner::try_enter`.
            Admission::Waiting(_) => unreachable!("waiting without time to wait"),
        };
        self.enter_with_lock(cost, Some(Duration::ZERO), Claim::InOrder, None, hand_over)?;
        Ok(taken.handed_over().1)
    }

    /// The outcome of a waiter, if it is decided. Grants nothing, but wakes the callers that were granted with this one.
    pub(crate) fn take_outcome(&self, id: WaiterId) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.clock.wake_others();
        self.briefly(|inner| inner.take_outcome(id))
    }

    /// A waiting caller leaves. Also wakes the callers that were granted with this one.
    pub(crate) fn leave(&self, id: WaiterId) {
        self.clock.wake_others();
        if self.briefly(|inner| inner.leave_quietly(id, || self.clock.now())).is_none() {
            self.with_lock(|inner, now| inner.leave(id, now));
        }
    }
}

/// Permits that were charged, on the way to their caller: given back if a panic over others comes between.
struct Taken<'a, P: Policy> {
    line: &'a Line<P>,
    charge: Option<Taking<P>>,
    /// Whether they count as granted.
    is_granted: bool,
}

impl<'a, P: Policy> Taken<'a, P> {
    fn new(line: &'a Line<P>) -> Self {
        Self { line, charge: None, is_granted: true }
    }

    fn handed_over(mut self) -> Taking<P> {
        self.charge.take().unwrap_or_else(|| unreachable!("taken, or an error"))
    }
}

impl<P: Policy> Drop for Taken<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((cost, charge)) = self.charge.take() {
            let (line, is_granted) = (self.line, self.is_granted);
            let back = |inner: &mut Inner<P>, now| {
                if is_granted {
                    inner.give_up(now, cost, charge);
                } else {
                    inner.put_back(now, cost, charge);
                }
            };
            in_drop(|| line.with_lock(back));
        }
    }
}
