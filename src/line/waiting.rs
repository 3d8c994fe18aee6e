//! The callers that wait in a line, and what each asks for.

use std::task::Waker;
use std::time::Duration;

use super::outcomes::{Outcome, OutcomeId, Outcomes};
use super::tail::Tail;
use crate::error::QueueLimit;
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::units::Nanos;
use crate::wait_queue::{Bounds, Place, Tenant, WaitQueue, WaiterId, Waits};

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
#[derive(Debug)]
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: WaitQueue<Waiter<P>>,
    outcomes: Outcomes<P::Receipt>,
    /// The state behind all waiting callers, where the policy needs that to say when a newcomer is ready.
    pub(super) tail: Option<Tail<P::State, P::Cost>>,
    /// How many permits the waiting callers ask for.
    pub(super) permits: u64,
    /// The same, part by part.
    pub(super) queued: <P::Cost as Cost>::Sum,
    pub(super) bounds: Bounds,
    /// When the next waiter is granted, if that is known.
    pub(super) due: Option<Nanos>,
    /// Whether nothing that `due` depends on has changed since it was computed.
    pub(super) is_settled: bool,
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

impl<S> Resumed<S> {
    /// Changes the state, once it is that of `now`.
    pub(super) fn change<P: Policy<State = S>>(
        &mut self,
        policy: &P,
        now: Nanos,
        change: impl FnOnce(&mut S),
    ) {
        let Self { state, began, until } = self;
        // A pause that has taken no time discards nothing.
        if now != *began {
            policy.pause(state, *until, now);
        }
        change(state);
        *until = now;
    }
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    pub(super) cost: P::Cost,
    pub(super) joined: Nanos,
    outcome: OutcomeId,
}

impl<P: Policy> Waiter<P> {
    pub(super) fn new(cost: P::Cost, joined: Nanos) -> Self {
        Self { cost, joined, outcome: None }
    }
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
            outcomes: Outcomes::new(),
            tail: None,
            permits: 0,
            queued: Default::default(),
            bounds: Bounds::NONE,
            due: None,
            is_settled: false,
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
        waiter: Waiter<P>,
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        self.permits = self.permits.saturating_add(waiter.cost.permits());
        self.queued = waiter.cost.add_to(self.queued);
        self.queue.join(place, waiter, deadline, waker)
    }

    /// How long the first four callers have waited.
    pub(super) fn ages(&self, now: Nanos) -> Vec<Duration> {
        let first = self.queue.ahead_of(None).take(4);
        first.map(|id| now.since(self.queue[id].joined)).collect()
    }

    /// The front of the queue is granted. It still has to learn the outcome.
    pub(super) fn grant(&mut self, id: WaiterId) {
        self.queue.grant(id);
        self.forget_cost(id);
    }

    fn forget_cost(&mut self, id: WaiterId) {
        let cost = self.queue[id].cost;
        self.permits = self.permits.saturating_sub(cost.permits());
        self.queued = cost.take_from(self.queued);
    }

    /// Takes a caller out of the order; it may still have to learn the outcome.
    pub(super) fn unlink(&mut self, id: WaiterId) {
        self.queue.unlink(id);
        self.forget_cost(id);
    }

    /// Sets the outcome of a caller that is out of the order, and wakes it.
    // Not inlined, because several places need it, and none of them is short.
    #[inline(never)]
    pub(super) fn finish(&mut self, id: WaiterId, outcome: Outcome<P::Receipt>) {
        self.outcomes.set(&mut self.queue[id].outcome, outcome);
        self.queue.wake(id);
    }

    pub(super) fn is_over(&self, id: WaiterId) -> bool {
        self.queue[id].outcome.is_some()
    }

    /// Takes the outcome of a waiter, if there is one, and then removes its entry.
    pub(super) fn take_outcome(&mut self, id: WaiterId) -> Option<Outcome<P::Receipt>> {
        let outcome = self.outcomes.take(&mut self.queue[id].outcome)?;
        self.queue.remove(id);
        Some(outcome)
    }

    /// A waiter leaves for which nothing changes the next event. Its waker is to be dropped after the lock is
    /// released.
    pub(super) fn leave_quietly(&mut self, id: WaiterId) -> Waker {
        if let Some(tail) = &mut self.tail {
            tail.left += 1;
        }
        self.unlink(id);
        self.queue.take(id).1
    }

    /// Whether no caller waits, and none is refused because the line is closed.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.len() == 0 && !self.queue.is_closed
    }

    /// Whether no waiter is granted or refused by now. If it is unknown when the next one is, each use of the line looks.
    pub(super) fn rests(&self, now: Nanos) -> bool {
        let is_early = || {
            self.due.is_some_and(|due| due > now)
                && self.queue.first_deadline().is_none_or(|(deadline, _)| deadline > now)
        };
        self.is_settled && (self.queue.len() == 0 || is_early())
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}
