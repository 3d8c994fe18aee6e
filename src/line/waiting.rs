//! The callers that wait in a line, what each asks for, and the state behind them.

use std::task::Waker;

use slab::Slab;

use super::charge::Charge;
use crate::clock::KEEP;
use crate::error::{Error, QueueLimit};
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt, Ready};
use crate::units::Nanos;
use crate::wait_queue::{Bounds, Place, Tenant, WaitQueue, WaiterId, Waits};

pub(super) type Outcome<R> = Result<Charge<R>, Error>;

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
#[derive(Debug)]
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: WaitQueue<Waiter<P>>,
    /// What callers that are out of the order have not learnt yet. Apart from the entries of the queue: a crowd has many of
    /// these, and few outcomes at a time.
    outcomes: Slab<Outcome<P::Receipt>>,
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
    pub(super) due_is_current: bool,
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
    /// The place of its outcome, if there is one.
    outcome: Option<WaiterId>,
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
            outcomes: Slab::new(),
            tail: None,
            permits: 0,
            queued: Default::default(),
            bounds: Bounds::NONE,
            due: None,
            due_is_current: false,
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
        match &mut self.queue[id].outcome {
            Some(kept) => self.outcomes[kept.place()] = outcome,
            none => *none = Some(WaiterId::new(self.outcomes.insert(outcome))),
        }
        self.queue.wake(id);
    }

    pub(super) fn is_over(&self, id: WaiterId) -> bool {
        self.queue[id].outcome.is_some()
    }

    /// Takes the outcome of a waiter, if there is one, and then removes its entry.
    pub(super) fn take_outcome(&mut self, id: WaiterId) -> Option<Outcome<P::Receipt>> {
        let outcome = self.outcomes.remove(self.queue[id].outcome.take()?.place());
        if self.outcomes.is_empty() && self.outcomes.capacity() > KEEP {
            self.outcomes = Slab::new();
        }
        self.queue.remove(id);
        Some(outcome)
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
        self.due_is_current && (self.queue.len() == 0 || is_early())
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}

/// The state of the policy when all waiting callers have been charged, each as soon as it is ready.
#[derive(Clone, Debug)]
pub(super) struct Tail<S, C: Cost> {
    pub(super) state: S,
    /// When the last of them is charged; at least.
    pub(super) ready: Ready,
    /// How many waiters have left, or were granted late, since this was computed. It is too late by the first,
    /// too early by the second.
    pub(super) left: usize,
    pub(super) late: usize,
    /// The cost of each of them; `None` if the costs differ, or if there is none.
    cost: Option<C>,
    is_mixed: bool,
}

/// While no more than one waiter in 64 has left, waiters whose time is up get their `retry_after` by the last
/// projection. So a crowd that times out does not need a walk for each.
pub(super) const ROUGHLY: usize = 64;

impl<S, C: Cost> Tail<S, C> {
    /// The state before any of them is charged.
    pub(super) fn new(state: S, from: Nanos) -> Self {
        let ready = Ready::At(from);
        Self { state, ready, left: 0, late: 0, cost: None, is_mixed: false }
    }

    /// Whether it does not matter in which order one more caller is charged.
    pub(super) fn is_all(&self, cost: C) -> bool {
        !self.is_mixed && self.cost == Some(cost)
    }

    /// Whether the first waiter that waits for a release was assumed to be granted before `now`.
    pub(super) fn is_stale(&self, now: Nanos) -> bool {
        matches!(self.ready, Ready::NotBefore(at) if at < now)
    }

    /// Charges one more as soon as it is ready, at `now` or later. Returns whether later waiters are predictable.
    pub(super) fn join<P: Policy<State = S, Cost = C>>(
        &mut self,
        policy: &P,
        now: Nanos,
        cost: C,
    ) -> bool {
        self.is_mixed |= self.cost.is_some_and(|others| others != cost);
        self.cost = Some(cost);
        if matches!(self.ready, Ready::NotBefore(_)) {
            // There may be more waiters than those that were visited.
            self.is_mixed = true;
            return false;
        }
        let from = self.ready.earliest().max(now);
        // A request that exceeds the capacity is refused in its turn.
        if let Ok(ready) = policy.ready_at(&self.state, from, cost) {
            self.ready = self.ready.and(ready).and(Ready::At(from));
            policy.charge(&mut self.state, self.ready.earliest(), cost);
        }
        true
    }
}
