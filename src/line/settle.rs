//! Charges that change later, and what is given back.

use super::Line;
use super::charge::{Change, Charge};
use super::inner::Inner;
use super::waiting::Waiting;
use crate::error::ExceedsCapacity;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::units::Nanos;
use crate::unwinding::in_drop;

impl<P: Policy> Line<P> {
    /// Called when a grant is dropped.
    #[inline(always)]
    pub(crate) fn release(&self, cost: P::Cost) {
        let read = (P::HELD && P::TIMED).then(|| self.clock.now());
        if !(P::ONE_RATE.is_none() && self.inner.lock().release_at_once(read, cost)) {
            self.release_in_line(cost);
        }
    }

    #[inline(never)]
    fn release_in_line(&self, cost: P::Cost) {
        let change = Change::back(P::Cost::default(), cost, None);
        // Without a shortfall it cannot fail.
        in_drop(|| _ = self.change(&change));
    }

    /// As `Inner::change`.
    pub(crate) fn change(&self, change: &Change<P>) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        self.with_lock(|inner, now| inner.change(now, change))
    }
}

impl<P: Policy> Inner<P> {
    /// Gives back what a grant held, if no caller waits for it. Returns whether it did.
    #[inline(always)]
    fn release_at_once(&mut self, read: Option<Nanos>, cost: P::Cost) -> bool {
        let is_alone = |waiting: &Waiting<P>| waiting.is_idle() && waiting.resumed.is_none();
        let is_quiet = self.waiting.as_deref().is_none_or(is_alone);
        if is_quiet {
            let now = read.map_or(self.time.latest(), |read| self.time.read(read));
            self.policy.release(&mut self.state, now, cost);
        }
        is_quiet
    }

    /// Changes a charge that was granted before. Returns the receipt of the rest. Fails if the shortfall takes too long to
    /// pay off.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        change: &Change<P>,
    ) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        let &Change { more, part, less, ref receipt } = change;
        if !more.is_zero() {
            self.policy.check_debt(&self.state, now, more)?;
        }
        let receipt = self.change_state(now, |policy, state, from| {
            if !more.is_zero() {
                policy.charge(state, now, more);
            }
            let mut receipt = receipt.clone();
            if !part.is_zero() {
                receipt = receipt.map(|receipt| policy.refund(state, from, part, receipt));
            }
            if P::HELD && !less.is_zero() {
                policy.release(state, now, less);
            }
            receipt
        });
        self.moved(now);
        Ok(receipt)
    }

    /// The caller did not take its grant.
    pub(crate) fn give_up(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        if !cost.is_zero() {
            self.stats.given_up += 1;
            // Without a shortfall it cannot fail.
            let _ = self.change(now, &Change::back(cost, cost, charge.receipt));
        }
    }
}
