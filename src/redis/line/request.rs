//! The next request: what it asks for, and its arguments.

use std::time::Duration;

use super::change::{Claim, KeyChange, Refund};
use super::flight::{InFlightRequest, RequestKind};
use super::waiter::{Stage, Turn};
use super::{BATCH, KeyLine};
use crate::error::store::StoreError;
use crate::policy::Cost;
use crate::redis::context::Context;
use crate::redis::health::{SendPermission, State};
use crate::redis::script::wire::{Ahead, Call};
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// How a request ends for its waiters and changes.
pub(super) enum Rest {
    Settled,
    /// The request had no effect: another one repeats it.
    Repeat,
    Refuse(StoreError),
}

/// A head that was passed over this many times reaches the whole horizon.
const STEPS: u32 = 8;

/// How far ahead a waiter for a place in flight is booked at most, besides two round trips.
const HELD_AHEAD: Duration = Duration::from_millis(5);

/// The pause before a process asks again for a head whose time is unpredictable: a few milliseconds, and more the
/// longer it waits, so that a free place stays empty for a small part of that time.
pub(super) fn poll_pause(passed: u32) -> Duration {
    Duration::from_millis(u64::from(4 + passed / 2).min(64))
}

/// How long ago a charge was due, in nanoseconds by our clock, counted from the earliest possible time: to
/// the caller's disadvantage.
#[allow(clippy::cast_precision_loss)] // precision does not matter that far back
fn ago(now: Nanos, earliest: Nanos) -> f64 {
    now.get() as f64 - earliest.get() as f64
}

impl<P: Scripted> KeyLine<P> {
    /// How far ahead a waiter may be booked when other processes have been quicker than the head `passed` times:
    /// from three quarters of the horizon step by step to all of it, so that a process that was passed over is
    /// quicker the next time. A large head may need more than the horizon yields.
    ///
    /// A booking of places in flight holds them from now on, so these are booked only milliseconds ahead.
    pub(super) fn reach(&self, context: &Context<P>, cost: P::Cost, is_head: bool) -> Duration {
        let (horizon, passed) = (context.options.horizon, self.passed);
        if P::HELD {
            return horizon.min(HELD_AHEAD + 2 * self.trip);
        }
        if is_head && passed > 0 && cost.permits() > 1 {
            return horizon.saturating_mul(1 << passed.min(30));
        }
        horizon / (4 * STEPS) * (3 * STEPS + passed.min(STEPS))
    }

    /// Makes the next request, if one is due. Returns the number of its flight.
    pub(crate) fn next(&mut self, context: &Context<P>, now: Nanos) -> Option<u64> {
        if self.flight.is_some() || self.is_collecting() && now < self.collect_until {
            return None;
        }
        let request = self.next_request(context, now);
        if request.is_none() {
            self.crowded = None;
        }
        request.map(|request| self.take_off(context, now, request))
    }

    fn next_request(
        &mut self,
        context: &Context<P>,
        now: Nanos,
    ) -> Option<InFlightRequest<P::Cost>> {
        // While Redis is down, the pauses are those of all keys.
        if self.failing.as_ref().is_some_and(|failing| now < failing.outage.retry_at)
            && context.health.state() != State::Down
        {
            return None;
        }
        let may = context.health.may_ask(now, self.failing.is_some());
        let Some(kind) = self.next_asking(context, now, may) else {
            context.health.abandoned(may.group());
            return None;
        };
        self.looks_at.take_if(|_| !kind.only_looks());
        self.changed_last = matches!(kind, RequestKind::Change(_));
        let calls = match &kind {
            RequestKind::Take(ahead, ids) => self.calls(context, now, *ahead, ids),
            RequestKind::Change(_) | RequestKind::Probe => Vec::new(),
        };
        Some(InFlightRequest {
            arguments: self.arguments(context, now, &kind, &calls),
            calls,
            kind,
            at: now,
            policy: self.policies,
            tries: may.group(),
        })
    }

    fn arguments(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        kind: &RequestKind<P::Cost>,
        calls: &[Call<P::Cost>],
    ) -> Vec<Vec<u8>> {
        let own = &self.header;
        let header = || self.looks_at.as_ref().map_or(own, |(_, header)| header).bytes.clone();
        let mut arguments = match kind {
            RequestKind::Take(ahead, _) => {
                wire::calls::<P>(&self.header, *ahead, calls.iter().copied())
            }
            RequestKind::Change(changes) => vec![header(), self.todo(now, changes)],
            // It writes, so it fails at a read-only server.
            RequestKind::Probe => vec![header(), vec![b'H']],
        };
        let lease = if P::HELD { self.write_lease(context, now) } else { Vec::new() };
        if matches!(kind, RequestKind::Take(..)) {
            if P::HELD {
                arguments.resize(2, Vec::new());
                arguments.push(lease);
            }
        } else {
            arguments.extend([lease, self.claim(context, kind)]);
        }
        arguments
    }

    /// The last argument of `change.lua`.
    fn claim(&self, context: &Context<P>, kind: &RequestKind<P::Cost>) -> Vec<u8> {
        let RequestKind::Change(changes) = kind else { return Vec::new() };
        match changes.iter().map(|change| change.claim).max() {
            None | Some(Claim::None) => Vec::new(),
            Some(Claim::ByRule) => wire::claim(context.age(), None),
            Some(Claim::Set) => {
                wire::claim(context.age(), self.unheard.as_ref().or(Some(&self.header.terms)))
            }
        }
    }

