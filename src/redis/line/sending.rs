//! The begin and the end of the request in flight, and when the line goes on without its task.

use std::sync::Arc;
use std::time::Duration;

use super::KeyLine;
use super::change::refuse_all;
use super::failure::without_redis;
use super::flight::{Flight, InFlightRequest, RequestEnd, Step};
use super::waiter::Stage;
use crate::error::store::StoreError;
use crate::redis::connection::{Effect, Failure};
use crate::redis::context::{Context, Slot};
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// When the line goes on without a task that was to act at `now`: a little later than the connection, whose error
/// says more, reports that there was no reply.
fn patience<P>(context: &Context<P>, now: Nanos) -> Nanos {
    let deadline = context.options.deadline;
    now.saturating_add(deadline + (deadline / 8).max(Duration::from_millis(50)))
}

/// How long the next request waits at most for callers that have just been served to come back.
const COLLECT: Duration = Duration::from_micros(500);

/// A request keeps its slot for this part of the deadline, and longer only if it waits in a crowd.
const QUICK: u32 = 16;

impl<P: Scripted> KeyLine<P> {
    pub(super) fn take_off(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        request: InFlightRequest<P::Cost>,
    ) -> u64 {
        self.flights += 1;
        let until = Some(patience(context, now));
        let (number, request) = (self.flights, Some(request));
        self.flight =
            Some(Flight { number, request, sent: None, look_at: None, slot: None, until });
        number
    }

    fn flight(&mut self, number: u64) -> Option<&mut Flight<P::Cost>> {
        self.flight.as_mut().filter(|flight| flight.number == number)
    }

    /// The task of a flight begins with its request. `slot`: if it has waited for one.
    pub(crate) fn begin(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        number: u64,
        slot: Option<Slot>,
    ) -> Step {
        let slots = context.slots.of(self.failing.is_some());
        let flight = self.flight.as_mut().filter(|flight| flight.number == number);
        let Some(flight) = flight.filter(|flight| flight.until.is_some_and(|until| now < until))
        else {
            return Step::Next;
        };
        let Some(mut request) = flight.request.take() else { return Step::Next };
        if context.health.down().is_some() && !request.is_probe() {
            // Another key has found out while this one waited for the connection.
            self.end(context, now, request, RequestEnd::Withdrawn);
            return Step::Next;
        }
        let Some(slot) = slot.or_else(|| Arc::clone(slots).try_acquire_owned().ok()) else {
            flight.until = None;
            self.end(context, now, request, RequestEnd::NoSlot);
            return Step::WaitForSlot(Arc::clone(slots));
        };
        let step = Step::Send(std::mem::take(&mut request.arguments), request.is_take());
        flight.until = Some(patience(context, now));
        flight.look_at = Some(now.saturating_add(context.options.deadline / QUICK));
        (flight.request, flight.sent, flight.slot) = (Some(request), Some(now), Some(slot));
        step
    }

    /// The request of a flight has ended.
    pub(crate) fn land(&mut self, context: &Context<P>, now: Nanos, number: u64, end: RequestEnd) {
        let Some(flight) = self.flight(number) else {
            // Too late for its callers, but it is an answer.
            if matches!(end, RequestEnd::Replied(_)) {
                self.well(context, now, Nanos::ZERO);
            }
            return;
        };
        let request = flight.request.take();
        self.returned = flight.slot.take();
        self.flight = None;
        self.crowded = None;
        self.served = 0;
        if let Some(request) = request {
            self.end(context, now, request, end);
        }
        // In simulated time nothing comes back by itself.
        self.collect_until =
            if context.options.clock.is_real() { now.saturating_add(COLLECT) } else { Nanos::ZERO };
    }

    /// Whether callers that were just served may still come back for the next request.
    pub(super) fn is_collecting(&self) -> bool {
        self.served > 0
    }

    /// Whether all callers that were just served have taken their outcome, and a request may be due.
    pub(crate) fn has_collected(&self) -> bool {
        !self.is_collecting() && self.flight.is_none() && self.has_business()
    }

    fn has_business(&self) -> bool {
        self.waiting > 0 || !self.changes.is_empty() || self.lease.released
    }

