//! The state behind all waiting callers.

use crate::policy::{Cost, Policy, Ready};
use crate::units::Nanos;

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
