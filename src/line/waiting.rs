//! What a line has charged, and the callers that wait in it.

use std::task::Waker;

use crate::error::{Error, QueueLimit};
use crate::part::Part;
use crate::policy::{Cost, Policy};
use crate::units::Nanos;
use crate::wait_queue::{Bounds, Place, Tenant, WaitQueue, WaiterId, Waits};

/// Permits that were charged.
#[derive(Clone, Debug)]
pub struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of zero.
    pub(crate) receipt: Option<R>,
    /// Which of several rules the line waited for last.
    pub(crate) limited_by: Option<Part>,
}

impl<R> Charge<R> {
    /// Of a caller that did not wait.
    #[inline(always)]
    pub(crate) fn at_once(receipt: Option<R>) -> Self {
        Self { waited: 0, receipt, limited_by: None }
    }

    /// Moves the charge out; without a receipt nothing is left to give back.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        Self { receipt: self.receipt.take(), ..*self }
    }
}

/// How a charge changes later.
#[derive(Debug)]
pub(crate) struct Change<P: Policy> {
    /// Is charged.
    pub(crate) more: P::Cost,
    /// Is given back at the price that was paid.
    pub(crate) part: P::Cost,
    /// The places in flight that are given back.
    pub(crate) less: P::Cost,
    pub(crate) receipt: Option<P::Receipt>,
}

impl<P: Policy> Change<P> {
    /// Gives back `part`, and the places of `held`.
    pub(crate) fn back(part: P::Cost, held: P::Cost, receipt: Option<P::Receipt>) -> Self {
        Self { more: P::Cost::default(), part, less: held, receipt }
    }
}

pub(super) type Outcome<R> = Result<Charge<R>, Error>;

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
#[derive(Debug)]
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: WaitQueue<Waiter<P>>,
    /// How many permits the waiting callers ask for.
    pub(super) permits: u64,
    /// The same, part by part.
    pub(super) queued: <P::Cost as Cost>::Sum,
    pub(super) bounds: Bounds,
    /// When the next waiter is granted, if that is known.
    pub(super) due: Option<Nanos>,
    /// Which of several rules it waits for.
    pub(super) limited_by: Option<Part>,
    /// In a pause.
    pub(super) resumed: Option<Resumed<P::State>>,
}

/// In a pause: the state that counts if the pause ends early.
#[derive(Debug)]
pub(super) struct Resumed<S> {
    /// As if the pause had ended at `until`, the time of the last change.
    pub(super) state: S,
    pub(super) began: Nanos,
    pub(super) until: Nanos,
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    pub(super) cost: P::Cost,
    pub(super) joined: Nanos,
    /// Once it is out of the order. In a box, as a crowd waits and few have an outcome at a time.
    outcome: Option<Box<Outcome<P::Receipt>>>,
}

impl<P: Policy> Waits for Waiter<P> {
    fn permits(&self) -> u64 {
        self.cost.permits()
    }
}

impl<P: Policy> Default for Waiting<P> {
    // Not inlined, because any of many places may be the first to need it.
    #[inline(never)]
    fn default() -> Self {
        Self {
            queue: WaitQueue::new(),
            permits: 0,
            queued: Default::default(),
            bounds: Bounds::NONE,
            due: None,
            limited_by: None,
            resumed: None,
        }
    }
}

impl<P: Policy> Waiting<P> {
    /// Which bound `cost` more would exceed.
    pub(super) fn exceeded_by(&self, cost: P::Cost, tenant: Option<Tenant>) -> Option<QueueLimit> {
        let permits = self.permits.saturating_add(cost.permits());
        let of_tenant = tenant.map(|tenant| self.queue.len_of(tenant));
        self.bounds.exceeded(self.queue.len(), permits, of_tenant)
    }

    /// A caller joins at its place.
    pub(super) fn join(
        &mut self,
        place: &Place,
        (cost, joined): (P::Cost, Nanos),
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        self.permits = self.permits.saturating_add(cost.permits());
        self.queued = cost.add_to(self.queued);
        self.queue.join(place, Waiter { cost, joined, outcome: None }, deadline, waker)
    }

    /// Takes a caller out of the order; it may still have to learn the outcome. `is_granted`: as the first one, in its
    /// turn.
    pub(super) fn unlink(&mut self, id: WaiterId, is_granted: bool) {
        let cost = self.queue[id].cost;
        self.permits = self.permits.saturating_sub(cost.permits());
        self.queued = cost.take_from(self.queued);
        if is_granted {
            self.queue.grant(id);
        } else {
            self.queue.unlink(id);
        }
    }

    /// Sets the outcome of a caller that is out of the order, and wakes it.
    // Not inlined, because several places need it, and none of them is short.
    #[inline(never)]
    pub(super) fn finish(&mut self, id: WaiterId, outcome: Outcome<P::Receipt>) {
        self.queue[id].outcome = Some(Box::new(outcome));
        self.queue.wake(id);
    }

    pub(super) fn is_over(&self, id: WaiterId) -> bool {
        self.queue[id].outcome.is_some()
    }

    /// Takes the outcome of a waiter, if there is one, and then removes its entry.
    pub(super) fn take_outcome(&mut self, id: WaiterId) -> Option<Outcome<P::Receipt>> {
        let outcome = self.queue[id].outcome.take()?;
        self.queue.remove(id);
        Some(*outcome)
    }

    /// Whether no caller waits, and none is refused because the line is closed.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.len() == 0 && !self.queue.is_closed
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}
