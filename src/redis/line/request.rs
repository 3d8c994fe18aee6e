//! The next request: when it is due, what it asks for, and its arguments.

use std::sync::Arc;
use std::time::Duration;

use super::agreement::Agreement;
use super::change::{KeyChange, Refund};
use super::flight::{Flight, InFlightRequest, RequestKind};
use super::waiter::Turn;
use super::{KeyLine, QUICK};
use crate::redis::connection::{IDLE, Request};
use crate::redis::context::Slot;
use crate::redis::health::SendPermission;
use crate::redis::script::wire::Call;
use crate::redis::script::{Scripted, script, wire};
use crate::units::Nanos;
use crate::wait_queue::{NEVER, WaiterId};
use tokio::sync::Semaphore;

/// How long ago a charge was due, in nanoseconds by our clock, counted from the earliest possible time: to
/// the caller's disadvantage.
#[allow(clippy::cast_precision_loss)] // precision does not matter that far back
fn ago(now: Nanos, earliest: Nanos) -> f64 {
    now.get() as f64 - earliest.get() as f64
}

/// How much longer the line waits for a task than that for a reply, at least: the error of the connection says more.
const GRACE: Duration = Duration::from_millis(50);

impl<P: Scripted> KeyLine<P> {
    /// Whether a request is due. If so a task is to be started for it: returns the number of its flight.
    pub(crate) fn take_off(&mut self) -> Option<u64> {
        let now = self.now();
        // Callers that were just served may still come back for it.
        let collects = self.roster.served > 0 && now < self.collect_until;
        if self.flight.is_some() || collects || !self.is_due(now) {
            return None;
        }
        self.flights += 1;
        let until = self.patience(self.context.options.deadline);
        let (number, request, slot) = (self.flights, None, None);
        self.flight = Some(Flight { number, at: now, until, request, slot, look_at: NEVER });
        Some(number)
    }

    /// When the line goes on without a task that has this time.
    fn patience(&self, time: Duration) -> Nanos {
        let grace = GRACE.max(self.context.options.deadline / 8);
        self.now().saturating_add(time).saturating_add(grace)
    }

    fn may_send(&self, now: Nanos) -> SendPermission {
        match self.context.health.may_send(now) {
            // Redis is down. One that failed before, alone, shows nothing of that.
            may_send @ (SendPermission::Probe | SendPermission::Wait)
                if !self.outage.is_alone(&self.context.health) =>
            {
                may_send
            }
            _ if self.outage.failing.as_ref().is_some_and(|outage| now < outage.retry_at) => {
                SendPermission::Wait
            }
            _ => SendPermission::Ask,
        }
    }

    /// Whether there is something to [choose](Self::choose).
    fn is_due(&self, now: Nanos) -> bool {
        match self.may_send(now) {
            SendPermission::Wait => false,
            SendPermission::Probe => true,
            SendPermission::Ask => {
                !self.outbox.is_empty()
                    || self.outage.is_on()
                    || P::HELD && self.lease.is_due(now)
                    || self.roster.has_to_ask(self.pacing.reach(now), self.context.rules.has_room())
            }
        }
    }

    /// What to ask for: waiters and changes take turns.
    fn choose(&mut self, now: Nanos) -> Option<RequestKind<P::Cost>> {
        match self.may_send(now) {
            SendPermission::Ask => {}
            SendPermission::Probe => {
                self.context.health.probe();
                return Some(RequestKind::PROBE);
            }
            SendPermission::Wait => return None,
        }
        if self.changed_last || self.outbox.is_empty() {
            let (reach, sent) = (self.pacing.reach(now), self.outbox.sent());
            let ids = self.roster.ask(reach, sent, self.context.rules.has_room());
            if !ids.is_empty() {
                return Some(RequestKind::Take(ids));
            }
        }
        if !self.outbox.is_empty() {
            return Some(RequestKind::Change(self.outbox.take_batch()));
        }
        let is_due = P::HELD && self.lease.is_due(now) || self.outage.is_on();
        is_due.then_some(RequestKind::PROBE)
    }

    /// The slots for the next request.
    pub(crate) fn slots(&self) -> Arc<Semaphore> {
        Arc::clone(&self.context.slots[usize::from(self.outage.is_on())])
    }

    /// The task of a flight has a slot: makes its request. `None`: there is nothing to send any more, or the line has
    /// gone on without this task.
    pub(crate) fn begin(&mut self, number: u64, slot: Option<Slot>) -> Option<Request> {
        let now = self.now();
        let flight = self.flight.as_ref().filter(|flight| flight.number == number)?;
        // The time for which it has waited for its slot is a part of the deadline.
        let since = flight.at;
        let waited = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        let deadline = self.context.options.deadline;
        let deadline = deadline.saturating_sub(Duration::from_millis(waited));
        if deadline.is_zero() {
            self.lose_flight("too many other requests are under way");
            return None;
        }
        let Some(kind) = self.choose(now) else {
            self.flight = None;
            return None;
        };
        self.changed_last = matches!(kind, RequestKind::Change(_));
        let calls = match &kind {
            RequestKind::Take(ids) => self.calls(ids),
            RequestKind::Change(_) => Vec::new(),
        };
        let arguments = self.arguments(&kind, &calls);
        let mut request = Request::new(script(), Arc::clone(&self.key), arguments, deadline);
        let answered = [self.context.health.last_reply(), self.outage.last_reply];
        request.idle = answered.map(|at| now.since(at) >= IDLE);
        self.context.count(|counters| counters.requests += 1);
        let until = self.patience(deadline);
        if let Some(flight) = &mut self.flight {
            (flight.at, flight.until) = (now, until);
            flight.look_at = now.saturating_add(self.context.options.deadline / QUICK);
            flight.slot = slot;
            let policy = self.agreement.number;
            flight.request = Some(InFlightRequest { calls, kind, since, at: now, policy });
        }
        Some(request)
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
        // A probe writes, so it fails at a read-only server.
        if self.lease.is_due(now) || changes.is_empty() {
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
