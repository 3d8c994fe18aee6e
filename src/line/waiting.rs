//! The callers that wait in a line, and what each asks for.

use super::charge::Charge;
use super::tail::Tail;
use crate::error::{Error, QueueLimit};
use crate::policy::{Cost, Policy};
use crate::units::Nanos;
use crate::wait_queue::{Arrival, Arrived, Bounds, WaitQueue, WaiterId};

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
#[derive(Debug)]
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: WaitQueue<Waiter<P>>,
    /// The state behind all waiting callers, where the policy needs that to say when a newcomer is ready.
    pub(super) tail: Option<Tail<P::State, P::Cost>>,
    /// How many permits the waiting callers ask for.
    pub(super) permits: u64,
    /// The same, part by part.
    pub(super) queued: <P::Cost as Cost>::Sum,
    pub(super) bounds: Bounds,
    /// When the next waiter is granted, if that is known.
    pub(super) due: Option<Nanos>,
    /// Which of several rules it waits for.
    pub(super) limited_by: Option<usize>,
    /// In a pause: the state if the pause had ended at a time, which is that of the last change.
    pub(super) resumed: Option<(P::State, Nanos)>,
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    pub(super) cost: P::Cost,
    pub(super) joined: Nanos,
    pub(super) arrival: Arrival,
    pub(super) outcome: Option<Result<Charge<P::Receipt>, Error>>,
}

impl<P: Policy> Arrived for Waiter<P> {
    fn arrival(&self) -> Arrival {
        self.arrival
    }
}

impl<P: Policy> Waiting<P> {
    pub(super) fn new() -> Self {
        Self {
            queue: WaitQueue::new(),
            tail: None,
            permits: 0,
            queued: Default::default(),
            bounds: Bounds::NONE,
            due: None,
            limited_by: None,
            resumed: None,
        }
    }

    /// Which bound `cost` more would exceed.
    pub(super) fn exceeded_by(&self, cost: P::Cost) -> Option<QueueLimit> {
        let permits = self.permits.saturating_add(cost.permits());
        self.bounds.exceeded(self.queue.len(), permits)
    }

    /// Counts what a caller that joins asks for.
    pub(super) fn count(&mut self, cost: P::Cost) {
        self.permits = self.permits.saturating_add(cost.permits());
        self.queued = cost.add_to(self.queued);
    }

    /// Takes a caller out of the order; it may still have to learn the outcome.
    pub(super) fn unlink(&mut self, id: WaiterId) {
        self.queue.unlink(id);
        let cost = self.queue[id].cost;
        self.permits = self.permits.saturating_sub(cost.permits());
        self.queued = cost.take_from(self.queued);
    }

    /// Sets the outcome of a caller that is out of the order, and wakes it.
    pub(super) fn finish(&mut self, id: WaiterId, outcome: Result<Charge<P::Receipt>, Error>) {
        self.queue[id].outcome = Some(outcome);
        self.queue.wake(id);
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}
