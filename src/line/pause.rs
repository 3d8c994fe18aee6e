//! Pauses, their early end, and permits that are taken because a server says so.
//!
//! A pause changes the state at its begin, so that all projections are those of its end. For an early end the
//! line keeps a second state: the one that it would have if the pause had ended at the last change.

use std::time::Duration;

use super::charge::Charge;
use super::inner::Inner;
use crate::policy::{Cost, Policy};
use crate::units::Nanos;

impl<P: Policy> Inner<P> {
    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        self.stats.pauses += u64::from(until > self.not_before);
        if self.not_before <= now {
            let state = self.state.clone();
            self.waiting().resumed = Some((state, now));
        }
        self.policy.pause(&mut self.state, now, until);
        self.moved(until);
    }

    /// Ends a pause, as if it had been made to end now.
    pub(crate) fn resume(&mut self, now: Nanos) {
        self.if_resumed(now, |_, _| ());
        let resumed = self.waiting.as_mut().and_then(|waiting| waiting.resumed.take());
        if let Some((state, _)) = resumed
            && self.not_before > now
        {
            self.state = state;
            self.not_before = now;
            self.forget_tail();
        }
    }

    /// In a pause: changes the state as it would be if the pause had ended now.
    pub(super) fn if_resumed(&mut self, now: Nanos, change: impl FnOnce(&P, &mut P::State)) {
        if let Some(waiting) = &mut self.waiting
            && let Some((state, until)) = &mut waiting.resumed
        {
            self.policy.pause(state, *until, now);
            *until = now;
            change(&self.policy, state);
        }
    }

    /// Charges what is available beyond `remaining`.
    pub(crate) fn shrink_to(
        &mut self,
        now: Nanos,
        remaining: P::Cost,
    ) -> (P::Cost, Charge<P::Receipt>) {
        let excess =
            |policy: &P, state: &P::State| policy.available(state, now).saturating_sub(remaining);
        self.if_resumed(now, |policy, state| {
            let excess = excess(policy, state);
            if !excess.is_zero() {
                policy.charge(state, now, excess);
            }
        });
        let excess = excess(&self.policy, &self.state);
        let mut charge = Charge { waited: 0, receipt: None, limited_by: None };
        if !excess.is_zero() {
            charge.receipt = Some(self.policy.charge(&mut self.state, now, excess));
            self.moved(now);
        }
        (excess, charge)
    }

    /// Charges a cost whether it is ready or not, before all waiters.
    #[cfg(feature = "feedback")]
    pub(crate) fn take_anyway(&mut self, now: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        self.if_resumed(now, |policy, state| _ = policy.charge(state, now, cost));
        let receipt = (!cost.is_zero()).then(|| self.policy.charge(&mut self.state, now, cost));
        self.moved(now);
        Charge { waited: 0, receipt, limited_by: None }
    }
}