    /// The task has no request to send.
    pub(crate) fn free(&mut self, number: u64) {
        self.flight.take_if(|flight| flight.number == number);
    }

    /// The task of a flight has ended early, as by a panic.
    pub(crate) fn abandon(&mut self, context: &Context<P>, now: Nanos, number: u64) {
        if self.flight(number).is_some() {
            self.lose_flight(context, now, "the task that sends requests has ended");
        }
    }

    fn lose_flight(&mut self, context: &Context<P>, now: Nanos, why: &str) {
        let Some(Flight { request, sent, slot, .. }) = self.flight.take() else { return };
        let effect = if sent.is_some() { Effect::Unknown } else { Effect::None };
        self.returned = slot;
        if let Some(request) = request {
            let failure = Failure::new(effect, why.into());
            self.end(context, now, request, RequestEnd::Failed(failure));
        }
    }

    /// When the line goes on by itself although a request is under way.
    pub(super) fn overdue_at(&self, context: &Context<P>, now: Nanos) -> Option<Nanos> {
        let deadline = context.options.deadline;
        let flight = self.flight.as_ref().and_then(|flight| {
            let look = flight.slot.as_ref().and(flight.look_at);
            look.into_iter().chain(flight.until).min()
        });
        let collects = self.is_collecting() && self.flight.is_none() && self.has_business()
            || self.queue.holds_back();
        let collected = collects.then_some(self.collect_until).filter(|&until| until > now);
        let crowded = self.crowded.and_then(|since| {
            let waiter = self.unanswered().next().map(|id| self.queue[id].joined);
            let change = self.changes.front().map(|change| change.made);
            let first = waiter.into_iter().chain(change).min()?;
            Some(first.max(since).saturating_add(deadline))
        });
        flight.into_iter().chain(crowded).chain(collected).min()
    }

    /// Lets time pass: no caller waits for a task that stands still, nor for a slot.
    pub(crate) fn give_up_on_flight(&mut self, context: &Context<P>, now: Nanos) {
        let until = self.flight.as_ref().and_then(|flight| flight.until);
        if until.is_some_and(|until| until <= now) {
            let deadline = context.options.deadline;
            self.lose_flight(context, now, &format!("nothing was heard of it within {deadline:?}"));
        }
        self.return_slot(context, now);
        let Some(since) = self.crowded else { return };
        let is_over =
            |joined: Nanos| joined.max(since).saturating_add(context.options.deadline) <= now;
        let over: Vec<_> =
            self.unanswered().take_while(|&id| is_over(self.queue[id].joined)).collect();
        let (unsent, sent) = (self.crowd(Effect::None), self.crowd(Effect::Unknown));
        for id in over {
            let asked = self.queue[id].stage.is_asked();
            let error = if asked { sent.clone() } else { unsent.clone() };
            self.turn_away(id, without_redis(context, error));
        }
        let kept = self.changes.iter().position(|change| !is_over(change.made));
        let kept = self.changes.split_off(kept.unwrap_or(self.changes.len()));
        refuse_all(std::mem::replace(&mut self.changes, kept), &unsent);
    }

    /// A request that later ones overtake returns its slot: only its own node or script is slow. So does one that
    /// waits while no request is answered at all.
    fn return_slot(&mut self, context: &Context<P>, now: Nanos) {
        let Some(flight) = &mut self.flight else { return };
        let (Some(sent), Some(look_at)) = (flight.sent, flight.look_at) else { return };
        if flight.slot.is_some() && look_at <= now {
            let quick = context.options.deadline / QUICK;
            flight.look_at = Some(now.saturating_add(quick));
            if context.health.has_passed_over(sent, now, quick) {
                self.returned = flight.slot.take();
            }
        }
    }

    pub(super) fn crowd(&self, effect: Effect) -> StoreError {
        Failure::new(effect, "too many other requests are under way".into()).error(&self.key)
    }

    /// The waiters that still wait for a reply.
    fn unanswered(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| !matches!(self.queue[id].stage, Stage::Stale(_)))
    }

    /// Whether callers have waited for a slot for so long that they are served without Redis.
    pub(super) fn is_crowded_out(&self, deadline: Duration, now: Nanos) -> bool {
        self.crowded.is_some_and(|since| since.saturating_add(deadline) <= now)
    }
}
