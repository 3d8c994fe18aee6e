//! What a caller gets of a line: permits now, or a place in the queue.

use std::task::Waker;
use std::time::Duration;

use super::Line;
use super::charge::Charge;
use super::inner::Admission;
use crate::error::Error;
use crate::policy::Policy;
use crate::wait_queue::{Ask, WaiterId};

impl<P: Policy> Line<P> {
    /// Takes the cost if it is ready and no caller waits, else joins the queue at the place that the caller claims; fails
    /// at once if its time to wait cannot be enough.
    #[inline]
    pub(crate) fn enter(
        &self,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        match self.decide_again(ask.cost, ask.max_wait) {
            Some(charge) => charge.map(Admission::Granted),
            None => self.enter_with_lock(ask, waker),
        }
    }

    // Not inlined, to keep the path without a wait short.
    #[inline(never)]
    fn enter_with_lock(
        &self,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        self.with_lock(|inner, now| inner.enter(now, ask, waker))
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    // Not a grant, for the reason given at `LinePlace::poll_in_line`.
    #[inline(never)]
    pub(crate) fn enter_now(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        match self.enter(&Ask::new(cost, Some(Duration::ZERO)), None)? {
            Admission::Granted(charge) => Ok(charge),
            Admission::Waiting(_) => unreachable!("a caller with no time does not wait"),
        }
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
