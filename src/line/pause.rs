//! Pauses, and their early end.
//!
//! A pause changes the state at its begin, so that all projections are those of its end. For an early end the
//! line keeps a second state: the one that it would have if the pause had ended at the last change.

use std::time::Duration;

#[cfg(feature = "feedback")]
use super::charge::Charge;
use super::inner::Inner;
use super::waiting::Resumed;
#[cfg(feature = "feedback")]
use crate::policy::Cost;
use crate::policy::{Policy, PolicyExt, RuleEvent};
use crate::units::Nanos;

impl<P: Policy> Inner<P> {
    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        let before = (self.charges_from <= now).then(|| self.state.clone());
        let policy = &self.policy;
        policy.pause(&mut self.state, now, until);
        self.stats.pauses += u64::from(until > self.charges_from);
        if let Some(state) = before {
            self.waiting().resumed = Some(Resumed { state, began: now, until: now });
        }
        self.moved(until);
    }

    /// Ends a pause, as if it had been made to end now.
    pub(crate) fn resume(&mut self, now: Nanos) {
        self.if_resumed(now);
        let resumed = self.waiting.as_mut().and_then(|waiting| waiting.resumed.take());
        if let Some(Resumed { state, .. }) = resumed
            && self.charges_from > now
        {
            self.state = state;
            self.charges_from = now;
            self.forget_tail();
        }
    }

    /// In a pause: brings the state up to date that counts if the pause ends now.
    fn if_resumed(&mut self, now: Nanos) {
        let waiting = self.waiting.as_mut();
        if let Some(resumed) = waiting.and_then(|waiting| waiting.resumed.as_mut()) {
            resumed.change(&self.policy, now, |_| ());
        }
    }

    /// Begins anew. Callers that wait go on waiting.
    pub(crate) fn reset(&mut self, now: Nanos) {
        self.resume(now);
        self.change_state(now, |policy, state, _| _ = policy.tell(state, now, RuleEvent::Reset));
        self.moved(now);
    }

    /// Charges a cost whether it is ready or not, before all waiters.
    #[cfg(feature = "feedback")]
    pub(crate) fn take_anyway(
        &mut self,
        now: Nanos,
        cost: P::Cost,
    ) -> Result<Charge<P::Receipt>, crate::error::ExceedsCapacity> {
        if !cost.is_zero() {
            self.policy.check_debt(&self.state, now, cost)?;
            self.stats.granted += 1;
        }
        let receipt = self.change_state(now, |policy, state, _| {
            (!cost.is_zero()).then(|| policy.charge(state, now, cost))
        });
        self.moved(now);
        Ok(Charge::at_once(receipt))
    }
}
