//! The next request: what it asks for, its arguments, and its begin.

use std::sync::Arc;
use std::time::Duration;

use super::KeyLine;
use super::agreement::Agreement;
use super::change::{KeyChange, Refund};
use super::flight::{InFlightRequest, RequestEnd, RequestKind, Step};
use super::waiter::Turn;
use crate::redis::connection::IDLE;
use crate::redis::context::Slot;
use crate::redis::health::SendPermission;
use crate::redis::script::wire::Call;
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// How long ago a charge was due, in nanoseconds by our clock, counted from the earliest possible time: to
/// the caller's disadvantage.
#[allow(clippy::cast_precision_loss)] // precision does not matter that far back
fn ago(now: Nanos, earliest: Nanos) -> f64 {
    now.get() as f64 - earliest.get() as f64
}

impl<P: Scripted> KeyLine<P> {
    /// Makes the next request, if one is due. Returns the number of its flight.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let now = self.now();
        // Callers that were just served may still come back for it.
        let collects = self.roster.served > 0 && now < self.transport.collect_until;
        if !self.transport.is_free() || collects {
            return None;
        }
        let request = self.next_request();
        if request.is_none() {
            self.transport.forget_crowd();
        }
        request.map(|request| self.transport.take_off(&self.context, now, request))
    }

    fn next_request(&mut self) -> Option<InFlightRequest<P::Cost>> {
        let now = self.now();
        if self.outage.pauses(&self.context, now) {
            return None;
        }
        let may = self.context.health.may_ask(now, self.outage.is_on());
        let Some(kind) = self.choose(may) else {
            self.context.health.abandoned(may.group());
            return None;
        };
        let calls = match &kind {
            RequestKind::Take(ids) => self.calls(ids),
            RequestKind::Change(_) | RequestKind::Probe => Vec::new(),
        };
        Some(InFlightRequest {
            arguments: self.arguments(&kind, &calls),
            calls,
            kind,
            at: now,
            policy: self.agreement.number,
            tries: may.group(),
        })
    }

    /// What to ask for: waiters and changes take turns.
    fn choose(&mut self, may: SendPermission) -> Option<RequestKind<P::Cost>> {
        let now = self.now();
        match may {
            SendPermission::Ask | SendPermission::Try(_) => {}
            SendPermission::Probe(_) => return Some(RequestKind::Probe),
            SendPermission::Wait => return None,
        }
        if self.transport.changed_last || self.outbox.is_empty() {
            let (reach, sent) = (self.pacing.reach(now), self.outbox.sent());
            let ids = self.roster.ask(reach, sent, self.context.rules.has_room());
            if !ids.is_empty() {
                return Some(RequestKind::Take(ids));
            }
        }
        if !self.outbox.is_empty() {
            return Some(RequestKind::Change(self.outbox.take_batch()));
        }
        if P::HELD && self.lease.is_due(now) {
            return Some(RequestKind::Change(Vec::new()));
        }
        self.outage.is_on().then_some(RequestKind::Probe)
    }

    fn calls(&self, ids: &[WaiterId]) -> Vec<Call<P::Cost>> {
        let head = ids.first().copied();
        let call = |&id| {
            let waiter = &self.roster[id];
            let patience = waiter.deadline.map(|deadline| deadline.since(self.now()));
            let is_head = Some(id) == head;
            let horizon = self.pacing.ahead(&self.context, waiter.cost, is_head);
            let limit = patience.map_or(horizon, |patience| horizon.min(patience));
            let fresh = waiter.stage.turn() != Some(Turn::Later);
            Call { cost: waiter.cost, limit, patience, fresh }
        };
        ids.iter().map(call).collect()
    }

    fn arguments(&mut self, kind: &RequestKind<P::Cost>, calls: &[Call<P::Cost>]) -> Vec<Vec<u8>> {
        let todo = match kind {
            RequestKind::Change(changes) => self.todo(changes),
            // It writes, so it fails at a read-only server.
            RequestKind::Probe => vec![b'H'],
            RequestKind::Take(_) => Vec::new(),
        };
        let sets = matches!(kind, RequestKind::Change(changes) if changes.iter().any(|it| it.sets));
        let Agreement { policy, header, .. } = &self.agreement;
        let from = if sets { self.agreement.replaced() } else { header };
        let sender = self.context.sender(policy, from, sets);
        let waits = P::HELD && self.roster.waiting > 0;
        let listens = if waits { self.pacing.listens() } else { Duration::ZERO };
        let lease = self.lease.tell(&self.context, self.time.latest(), listens);
        let mut bytes = from.head(sender, lease, sets);
        bytes.extend(todo);
        wire::put_calls::<P>(header, calls, &mut bytes);
        vec![bytes]
    }

    fn todo(&self, changes: &[KeyChange<P::Cost>]) -> Vec<u8> {
        let now = self.now();
        let mut todo = Vec::new();
        // Before a question.
        if self.lease.is_due(now) {
            todo.push(b'H');
        }
        for change in changes {
            todo.extend(&change.todo);
            if change.sets {
                self.agreement.header.put_set(&mut todo);
            }
            if let Some(Refund { part, all, booking }) = change.refund
                && booking.policy == self.agreement.number
            {
                let ago = ago(now, booking.earliest);
                wire::put_refund::<P>(&mut todo, part, all, ago, booking.sequence);
            }
        }
        todo
    }

    /// The task of a flight begins with its request. `slot`: if it has waited for one.
    pub(crate) fn begin(&mut self, number: u64, slot: Option<Slot>) -> Step {
        let now = self.now();
        let slots = Arc::clone(self.context.slots.of(self.outage.is_on()));
        let Some(request) = self.transport.request(now, number) else { return Step::Next };
        if self.context.health.down().is_some() && !request.is_probe() {
            // Another key has found out while this one waited for the connection.
            self.end(request, RequestEnd::Withdrawn);
            return Step::Next;
        }
        let Some(slot) = slot.or_else(|| Arc::clone(&slots).try_acquire_owned().ok()) else {
            self.transport.wait_for_slot();
            self.end(request, RequestEnd::NoSlot);
            return Step::WaitForSlot(slots);
        };
        let answered = [self.context.health.last_reply(), self.outage.last_reply];
        let idle = answered.map(|at| now.since(at) >= IDLE);
        self.transport.send(&self.context, now, request, slot, idle)
    }

    /// The task has no request to send.
    pub(crate) fn free(&mut self, number: u64) {
        self.transport.free(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_was_due_before_now() {
        assert_eq!(ago(Nanos::new(7), Nanos::new(3)), 4.0);
        assert_eq!(ago(Nanos::new(3), Nanos::new(7)), -4.0);
    }
}
