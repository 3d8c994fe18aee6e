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
    pub(super) collect_until: Nanos,
    /// The slot of the last request: dropped after the lock is released, as it wakes a task.
    returned: Option<Slot>,
    /// The last request was for changes: the next is for waiters.
    pub(super) changed_last: bool,
    /// Since when no request was sent because too many of other keys are in flight.
    pub(super) crowded: Option<Nanos>,
}

impl<C> Transport<C> {
    /// Whether no request is in flight.
    pub(super) fn is_free(&self) -> bool {
        self.flight.is_none()
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
        idle: [bool; 2],
    ) -> Step {
        let step = Step::Send(std::mem::take(&mut request.arguments), idle);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::redis::line::flight::RequestKind;
    use crate::{Rate, SmoothBursty};

    fn at(millis: u64) -> Nanos {
        Nanos::new(millis * 1_000_000)
    }

    fn context() -> Arc<Context<SmoothBursty>> {
        Context::with(SmoothBursty::new(Rate::per_second(1.0)))
    }

    fn request(kind: RequestKind<u32>) -> InFlightRequest<u32> {
        let (arguments, calls) = (vec![vec![7]], Vec::new());
        InFlightRequest { arguments, calls, kind, at: at(0), policy: 0, tries: None }
    }

    #[test]
    fn callers_without_a_slot_are_served_without_redis_after_the_deadline() {
        let (mut transport, deadline) = (Transport::<u32>::default(), Duration::from_millis(10));
        assert!(!transport.is_crowded_out(deadline, at(1_000)));
        transport.note_crowd(at(5));
        transport.note_crowd(at(7));
        let is_out = |transport: &Transport<_>| {
            [14, 15, 16].map(|now| transport.is_crowded_out(deadline, at(now)))
        };
        assert_eq!(is_out(&transport), [false, true, true]);
        transport.forget_crowd();
        assert_eq!(is_out(&transport), [false; 3]);
    }

    #[test]
    fn a_flight_is_known_by_its_number_until_the_line_goes_on_without_it() {
        let context = &*context();
        let mut transport = Transport::default();
        let first = transport.take_off(context, at(0), request(RequestKind::Probe));
        assert!(transport.is_under_way(first) && !transport.is_under_way(first + 1));
        let until = patience(context, at(0));
        assert_eq!((transport.looks_at(), transport.is_overdue(until)), (Some(until), true));
        assert!(transport.request(until, first).is_none(), "its task is too late");
        let just_in_time = Nanos::new(until.get() - 1);
        assert!(transport.request(just_in_time, first + 1).is_none());
        assert!(transport.request(just_in_time, first).is_some());
        // While its task waits for a slot nothing is overdue.
        transport.wait_for_slot();
        assert_eq!((transport.looks_at(), transport.is_overdue(until)), (None, false));
    }

    #[test]
    fn a_request_that_was_sent_is_looked_at_and_gives_its_slot_back() {
        let context = &*context();
        let deadline = context.options.deadline;
        let slots = Arc::clone(context.slots.of(false));
        let free = slots.available_permits();
        let mut transport = Transport::default();
        let send = |transport: &mut Transport<u32>| {
            let number = transport.take_off(context, at(0), request(RequestKind::Probe));
            let begun = transport.request(at(0), number).expect("to send");
            let slot = Arc::clone(&slots).try_acquire_owned().expect("a slot");
            let step = transport.send(context, at(5), begun, slot, [true, false]);
            assert!(matches!(step, Step::Send(arguments, [true, false]) if arguments == [[7]]));
            number
        };
        let number = send(&mut transport);
        let look = at(5).saturating_add(deadline / QUICK);
        assert_eq!(transport.looks_at(), Some(look));
        // Others are answered, so it may still be in front of the server.
        context.health.well(at(6), at(5));
        transport.return_slot(context, look);
        let next_look = look.saturating_add(deadline / QUICK);
        assert_eq!(transport.looks_at(), Some(next_look));
        assert!(transport.take_returned().is_none());
        transport.return_slot(context, next_look);
        assert!(transport.take_returned().is_some() && transport.take_returned().is_none());
        assert!(transport.land(number).flatten().is_some_and(|request| request.is_probe()));
        assert!(transport.take_returned().is_none());

        let number = send(&mut transport);
        transport.land(number);
        assert_eq!(slots.available_permits(), free - 1);
        drop(transport.take_returned());
        assert_eq!(slots.available_permits(), free);
    }

    #[test]
    fn changes_and_waiters_take_turns() {
        let mut transport = Transport::default();
        for kind in [RequestKind::Change(Vec::new()), RequestKind::Take(Vec::new())] {
            let request = request(kind);
            let is_take = matches!(request.kind, RequestKind::Take(_));
            let kinds = (request.is_change(), is_take, request.is_probe());
            transport.take_off(&context(), at(0), request);
            assert_eq!(kinds, (transport.changed_last, !transport.changed_last, false));
        }
    }
}
