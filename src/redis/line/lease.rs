//! Permits in flight: how many this process holds, and the lease on them that it must renew.

use std::time::Duration;

use crate::policy::Cost;
use crate::redis::context::Context;
use crate::redis::script::Scripted;
use crate::units::Nanos;

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// What callers hold, for each number of the cost. Empty for policies without permits in flight.
    held: Vec<u64>,
    /// Permits were released, and Redis does not know it yet.
    pub(super) released: bool,
    /// `None` if nothing is held.
    pub(super) renew_at: Option<Nanos>,
    /// Until when the key may count something for this process: after that there is nothing to release.
    counts_until: Nanos,
    /// The key says that this process waits.
    waits: bool,
}

impl Lease {
    /// A caller holds permits in flight.
    pub(super) fn hold<P: Scripted>(&mut self, cost: P::Cost) {
        self.count::<P>(cost, u64::saturating_add);
    }

    /// Permits in flight have come back.
    pub(super) fn let_go<P: Scripted>(&mut self, cost: P::Cost) {
        self.count::<P>(cost, u64::saturating_sub);
        self.released |= P::HELD;
    }

    /// It is unpredictable when a place is free for a waiter of this process.
    pub(super) fn wait<P: Scripted>(&mut self) {
        self.waits = P::HELD;
    }

    /// No waiter is left. Others that wait for a place need not wait for this process any more.
    pub(super) fn stop_waiting(&mut self) {
        self.released |= self.waits;
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.released || self.renew_at.is_some_and(|at| at <= now)
    }

    pub(super) fn is_free(&self) -> bool {
        !self.released && self.holds_nothing()
    }

    pub(super) fn holds_nothing(&self) -> bool {
        self.held.iter().all(|&held| held == 0)
    }

    /// A request has failed. `had_effect`: whether it may have booked. Redis may count what is not held any more, and
    /// not know it.
    pub(super) fn failed<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        had_effect: bool,
    ) {
        if had_effect {
            self.counts_until = now.saturating_add(context.options.lease);
        }
        self.released |= P::HELD && now < self.counts_until;
    }

    /// A request has booked that was sent at `told`.
    pub(super) fn begin<P: Scripted>(&mut self, context: &Context<P>, told: Nanos) {
        if self.renew_at.is_none() {
            self.renew_from(context, told);
        }
    }

    /// The last report of held permits was sent at `told`.
    fn renew_from<P: Scripted>(&mut self, context: &Context<P>, told: Nanos) {
        let holds = self.held.iter().any(|&held| held > 0);
        self.renew_at = holds.then(|| told.saturating_add(context.options.lease / 3));
        if holds {
            self.counts_until = self.counts_until.max(told.saturating_add(context.options.lease));
        }
    }

    /// What a request says: what the process holds, how long that counts, and how long the process counts as waiting if it must
    /// wait.
    pub(super) fn tell<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        listens: Duration,
    ) -> (&[u64], [Duration; 2]) {
        self.released = false;
        self.waits &= !listens.is_zero();
        self.counts_until = self.counts_until.max(now.saturating_add(listens));
        self.renew_from(context, now);
        (&self.held, [context.options.lease, listens])
    }

    /// `count`: adds or takes away a number of the cost.
    fn count<P: Scripted>(&mut self, cost: P::Cost, count: fn(u64, u64) -> u64) {
        if P::HELD {
            self.held.resize(P::Cost::NUMBERS, 0);
            for (held, number) in self.held.iter_mut().zip(cost.numbers()) {
                *held = count(*held, u64::from(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InFlight;

    fn at(seconds: u64) -> Nanos {
        Nanos::new(seconds * 1_000_000_000)
    }

    /// After a failure the key may count what is not held: until the lease on it has ended there is something to tell.
    #[test]
    fn a_request_that_failed_is_made_good_while_a_lease_may_last() {
        let context = &*Context::with(InFlight::new(5));
        let mut lease = Lease::default();
        lease.failed(context, at(1), false);
        assert!(lease.is_free());
        lease.failed(context, at(20), true);
        assert!(lease.released);
        for (now, is_told) in [(29, true), (30, false)] {
            lease.tell(context, at(now), Duration::ZERO);
            lease.failed(context, at(now), false);
            assert_eq!(lease.released, is_told);
        }
        // As long as the key says that it waits, or holds.
        lease.tell(context, at(40), Duration::from_secs(2));
        lease.failed(context, at(41), false);
        assert!(lease.released);
        lease.hold::<InFlight>(1);
        lease.tell(context, at(50), Duration::ZERO);
        lease.let_go::<InFlight>(1);
        for (now, is_told) in [(59, true), (60, false)] {
            lease.tell(context, at(now), Duration::ZERO);
            lease.failed(context, at(now), false);
            assert_eq!(lease.released, is_told);
        }
    }
}
