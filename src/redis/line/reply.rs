//! The end of a request: its reply, or its failure, is applied to its waiters and changes.

use std::time::Duration;

use super::KeyLine;
use super::change::{Flight, RequestKind, refuse_all, reports};
use super::pacing::{Batch, Head, Refusal};
use super::roster::{Booking, Outcome};
use crate::error::Error;
use crate::error::store::StoreError;
use crate::observe::Event;
use crate::policy::PolicyExt;
use crate::redis::context::Options;
use crate::redis::script::wire::{Answer, Rank, Verdict};
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
struct Taken {
    /// When its request was sent, and under which policy.
    sent: (Nanos, u32),
    /// Whether what it books is too old.
    is_overdue: bool,
    booked: usize,
    first_due: Option<Nanos>,
    /// The first waiter that has to wait, and how long.
    later: Option<(WaiterId, Option<Duration>)>,
}

impl<P: Scripted> KeyLine<P> {
    /// The request of a flight has ended.
    pub(crate) fn land(&mut self, number: u64, end: Result<Vec<f64>, StoreError>) {
        let Some(flight) = self.flight.take_if(|flight| flight.number == number) else {
            // Too late for its callers, but it is an answer.
            if end.is_ok() {
                self.note_answer();
            }
            return;
        };
        self.roster.served = 0;
        self.end(flight, &end);
        // In simulated time nothing comes back by itself.
        let is_real = self.context.clock.is_real();
        self.collect_until = if is_real { self.now().saturating_add(COLLECT) } else { Nanos::ZERO };
    }

    /// Applies the end of a request, or of a task that has sent none.
    pub(super) fn end(&mut self, mut flight: Flight<P>, end: &Result<Vec<f64>, StoreError>) {
        let policy = self.agreement.number;
        let mut request = flight.request.take().unwrap_or(RequestKind::PROBE);
        let sent = (flight.at, flight.policy);
        let rest = match end {
            Ok(reply) => match self.replied(&mut request, sent, reply) {
                Some(rest) => rest,
                None => self.failed(&mut request, sent.0, &StoreError::strange(reply)),
            },
            Err(failure) => self.failed(&mut request, sent.0, failure),
        };
        match rest {
            Rest::Settled => {}
            Rest::Repeat => self.repeat(request),
            Rest::Refuse(error) => self.refuse(request, &error),
        }
        if self.agreement.number != policy {
            self.turn_away_the_too_large();
        }
        self.hand_on();
    }

    fn repeat(&mut self, kind: RequestKind<P>) {
        self.lease.released |= P::HELD;
        match kind {
            RequestKind::Take(ids, _) => {
                for id in ids {
                    self.roster.unask(id);
                }
            }
            RequestKind::Change(changes) => {
                for change in changes.into_iter().rev() {
                    self.outbox.push_front(change);
                }
            }
        }
    }

