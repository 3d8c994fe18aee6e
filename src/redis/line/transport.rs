//! The request in flight, its slot, and the callers that the next one waits for.

use std::time::Duration;

use super::flight::{Flight, InFlightRequest, Step};
use crate::redis::connection::Effect;
use crate::redis::context::{Context, Slot};
use crate::units::Nanos;

/// How long the next request waits at most for callers that have just been served to come back.
const COLLECT: Duration = Duration::from_micros(500);

/// A request keeps its slot for this part of the deadline, and longer only if it waits in a crowd.
const QUICK: u32 = 16;

/// When the line goes on without a task that was to act at `now`: a little later than the connection, whose error
/// says more, reports that there was no reply.
fn patience<P>(context: &Context<P>, now: Nanos) -> Nanos {
    let deadline = context.options.deadline;
    now.saturating_add(deadline + (deadline / 8).max(Duration::from_millis(50)))
}

#[derive(Default)]
pub(super) struct Transport<C> {
    /// The request in flight, or the task that is about to send one.
    flight: Option<Flight<C>>,
    flights: u64,
    /// How long the next request waits for callers that the last reply has served.
    collect_until: Nanos,
    /// The slot of the last request: dropped after the lock is released, as it wakes a task.
    returned: Option<Slot>,
    /// The last request was for changes: the next is for waiters.
    changed_last: bool,
    /// Since when no request was sent because too many of other keys are in flight.
    crowded: Option<Nanos>,
}

impl<C> Transport<C> {
    /// Whether no request is in flight.
    pub(super) fn is_free(&self) -> bool {
        self.flight.is_none()
    }

    pub(super) fn changed_last(&self) -> bool {
        self.changed_last
    }

    pub(super) fn collect_until(&self) -> Nanos {
        self.collect_until
    }

    pub(super) fn crowded(&self) -> Option<Nanos> {
        self.crowded
    }

    /// Whether callers have waited for a slot for so long that they are served without Redis.
    pub(super) fn is_crowded_out(&self, deadline: Duration, now: Nanos) -> bool {
        self.crowded.is_some_and(|since| since.saturating_add(deadline) <= now)
    }

    pub(super) fn note_crowd(&mut self, now: Nanos) {
        self.crowded.get_or_insert(now);
    }

    pub(super) fn forget_crowd(&mut self) {
        self.crowded = None;
    }

    pub(super) fn take_returned(&mut self) -> Option<Slot> {
        self.returned.take()
    }

    /// A request is made. Returns the number of its flight.
    pub(super) fn take_off<P>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        request: InFlightRequest<C>,
    ) -> u64 {
        self.changed_last = request.is_change();
        self.flights += 1;
        let until = Some(patience(context, now));
        let (number, request) = (self.flights, Some(request));
        self.flight =
            Some(Flight { number, request, sent: None, look_at: None, slot: None, until });
        number
    }

    /// Whether this flight has neither ended nor been given up.
    pub(super) fn is_under_way(&self, number: u64) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.number == number)
    }

    /// The request of a flight, for its task to send it. `None`: the line goes on without that task.
    pub(super) fn request(&mut self, now: Nanos, number: u64) -> Option<InFlightRequest<C>> {
        let flight = self.flight.as_mut().filter(|flight| flight.number == number)?;
        flight.until.filter(|&until| now < until)?;
        flight.request.take()
    }

    /// The task of the flight waits for a slot.
    pub(super) fn wait_for_slot(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.until = None;
        }
    }

    /// The request is sent.
    pub(super) fn send<P>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        mut request: InFlightRequest<C>,
        slot: Slot,
    ) -> Step {
        let step = Step::Send(std::mem::take(&mut request.arguments), request.is_take());
        if let Some(flight) = &mut self.flight {
            flight.until = Some(patience(context, now));
            flight.look_at = Some(now.saturating_add(context.options.deadline / QUICK));
            (flight.request, flight.sent, flight.slot) = (Some(request), Some(now), Some(slot));
        }
        step
    }

    /// A flight has ended. `None`: it was given up before. Else its request, unless it was not sent.
    pub(super) fn land(&mut self, number: u64) -> Option<Option<InFlightRequest<C>>> {
        let Flight { request, slot, .. } = self.flight.take_if(|it| it.number == number)?;
        self.returned = slot;
        self.crowded = None;
        Some(request)
    }

    /// Callers that were served come back soon. In simulated time nothing comes back by itself.
    pub(super) fn collect<P>(&mut self, context: &Context<P>, now: Nanos) {
        let is_real = context.options.clock.is_real();
        self.collect_until = if is_real { now.saturating_add(COLLECT) } else { Nanos::ZERO };
    }

    /// The task has no request to send.
    pub(super) fn free(&mut self, number: u64) {
        self.flight.take_if(|flight| flight.number == number);
    }

    /// Gives the flight up. Returns its request, and whether that may have had an effect.
    pub(super) fn lose(&mut self) -> Option<(InFlightRequest<C>, Effect)> {
        let Flight { request, sent, slot, .. } = self.flight.take()?;
        self.returned = slot;
        let effect = if sent.is_some() { Effect::Unknown } else { Effect::None };
        request.map(|request| (request, effect))
    }

    /// Whether the line goes on without the task.
    pub(super) fn is_overdue(&self, now: Nanos) -> bool {
        let until = self.flight.as_ref().and_then(|flight| flight.until);
        until.is_some_and(|until| until <= now)
    }

    /// When to look at the flight next.
    pub(super) fn looks_at(&self) -> Option<Nanos> {
        let flight = self.flight.as_ref()?;
        let look = flight.slot.as_ref().and(flight.look_at);
        look.into_iter().chain(flight.until).min()
    }

    /// A request that later ones overtake returns its slot: only its own node or script is slow. So does one that
    /// waits while no request is answered at all.
    pub(super) fn return_slot<P>(&mut self, context: &Context<P>, now: Nanos) {
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
}
