//! The end of a request: its reply, or its failure, is applied to its waiters and changes.

use std::collections::VecDeque;
use std::time::Duration;

use super::change::{KeyChange, refuse_all};
use super::flight::{InFlightRequest, RequestKind};
use super::pacing::{Batch, Head, Refusal};
use super::report::reports;
use super::waiter::{Booking, Outcome};
use super::{KeyLine, put_aside};
use crate::error::store::StoreError;
use crate::error::{Error, QueueLimit};
use crate::observe::Event;
use crate::redis::connection::{Effect, Failure, Reply};
use crate::redis::script::wire::{Answer, Mismatch, Verdict};
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// How long the next request waits at most for callers that have just been served to come back.
const COLLECT: Duration = Duration::from_micros(500);

/// How a request ends for its waiters and changes.
enum Rest {
    Settled,
    /// The request had no effect: another one repeats it.
    Repeat,
    Refuse(StoreError),
}

/// A reply to waiters, while it is applied.
struct Taken<C> {
    /// When its request was sent, and under which policy.
    sent: (Nanos, u32),
    /// Whether what it books may be lost, because the process stood still meanwhile.
    is_overdue: bool,
    /// Bookings for the next waiters, and their cost.
    spare: VecDeque<Booking>,
    cost: C,
    booked: usize,
    first_due: Option<Nanos>,
    /// The first waiter that has to wait, and how long.
    later: Option<(WaiterId, Option<Duration>)>,
}

impl<P: Scripted> KeyLine<P> {
    /// The request of a flight has ended.
    pub(crate) fn land(&mut self, number: u64, end: Result<Reply, Failure>) {
        let Some(flight) = self.flight.take_if(|flight| flight.number == number) else {
            // Too late for its callers, but it is an answer.
            if end.is_ok() {
                self.note_answer(Nanos::ZERO);
            }
            return;
        };
        self.roster.served = 0;
        if let Some(request) = flight.request {
            self.end(request, &end);
        }
        // In simulated time nothing comes back by itself.
        let is_real = self.context.options.clock.is_real();
        self.collect_until = if is_real { self.now().saturating_add(COLLECT) } else { Nanos::ZERO };
    }

    /// Applies the end of a request.
    pub(super) fn end(
        &mut self,
        mut request: InFlightRequest<P::Cost>,
        end: &Result<Reply, Failure>,
    ) {
        let (now, policy) = (self.now(), self.agreement.number);
        let rest = match end {
            Ok(reply) => match self.replied(&mut request, reply) {
                Some(rest) => {
                    self.context.count(|counters| {
                        counters.answered += 1;
                        counters.latency += now.since(request.at);
                    });
                    rest
                }
                None => self.failed(&mut request, &Failure::strange(reply)),
            },
            Err(failure) => self.failed(&mut request, failure),
        };
        match rest {
            Rest::Settled => {}
            Rest::Repeat => self.repeat(request.kind),
            Rest::Refuse(error) => self.refuse(request.kind, &error),
        }
        if self.agreement.number != policy {
            self.turn_away_the_too_large();
        }
        let spare = std::mem::take(&mut self.spare);
        self.hand_on(self.roster.head, spare);
    }

    fn repeat(&mut self, kind: RequestKind<P::Cost>) {
        self.lease.failed(&self.context, self.now(), false);
        match kind {
            RequestKind::Take(ids) => {
                for id in ids {
                    self.roster.unask(id);
                }
            }
            RequestKind::Change(changes) => self.outbox.take_back(changes),
        }
        // Before all else: under another policy the rest may be answered that way for ever.
        if self.agreement.is_unheard() && !self.outbox.sets_first() {
            self.outbox.push_first(KeyChange::setting());
        }
    }

    fn refuse(&mut self, kind: RequestKind<P::Cost>, error: &StoreError) {
        // A probe takes nothing, so nothing is lost with it.
        if error.may_have_charged() && !kind.is_probe() {
            self.context.count(|counters| counters.lost += 1);
        }
        // A key at fault is left alone.
        if error.is_unavailable() {
            let may_have_booked = matches!(kind, RequestKind::Take(..)) && error.may_have_charged();
            self.lease.failed(&self.context, self.now(), may_have_booked);
        }
        match kind {
            RequestKind::Take(ids) => {
                for id in ids {
                    if self.roster.unask(id) {
                        let outcome = match error.is_unavailable() {
                            true => self.without_redis(error.clone()),
                            false => Outcome::Refused(error.clone().into()),
                        };
                        self.turn_away(id, outcome);
                    }
                }
            }
            RequestKind::Change(changes) => refuse_all(changes, error),
        }
    }

