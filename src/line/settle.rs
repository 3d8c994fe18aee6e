//! Charges that change later, and what is given back.

use super::Line;
use super::charge::{Change, Charge};
use super::inner::Inner;
use super::waiting::Waiting;
use crate::error::Error;
use crate::policy::{Cost, Policy, PolicyExt, Timed};
use crate::units::Nanos;
use crate::unwinding::in_drop;

impl<P: Policy> Line<P> {
    /// Called when a grant is dropped.
    #[inline(always)]
    pub(crate) fn release(&self, cost: P::Cost) {
        if !self.release_at_once(cost) {
            self.release_in_line(cost);
        }
    }

    #[inline(never)]
    fn release_in_line(&self, cost: P::Cost) {
        in_drop(|| self.with_lock(|inner, now| _ = inner.give_back(now, &Change::release(cost))));
    }

    /// Gives back what a grant held, if no caller waits for it and the time does not matter. Returns whether
    /// it did.
    #[inline(always)]
    fn release_at_once(&self, cost: P::Cost) -> bool {
        P::HOOKS.lock_free.is_none()
            && (!P::HELD || P::TIMED != Timed::Always)
            && self.inner.try_lock().is_some_and(|mut inner| inner.release_at_once(cost))
    }

    /// As `Inner::change`.
    pub(crate) fn change(&self, change: &Change<P>) -> Result<Option<P::Receipt>, Error> {
        self.with_lock(|inner, now| inner.change(now, change))
    }

    /// As `Inner::give_back`.
    pub(crate) fn give_back(&self, change: &Change<P>) {
        self.with_lock(|inner, now| _ = inner.give_back(now, change));
    }
}

impl<P: Policy> Inner<P> {
    /// Gives back what a grant held, if no caller waits for it. Returns whether it did.
    #[inline(always)]
    pub(super) fn release_at_once(&mut self, cost: P::Cost) -> bool {
        let is_alone = |waiting: &Waiting<P>| waiting.is_idle() && waiting.resumed.is_none();
        let is_quiet = self.waiting.as_deref().is_none_or(is_alone);
        if is_quiet {
            let now = self.time.latest();
            self.policy.release(&mut self.state, now, cost);
        }
        is_quiet
    }

    /// Changes a charge that was granted before. Returns the receipt of the rest.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        change: &Change<P>,
    ) -> Result<Option<P::Receipt>, Error> {
        change.check(&self.policy, &self.state, now)?;
        Ok(self.give_back(now, change))
    }

    /// The same of a change that cannot fail.
    pub(crate) fn give_back(&mut self, now: Nanos, change: &Change<P>) -> Option<P::Receipt> {
        let receipt =
            self.change_state(now, |policy, state, from| change.apply(policy, state, now, from));
        self.moved(now);
        receipt
    }

    /// The caller did not take its grant.
    pub(crate) fn give_up(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        if !cost.is_zero() {
            self.stats.given_up += 1;
            let receipt = charge.receipt;
            self.give_back(now, &Change::Refund { part: cost, held: cost, receipt });
        }
    }
}
