//! The next request: when it is due, what it asks for, and its arguments.

use std::sync::Arc;
use std::time::Duration;

use super::KeyLine;
use super::change::{Flight, KeyChange, Refund, RequestKind, take_batch};
use super::roster::Turn;
use crate::redis::connection::{IDLE, Request};
use crate::redis::health::SendPermission;
use crate::redis::script::wire::Call;
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

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
        self.fly(self.flights, None);
        Some(self.flights)
    }

    fn fly(&mut self, number: u64, request: Option<RequestKind<P>>) {
        let (at, deadline) = (self.now(), self.context.options.deadline);
        let until = at.saturating_add(deadline).saturating_add(GRACE.max(deadline / 8));
        let policy = self.agreement.number;
        self.flight = Some(Flight { number, at, until, policy, request });
    }

    fn may_send(&self, now: Nanos) -> SendPermission {
        match &self.outage.failing {
            Some(outage) if now < outage.retry_at => SendPermission::Wait,
            Some(_) => SendPermission::Ask,
            None => self.context.health.may_send(now, self.outage.has_failed()),
        }
    }

    /// Whether there is something to [choose](Self::choose).
    fn is_due(&self, now: Nanos) -> bool {
        match self.may_send(now) {
            SendPermission::Wait => false,
            SendPermission::Probe => true,
            SendPermission::Ask => {
                !self.outbox.is_empty()
                    || self.outage.is_on(&self.context.health)
                    || P::HELD && self.lease.is_due(now)
                    || self.roster.has_to_ask(self.pacing.reach(now), self.rules().has_room())
            }
        }
    }

    /// What to ask for: waiters and changes take turns.
    fn choose(&mut self, now: Nanos) -> Option<RequestKind<P>> {
        match self.may_send(now) {
            SendPermission::Ask => {}
            SendPermission::Probe => {
                self.context.health.set_probed(true);
                return Some(RequestKind::PROBE);
            }
            SendPermission::Wait => return None,
        }
        if self.changed_last || self.outbox.is_empty() {
            let reach = self.pacing.reach(now);
            let sent = self.changes.saturating_sub(self.outbox.len() as u64);
            let ids = self.roster.ask(reach, sent, self.rules().has_room());
            if !ids.is_empty() {
                let calls = self.calls(&ids);
                return Some(RequestKind::Take(ids, calls));
            }
        }
        if !self.outbox.is_empty() {
            return Some(RequestKind::Change(take_batch(&mut self.outbox)));
        }
        let is_failing = self.outage.is_on(&self.context.health);
        let is_due = P::HELD && self.lease.is_due(now) || is_failing;
        is_due.then_some(RequestKind::PROBE)
    }

    /// The task of a flight has begun: makes its request. `None`: there is nothing to send any more, or the line has
    /// gone on without this task.
    pub(crate) fn begin(&mut self, number: u64) -> Option<Request> {
        let now = self.now();
        self.flight.take_if(|flight| flight.number == number)?;
        let kind = self.choose(now)?;
        self.changed_last = matches!(kind, RequestKind::Change(_));
        let (argument, deadline) = (self.argument(&kind), self.context.options.deadline);
        let mut request = Request::new(Arc::clone(&self.key), argument, deadline);
        let answered = [self.context.health.last_reply(), self.outage.last_reply];
        request.idle = answered.map(|at| now.since(at) >= IDLE);
        self.context.count(|counters| counters.requests += 1);
        self.fly(number, Some(kind));
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

    fn argument(&mut self, kind: &RequestKind<P>) -> Vec<u8> {
        let (todo, calls, sets) = match kind {
            RequestKind::Change(changes) => {
                let sets = changes.iter().any(|change| change.sets.is_some());
                (self.todo(changes), &[][..], sets)
            }
            RequestKind::Take(_, calls) => (Vec::new(), &calls[..], false),
        };
        let header = &self.agreement.header;
        let keep = self.context.keep(header, sets);
        let sender = (self.context.id, keep, !self.context.options.absent_is_new);
        let waits = P::HELD && self.roster.queue.len() > 0;
        let waits_for = if waits { self.pacing.counts_as_waiting() } else { Duration::ZERO };
        let lease = self.lease.tell(&self.context, self.time.latest(), waits_for);
        header.request(sender, lease, (&todo, sets), calls)
    }

    fn todo(&self, changes: &[KeyChange<P>]) -> Vec<u8> {
        let now = self.now();
        let mut todo = Vec::new();
        // Before a question.
        // A probe writes, so it fails at a read-only server.
        if self.lease.is_due(now) || changes.is_empty() {
            todo.push(b'H');
        }
        for change in changes {
            todo.extend(&change.todo);
            if let Some(Refund { part, all, booking }) = change.refund
                && booking.policy == self.agreement.number
            {
                // From the earliest possible time: to the caller's disadvantage.
                #[allow(clippy::cast_precision_loss)] // which does not matter that far back
                let ago = now.get() as f64 - booking.earliest.get() as f64;
                wire::put_refund(&mut todo, part, all, ago, booking.sequence);
            }
        }
        todo
    }
}