    /// A process that has waiters counts as waiting until its next request is long overdue.
    fn write_lease(&mut self, context: &Context<P>, now: Nanos) -> Vec<u8> {
        let overdue = 4 * poll_pause(self.passed) + Duration::from_millis(50);
        let listens = if self.waiting > 0 { overdue } else { Duration::ZERO };
        self.lease.write(context, now, listens)
    }

    fn todo(&self, now: Nanos, changes: &[KeyChange<P::Cost>]) -> Vec<u8> {
        let mut todo = Vec::new();
        for change in changes {
            todo.extend(&change.todo);
            if let Some(Refund { part, all, booking }) = change.refund
                && booking.policy == self.policies
            {
                let ago = ago(now, booking.earliest);
                wire::put_refund::<P>(&mut todo, part, all, ago, booking.sequence);
            }
        }
        if self.lease.is_due(now) {
            todo.push(b'H');
        }
        todo
    }

    fn next_asking(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        may: SendPermission,
    ) -> Option<RequestKind<P::Cost>> {
        match may {
            SendPermission::Ask | SendPermission::Try(_) => {}
            SendPermission::Probe(_) => return Some(RequestKind::Probe),
            SendPermission::Wait => return None,
        }
        if self.changed_last || self.changes.is_empty() {
            let (ahead, ids) = self.choose(context, now);
            if !ids.is_empty() {
                return Some(RequestKind::Take(ahead, ids));
            }
        }
        if !self.changes.is_empty() {
            let first = self.changes.iter().position(KeyChange::deletes).map_or(BATCH, |at| at + 1);
            let first = first.min(BATCH).min(self.changes.len());
            return Some(RequestKind::Change(self.changes.drain(..first).collect()));
        }
        if P::HELD && self.lease.is_due(now) {
            return Some(RequestKind::Change(Vec::new()));
        }
        self.failing.is_some().then_some(RequestKind::Probe)
    }

    /// Chooses the waiters to ask for: all within reach, if the head is due; and all up to the last newcomer
    /// that needs a reply at once, except those between that need none. A waiter does not overtake a change that
    /// was made before it came, because it must see the effect.
    fn choose(
        &mut self,
        context: &Context<P>,
        now: Nanos,
    ) -> (Option<Ahead<P::Cost>>, Vec<WaiterId>) {
        let changes_sent = self.changes_made.saturating_sub(self.changes.len() as u64);
        let may = |id: &WaiterId| self.queue[*id].changes <= changes_sent;
        let is_time = self.asks_at().is_none_or(|at| at <= now);
        let reach = if is_time { self.reach } else { 0 };
        let mut ids: Vec<_> = self.unbooked().take_while(may).take(reach).collect();
        let ahead = self.ahead(now, &ids);
        let next = match (&ahead, ids.last()) {
            (Some(_), _) => self.later.next,
            (None, Some(&last)) => self.queue.behind(last),
            (None, None) => self.head,
        };
        let (within, mut wanted) = (ids.len(), ids.len());
        let others = std::iter::successors(next, |&id| self.queue.behind(id)).take_while(may);
        for id in others.take(BATCH - within) {
            let waiter = &self.queue[id];
            ids.push(id);
            let turn = waiter.stage.turn();
            let wants = turn == Some(Turn::Reserving)
                || turn == Some(Turn::New) && (waiter.deadline.is_some() || context.scripts.room);
            if wants {
                wanted = ids.len();
            }
        }
        ids.truncate(wanted);
        for &id in &ids {
            let stage = &mut self.queue[id].stage;
            *stage = Stage::Asked(stage.turn().unwrap_or(Turn::Later));
        }
        (ahead.filter(|_| wanted > within), ids)
    }

    /// The waiters behind those of `ids` that need no answer.
    fn ahead(&self, now: Nanos, ids: &[WaiterId]) -> Option<Ahead<P::Cost>> {
        let first = ids.last().map_or(self.head, |&last| self.queue.behind(last))?;
        let (first, idle) = (self.queue[first].cost, self.policy.idle(now));
        let sum = (P::HOOKS.ready_behind)(&self.policy, &idle, now, 0, first).is_some();
        let costs: Vec<_> = ids.iter().map(|&id| self.queue[id].cost).collect();
        self.later.ahead(first, &costs, sum)
    }

    fn calls(
        &self,
        context: &Context<P>,
        now: Nanos,
        ahead: Option<Ahead<P::Cost>>,
        ids: &[WaiterId],
    ) -> Vec<Call<P::Cost>> {
        let head = ids.first().copied().filter(|_| ahead.is_none_or(|ahead| ahead.behind > 0));
        let call = |&id| {
            let waiter = &self.queue[id];
            let patience = waiter.deadline.map(|deadline| deadline.since(now));
            let is_head = Some(id) == head;
            let horizon = self.reach(context, waiter.cost, is_head);
            let limit = patience.map_or(horizon, |patience| horizon.min(patience));
            let fresh = waiter.stage.turn() != Some(Turn::Later);
            Call { cost: waiter.cost, limit, patience, fresh }
        };
        ids.iter().map(call).collect()
    }
}