    fn failed(&mut self, request: &mut InFlightRequest<P::Cost>, failure: &Failure) -> Rest {
        self.context.count(|counters| counters.failed += 1);
        let error = failure.error(&self.key);
        if failure.key {
            // The server is there.
            self.context.count(|counters| counters.foreign += 1);
            self.note_answer(request.at);
            self.pacing.ask_again();
            return Rest::Refuse(error);
        }
        if failure.is_forbidden()
            && let RequestKind::Change(changes) = &mut request.kind
            && let Some(deletion) = changes.pop_if(|change| change.deletes())
        {
            // Nothing else deletes, so the rest may be permitted. Redis 7.0 does not say which command it was.
            let why = format!("a reset needs the permission for DEL: {}", failure.source);
            refuse_all([deletion], &Failure::new(Effect::None, why.into()).error(&self.key));
            self.note_answer(request.at);
            self.pacing.ask_again();
            return Rest::Repeat;
        }
        let (now, sent) = (self.now(), (request.since, request.kind.is_probe()));
        let down = self.outage.failed(&self.context, now, sent, &error, self.pacing.random);
        self.events.extend(down);
        if failure.effect == Effect::None { Rest::Repeat } else { Rest::Refuse(error) }
    }

    /// A reply has come. `None` if it is malformed.
    fn replied(&mut self, request: &mut InFlightRequest<P::Cost>, reply: &Reply) -> Option<Rest> {
        let mismatch = wire::mismatch(reply, &self.context.rules, &self.agreement.policy);
        if let Some(mismatch) = mismatch {
            self.note_answer(request.at);
            return Some(self.disagree(mismatch));
        }
        match &mut request.kind {
            RequestKind::Take(ids) => {
                let answers = wire::answers(reply, &request.calls, &self.context.rules)?;
                self.note_answer(request.at);
                self.taken(ids, (request.at, request.policy), answers);
                self.set_again();
            }
            RequestKind::Change(changes) if changes.is_empty() => self.note_answer(request.at),
            RequestKind::Change(changes) => {
                let (reports, rank) = reports::<P>(changes, reply)?;
                self.note_answer(request.at);
                if let Some(rank) = rank.filter(|_| request.policy == self.agreement.number) {
                    self.agreement.confirm(rank);
                }
                // Earlier replies are from before these changes.
                self.pacing.ask_again();
                for (change, report) in changes.drain(..).zip(reports) {
                    let _ = change.done.map(|done| done.send(Ok(report)));
                }
            }
        }
        Some(Rest::Settled)
    }

    /// The key has a policy of a higher rank, or something else.
    fn disagree(&mut self, mismatch: Mismatch<P>) -> Rest {
        self.pacing.ask_again();
        match mismatch {
            Mismatch::Foreign => {
                self.context.count(|counters| counters.foreign += 1);
                return Rest::Refuse(Failure::foreign().error(&self.key));
            }
            // What was set here is set again, and then this.
            Mismatch::Policy(..) if self.agreement.is_unheard() => {}
            Mismatch::Policy(policy, rank) => {
                if self.agreement.adopt(policy, rank) {
                    let (key, (version, generation)) = (self.key.clone(), rank);
                    self.events.push(Event::PolicyAdopted { key, version, generation });
                }
            }
        }
        Rest::Repeat
    }

    /// Redis has answered for waiters.
    fn taken(&mut self, ids: &[WaiterId], sent: (Nanos, u32), answers: Vec<Answer>) {
        let now = self.now();
        self.context.count(|counters| counters.asked += ids.len() as u64);
        let (was_time, passed) = (self.pacing.was_time(sent.0), self.pacing.passed);
        let mut taken = self.begin_taken(sent);
        for (&id, answer) in ids.iter().zip(answers) {
            self.settle(id, &answer, &mut taken);
        }
        let Taken { spare, cost, booked, first_due, later, .. } = taken;
        // Waiters may have come meanwhile.
        self.hand_on(self.roster.head, (spare, cost));
        self.lease.begin(&self.context, sent.0);
        let head = match later {
            None => Head::Served,
            Some((id, _)) if self.roster.head != Some(id) => Head::Unasked,
            Some((id, wait)) => {
                if wait.is_none() {
                    self.lease.wait::<P>();
                }
                // It was passed over only if it was the head before.
                let was_passed = was_time && ids.first() == Some(&id);
                let passed = was_passed.then_some(passed);
                Head::Later { cost: self.roster[id].cost, wait, passed }
            }
        };
        let batch = Batch { within: ids.len(), booked, first_due, last_due: self.last_due };
        self.pacing.plan(&self.context, now, &batch, head);
    }