    fn refuse(&mut self, kind: RequestKind<P>, error: &StoreError) {
        // A probe takes nothing, so nothing is lost with it.
        if error.may_have_charged() && !kind.is_probe() {
            self.context.count(|counters| counters.lost += 1);
        }
        // A key at fault is left alone.
        self.lease.released |= P::HELD && error.is_unavailable();
        match kind {
            RequestKind::Take(ids, _) => {
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

    fn failed(&mut self, request: &mut RequestKind<P>, sent: Nanos, failure: &StoreError) -> Rest {
        self.context.count(|counters| counters.failed += 1);
        if !failure.is_unavailable() {
            // The server is there.
            self.note_answer();
            self.pacing.ask_again();
            return Rest::Refuse(failure.at(&self.key));
        }
        let (now, sent) = (self.now(), (sent, request.is_probe()));
        let error = failure.at(&self.key);
        let all = (&self.context.health, self.context.options.deadline);
        let (is_left, down) = self.outage.failed(all, now, sent, &error);
        self.events.extend(down);
        if is_left {
            self.lease.released = false;
            return Rest::Settled;
        }
        if error.may_have_charged() {
            return Rest::Refuse(error);
        }
        // Redis may permit all but to delete.
        if let RequestKind::Change(changes) = request {
            refuse_all(changes.pop_if(|change| change.deletes()), &error);
        }
        Rest::Repeat
    }

    /// A reply has come. `None` if it is malformed.
    fn replied(
        &mut self,
        request: &mut RequestKind<P>,
        sent: (Nanos, u32),
        reply: &[f64],
    ) -> Option<Rest> {
        let mismatch = wire::mismatch(reply, self.rules(), &self.agreement.policy);
        if let Some(mismatch) = mismatch {
            self.note_answer();
            return Some(self.disagree(mismatch));
        }
        match request {
            RequestKind::Take(ids, calls) => {
                let answers = wire::answers(reply, calls, self.rules())?;
                self.note_answer();
                self.taken(ids, sent, answers);
            }
            RequestKind::Change(changes) if changes.is_empty() => self.note_answer(),
            RequestKind::Change(changes) => {
                let (reports, rank) = reports(changes, reply)?;
                self.note_answer();
                let set = changes.iter_mut().rev().find_map(|change| change.sets.take());
                if let Some((policy, rank)) = set.zip(rank) {
                    self.agreement.adopt(policy, rank);
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
    fn disagree(&mut self, mismatch: Option<(P, Rank)>) -> Rest {
        self.pacing.ask_again();
        let Some((policy, rank)) = mismatch else {
            let foreign = StoreError::refused("another kind of policy, or another format");
            return Rest::Refuse(StoreError { is_of_key: true, ..foreign.at(&self.key) });
        };
        if self.agreement.adopt(policy, rank) {
            let (key, (version, generation)) = (self.key.clone(), rank);
            self.events.push(Event::PolicyAdopted { key, version, generation });
        }
        Rest::Repeat
    }

    /// Redis has answered for waiters.
    fn taken(&mut self, ids: &[WaiterId], sent: (Nanos, u32), answers: Vec<Answer>) {
        let now = self.now();
        self.context.count(|counters| counters.asked += ids.len() as u64);
        // Whether the head was expected to be ready then.
        let was_time = self.pacing.ask_at.is_some_and(|at| at <= sent.0);
        let passed = self.pacing.passed;
        let Options { deadline, horizon, .. } = self.context.options;
        self.pacing.trip = now.since(sent.0);
        // The process stood still meanwhile.
        let is_overdue = self.pacing.trip > deadline.saturating_add(horizon);
        if self.roster.front_booking().is_none() {
            self.last_due = self.spare.back().map_or(Nanos::ZERO, |(_, booking)| booking.due);
        }
        let (booked, first_due, later) = Default::default();
        let mut taken = Taken { sent, is_overdue, booked, first_due, later };
        for (&id, answer) in ids.iter().zip(answers) {
            self.settle(id, &answer, &mut taken);
        }
        self.hand_on();
        self.lease.renew_from(&self.context, sent.0);
        let head = match taken.later {
            None => Head::Served,
            // Another waiter may have come meanwhile.
            Some((id, _)) if self.roster.head() != Some(id) => Head::Unasked,
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
        let Taken { booked, first_due, .. } = taken;
        let batch = Batch { within: ids.len(), booked, first_due, last_due: self.last_due };
        self.pacing.plan(&self.context, now, &batch, head);
    }

    /// Applies the answer for one waiter.
    fn settle(&mut self, id: WaiterId, answer: &Answer, taken: &mut Taken) {
        let (now, cost) = (self.now(), self.roster[id].cost);
        if self.spare.front().is_some_and(|&(its, _)| its != cost) {
            self.hand_on();
        }
        let (waits, mut is_booked) = (self.roster.unask(id), false);
        if let Verdict::Booked(sequence) = answer.verdict {
            self.lease.hold::<P>(cost);
            self.pacing.refusal = None;
            taken.booked += 1;
            let wait = answer.wait.unwrap_or_default();
            let (sent, policy) = taken.sent;
            // Never before an earlier booking, even if this reply was quicker.
            self.last_due = now.saturating_add(wait).max(self.last_due);
            let (due, earliest) = (self.last_due, sent.saturating_add(wait));
            let booking = Booking { sequence, due, earliest, policy };
            if taken.is_overdue {
                self.return_booking(cost, booking);
                if waits {
                    self.roster.wait_on(id);
                }
                return;
            }
            taken.first_due.get_or_insert(due);
            self.spare.push_back((cost, booking));
            is_booked = true;
        }
        if !waits {
            // It has left: its booking is for those behind it.
            return;
        }
        let part = answer.part.and_then(|part| self.agreement.policy.part(part));
        let due = answer.wait.map(|wait| now.saturating_add(wait));
        self.roster.learn(id, part, due);
        if is_booked && let Some((_, booking)) = self.spare.pop_front() {
            self.pacing.passed = 0;
            return self.roster.book(id, booking);
        }
        match answer.verdict {
            Verdict::Later => {
                self.roster.wait_on(id);
                taken.later.get_or_insert((id, answer.wait));
            }
            Verdict::Full => {
                let error = Error::QueueFull { limit: "capacity", retry_after: answer.wait };
                self.turn_away(id, Outcome::Refused(error));
            }
            Verdict::Refused | Verdict::Booked(_) => {
                let error = Error::Denied { retry_after: answer.wait, part };
                self.turn_away(id, Outcome::Refused(error));
                // A policy that punishes must see each refusal.
                if let Some(due) = due.filter(|_| !self.rules().punishes()) {
                    self.pacing.refusal = Some(Refusal { cost, due, part });
                }
            }
        }
    }
}
