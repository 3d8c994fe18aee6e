//! The state behind all waiting callers.

use crate::policy::{Policy, Ready};
use crate::units::Nanos;

/// What the policy's state will be when all who wait have been charged, each as soon as it is ready.
#[derive(Clone, Debug)]
pub(super) struct Tail<S> {
    pub(super) state: S,
    /// When the last of them is charged; at least.
    pub(super) ready: Ready,
    /// How many have left or were granted late since this was computed: it is too late by the first,
    /// too early by the second.
    pub(super) left: usize,
    pub(super) late: usize,
}

/// As long as no more than one in so many has left, those whose time is up hear what was computed
/// before. So a crowd whose time runs out is not gone through once for each.
pub(super) const ROUGHLY: usize = 64;

impl<S> Tail<S> {
    /// One more is charged as soon as it is ready, at `now` or later.
    pub(super) fn join<P: Policy<State = S>>(&mut self, policy: &P, now: Nanos, cost: P::Cost) {
        if matches!(self.ready, Ready::NotBefore(_)) {
            // Nobody can know anything of those behind.
            return;
        }
        let from = self.ready.earliest().max(now);
        // Who asks for too much is turned away in its turn.
        if let Ok(ready) = policy.ready_at(&self.state, from, cost) {
            self.ready = self.ready.and(ready).and(Ready::At(from));
            policy.charge(&mut self.state, self.ready.earliest(), cost);
        }
    }
}