    fn begin_taken(&mut self, (sent, policy): (Nanos, u32)) -> Taken<P::Cost> {
        let now = self.now();
        let trip = now.since(sent);
        self.pacing.trip = trip;
        // The process stood still meanwhile: its waiters may have lost their bookings.
        if trip > self.context.options.deadline.saturating_add(self.context.options.horizon) {
            self.stood_still.get_or_insert(now);
        }
        let (spare, cost) = std::mem::take(&mut self.spare);
        if self.roster.front_booking().is_none() {
            self.last_due = spare.back().map_or(Nanos::ZERO, |booking| booking.due);
        }
        Taken {
            sent: (sent, policy),
            is_overdue: self.stood_still.is_some_and(|at| sent < at),
            spare,
            cost,
            booked: 0,
            first_due: None,
            later: None,
        }
    }

    /// Applies the answer for one waiter.
    fn settle(&mut self, id: WaiterId, answer: &Answer, taken: &mut Taken<P::Cost>) {
        let cost = self.roster[id].cost;
        if taken.cost != cost {
            self.return_all((taken.spare.drain(..), taken.cost));
        }
        let mut is_booked = false;
        if let Verdict::Booked(sequence) = answer.verdict {
            self.hold(cost);
            self.pacing.refusal = None;
            taken.booked += 1;
            let wait = answer.wait.unwrap_or_default();
            let (sent, policy) = taken.sent;
            // Never before an earlier booking, even if this reply was quicker.
            self.last_due = self.now().saturating_add(wait).max(self.last_due);
            let (due, earliest) = (self.last_due, sent.saturating_add(wait));
            let booking = Booking { sequence, due, earliest, policy };
            if taken.is_overdue {
                self.return_booking(cost, booking);
                if self.roster.unask(id) {
                    self.roster.wait_on(id);
                }
                return;
            }
            taken.first_due.get_or_insert(booking.due);
            put_aside(&mut taken.spare, booking);
            taken.cost = cost;
            is_booked = true;
        }
        if !self.roster.unask(id) {
            // It has left: its booking is for those behind it.
            return;
        }
        self.roster.limit(id, self.agreement.part(answer));
        // A spare booking goes to the first waiter, even if one that left was before it.
        let in_time = |booking: &Booking| self.roster[id].is_in_time(booking);
        let is_next = answer.verdict == Verdict::Later
            && taken.later.is_none()
            && taken.spare.front().is_some_and(in_time);
        match if is_booked || is_next { taken.spare.pop_front() } else { None } {
            Some(booking) => {
                self.roster.book(id, booking);
                self.pacing.passed = 0;
            }
            None => self.not_booked(id, answer, taken),
        }
    }

    fn not_booked(&mut self, id: WaiterId, answer: &Answer, taken: &mut Taken<P::Cost>) {
        let due = answer.wait.map(|wait| self.now().saturating_add(wait));
        self.roster.project(id, due);
        match answer.verdict {
            Verdict::Later => {
                self.roster.wait_on(id);
                taken.later.get_or_insert((id, answer.wait));
            }
            Verdict::Full => {
                let limit = QueueLimit::Capacity;
                let error = Error::QueueFull { limit, retry_after: answer.wait };
                self.turn_away(id, Outcome::Refused(error));
            }
            Verdict::Refused | Verdict::Booked(_) => {
                let cost = self.roster[id].cost;
                let part = self.agreement.part(answer);
                let error = Error::Denied { retry_after: answer.wait, part };
                self.turn_away(id, Outcome::Refused(error));
                // A policy that punishes must see each refusal.
                if let Some(due) = due.filter(|_| !self.context.rules.punishes()) {
                    self.pacing.refusal = Some(Refusal { cost, due, part });
                }
            }
        }
    }
}
