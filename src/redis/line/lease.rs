//! Places in flight: how many this process holds, until when the key counts them if it dies, and when it must renew that.
//! Bookings have no lease.

use std::time::Duration;

use crate::policy::Cost;
use crate::redis::context::Context;
use crate::redis::script::Scripted;
use crate::units::Nanos;

#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// What callers hold, for each number of the cost. Empty for policies without permits in flight.
    held: Vec<u64>,
    /// Permits were released, and Redis does not know it yet.
    pub(super) released: bool,
    /// `None` if nothing is held.
    pub(super) renew_at: Option<Nanos>,
    /// The key says that this process waits.
    waits: bool,
}

impl Lease {
    /// A caller holds permits in flight.
    pub(crate) fn hold<P: Scripted>(&mut self, cost: P::Cost) {
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

    /// The last report of held permits was sent at `told`.
    pub(super) fn renew_from<P: Scripted>(&mut self, context: &Context<P>, told: Nanos) {
        let renew_at = told.saturating_add(context.options.lease / 3);
        self.renew_at = (!self.holds_nothing()).then_some(renew_at);
    }

    /// What a request says: what the process holds, how long that counts, and how long the process counts as waiting if it must
    /// wait.
    pub(super) fn tell<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        counts_as_waiting: Duration,
    ) -> (&[u64], [Duration; 2]) {
        self.released = false;
        self.waits &= !counts_as_waiting.is_zero();
        self.renew_from(context, now);
        (&self.held, [context.options.lease, counts_as_waiting])
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
