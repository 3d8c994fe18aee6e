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

    /// The lease in a request: the id of the process, what it holds, how long that counts, and how long the
    /// process counts as waiting if it must wait.
    pub(super) fn write<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        listens: Duration,
    ) -> Vec<u8> {
        let mut bytes = context.id.to_vec();
        for &number in &context.scripts.held {
            #[allow(clippy::cast_precision_loss)] // nothing holds 2^53 permits
            let held = self.held.get(number).copied().unwrap_or_default() as f64;
            bytes.extend(held.to_le_bytes());
        }
        for span in [context.options.lease, listens] {
            #[allow(clippy::cast_precision_loss)]
            bytes.extend((span.as_micros() as f64).to_le_bytes());
        }
        self.released = false;
        self.waits &= !listens.is_zero();
        self.counts_until = self.counts_until.max(now.saturating_add(listens));
        self.renew_from(context, now);
        bytes
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
    use crate::{InFlight, TokenBucket};

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Nanos {
        Nanos::new(seconds * 1_000_000_000)
    }

    /// What a request says of it, without the id.
    fn written<P: Scripted>(
        lease: &mut Lease,
        context: &Context<P>,
        now: u64,
        listens: u64,
    ) -> Vec<f64> {
        let bytes = lease.write(context, at(now), Duration::from_secs(listens));
        assert_eq!(bytes[..8], context.id);
        let numbers = bytes[8..].chunks_exact(8);
        numbers.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect()
    }

    #[test]
    fn a_lease_is_renewed_in_time_and_what_is_released_is_told() {
        let context = &*Context::with(InFlight::new(5));
        let mut lease = Lease::default();
        assert!(lease.is_free() && lease.renew_at.is_none() && !lease.is_due(at(9)));
        lease.hold::<TokenBucket>(3);
        assert!(lease.holds_nothing(), "no places");
        lease.hold::<InFlight>(3);
        assert!(!lease.is_free() && !lease.holds_nothing() && !lease.released);
        // The first request that booked counts, until the next that says it.
        let third = |from: u64| at(from).saturating_add(LEASE / 3);
        for told in [1, 2] {
            lease.begin(context, at(told));
            assert_eq!(lease.renew_at, Some(third(1)));
        }
        assert!(lease.is_due(third(1)) && !lease.is_due(at(4)));
        assert_eq!(written(&mut lease, context, 4, 2), [3.0, 10e6, 2e6]);
        assert_eq!(lease.renew_at, Some(third(4)));
        lease.let_go::<InFlight>(1);
        assert!(lease.released && lease.is_due(at(4)) && !lease.is_free());
        assert_eq!(written(&mut lease, context, 5, 0), [2.0, 10e6, 0.0]);
        assert!(!lease.released);
        lease.let_go::<InFlight>(9);
        assert!(lease.holds_nothing() && !lease.is_free());
        assert_eq!(written(&mut lease, context, 6, 0)[0], 0.0);
        assert!(lease.is_free() && lease.renew_at.is_none());
        let mut other = Lease::default();
        other.let_go::<TokenBucket>(1);
        assert!(other.is_free());
    }

    /// Others need not wait for a process that does not wait any more, once the key says that it does.
    #[test]
    fn the_end_of_a_wait_is_told_if_the_key_knows_of_it() {
        let context = &*Context::with(InFlight::new(5));
        let mut lease = Lease::default();
        lease.stop_waiting();
        assert!(lease.is_free());
        lease.wait::<InFlight>();
        written(&mut lease, context, 1, 1);
        lease.stop_waiting();
        assert!(lease.released);
        written(&mut lease, context, 2, 0);
        lease.stop_waiting();
        assert!(lease.is_free());
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
            written(&mut lease, context, now, 0);
            lease.failed(context, at(now), false);
            assert_eq!(lease.released, is_told);
        }
        // As long as the key says that it waits, or holds.
        written(&mut lease, context, 40, 2);
        lease.failed(context, at(41), false);
        assert!(lease.released);
        lease.hold::<InFlight>(1);
        written(&mut lease, context, 50, 0);
        lease.let_go::<InFlight>(1);
        for (now, is_told) in [(59, true), (60, false)] {
            written(&mut lease, context, now, 0);
            lease.failed(context, at(now), false);
            assert_eq!(lease.released, is_told);
        }
    }
}
