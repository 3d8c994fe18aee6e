//! Applies the reply of a request to its waiters.

use std::time::Duration;

use super::change::{Claim, KeyChange, KeyReport, LimitReport, Report};
use super::flight::{InFlightRequest, RequestKind};
use super::handover::put_aside;
use super::request::{Rest, poll_pause};
use super::waiter::{Booking, Outcome};
use super::{BATCH, KeyLine};
use crate::error::{Error, QueueLimit};
use crate::policy::{Cost, Quota};
use crate::redis::connection::Reply;
use crate::redis::context::Context;
use crate::redis::health::{about, whole};
use crate::redis::script::wire::{Answer, Verdict};
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// After this part of the horizon, on average, a process asks again for a head that was passed over. The time is
/// random, so that processes do not keep step.
const PACE: u32 = 16;

/// The least reach of a request. The reach is limited because a "later" costs the server, too.
const FEW: usize = 8;

/// The numbers in a reply, one after the other.
struct Numbers<'a>(&'a [i64]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<i64> {
        self.0.split_off_first().copied()
    }

    fn cost<P: Scripted>(&mut self) -> Option<P::Cost> {
        let numbers = self.0.split_off(..P::Cost::NUMBERS)?;
        Some(P::Cost::from_numbers(|index| u32::try_from(numbers[index]).unwrap_or(u32::MAX)))
    }

    /// In microseconds, or a negative number for none. `None` if there is no number.
    fn time(&mut self) -> Option<Option<Duration>> {
        Some(u64::try_from(self.next()?).ok().map(Duration::from_micros))
    }

    fn state<P: Scripted>(&mut self) -> Option<KeyReport<P::Cost>> {
        let (remaining, limit) = (self.cost::<P>()?, self.cost::<P>()?);
        let (reset_after, paused_for, expires_in) = (self.time()?, self.time()??, self.time()?);
        // The window is the policy's to tell.
        let quota = Quota { limit, remaining, reset_after, window: None };
        Some(KeyReport { quota, paused_for, expires_in })
    }

    fn limits<P: Scripted>(&mut self) -> Option<Vec<LimitReport<P::Cost>>> {
        let mut limits = Vec::new();
        for _ in 0..self.next()? {
            limits.push(LimitReport { remaining: self.cost::<P>()?, more_after: self.time()? });
        }
        Some(limits)
    }
}

/// The reports in the reply to changes, for the changes that ask for one. `None` if the reply is malformed.
fn made<P: Scripted>(
    changes: &[KeyChange<P::Cost>],
    (sent, policy): (Nanos, u32),
    reply: &Reply,
) -> Option<Vec<Option<Report<P::Cost>>>> {
    let Reply::Numbers(numbers) = reply else { return None };
    let mut told = Numbers(numbers.get(1..)?);
    let mut reports = Vec::with_capacity(changes.len());
    for change in changes {
        reports.push(match change.todo.first() {
            Some(b'Q') => Some(Report::State(told.state::<P>()?)),
            Some(b'D') => Some(Report::Limits(told.limits::<P>()?)),
            Some(b'L') => {
                let (cost, sequence) = (told.cost::<P>()?, u32::try_from(told.next()?).ok()?);
                let booking = Booking { sequence, due: sent, earliest: sent, policy };
                Some(Report::Charged(cost, booking))
            }
            _ => None,
        });
    }
    told.0.is_empty().then_some(reports)
}

impl<P: Scripted> KeyLine<P> {
    /// A reply has come. `None` if it is malformed.
    pub(super) fn replied(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        request: &mut InFlightRequest<P::Cost>,
        reply: &Reply,
    ) -> Option<Rest> {
        if let Reply::PolicyMismatch(word, generation, parameters) = reply {
            self.well(context, now, request.at);
            return Some(self.disagree(
                context,
                &mut request.kind,
                (word, *generation, parameters),
            ));
        }
        match &mut request.kind {
            RequestKind::Take(ahead, ids) => {
                let answers = wire::answers(reply, &request.calls, context.scripts.parts)?;
                self.well(context, now, request.at);
                // The waiters within reach; the others are newcomers behind waiters that were not asked for.
                let within = ahead.map_or(ids.len(), |ahead| ahead.behind);
                let sent = (request.at, request.policy);
                self.taken(context, now, (ids, within), sent, answers);
                self.set_again();
            }
            RequestKind::Change(changes) => {
                let reports = made::<P>(changes, (request.at, request.policy), reply)?;
                self.well(context, now, request.at);
                if let Reply::Numbers(numbers) = reply
                    && request.policy == self.policies
                    && changes.iter().any(|change| change.claim == Claim::Set)
                {
                    self.is_set(context, numbers[0]);
                }
                if !changes.is_empty() {
                    // Earlier replies are from before these changes.
                    self.ask_again();
                }
                for (change, report) in changes.drain(..).zip(reports) {
                    let _ = change.done.map(|done| done.send(Ok(report)));
                }
            }
            RequestKind::Probe => self.well(context, now, request.at),
        }
        Some(Rest::Settled)
    }

    fn taken(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        (ids, within): (&[WaiterId], usize),
        (sent, policy): (Nanos, u32),
        answers: Vec<Answer>,
    ) {
        context.counters.asked.add(ids.len());
        let was_time = self.ask_at.is_some_and(|at| at <= sent);
        let passed = self.passed;
        // The process stood still meanwhile: its waiters may have lost their bookings.
        if self.stood_still.is_none()
            && now.since(sent) > context.options.deadline.saturating_add(context.options.horizon)
        {
            self.stood_still = Some(now);
        }
        let is_overdue = self.stood_still.is_some_and(|at| sent < at);
        self.trip = now.since(sent);
        let mut spare = std::mem::take(&mut self.spare);
        if self.front_booking().is_none() {
            self.last_due = spare.back().map_or(Nanos::ZERO, |booking| booking.due);
        }
        let mut spare_cost = self.spare_cost;
        let soonest = answers.first().filter(|answer| answer.verdict != Verdict::Full);
        let soonest = soonest.and_then(|answer| answer.wait);
        let mut later = None;
        let (mut booked, mut first_due) = (0, None);
        for (index, (&id, answer)) in ids.iter().zip(answers).enumerate() {
            if index == within {
                self.hand_on(self.head, spare_cost, std::mem::take(&mut spare));
            }
            let cost = self.queue[id].cost;
            if spare_cost != cost {
                self.return_all(spare_cost, &mut spare);
            }
            let is_booked = if let Verdict::Booked(sequence) = answer.verdict {
                self.hold(cost);
                self.denied = None;
                booked += 1;
                let wait = answer.wait.unwrap_or_default();
                let booking = self.booking(now, (sent, policy), sequence, wait);
                if is_overdue {
                    self.return_booking(cost, booking);
                    if self.unask(id) {
                        self.later(id);
                    }
                    continue;
                }
                first_due.get_or_insert(booking.due);
                put_aside(&mut spare, booking);
                spare_cost = cost;
                true
            } else {
                false
            };
            if !self.unask(id) {
                // It has left: its booking is for those behind it.
                continue;
            }
            let waiter = &mut self.queue[id];
            waiter.limited_by = answer.part.or(waiter.limited_by);
            // A spare booking goes to the first waiter, even if one that left was before it.
            let in_time = |booking: &Booking| waiter.deadline.is_none_or(|at| booking.due <= at);
            let is_next = answer.verdict == Verdict::Later
                && later.is_none()
                && spare.front().is_some_and(in_time);
            let booking = if is_booked || is_next { spare.pop_front() } else { None };
            match booking {
                Some(booking) => self.book(id, booking),
                None => self.not_booked(context, now, id, answer, &mut later),
            }
        }
        // Waiters may have come meanwhile.
        self.hand_on(self.head, spare_cost, spare);
        if self.lease.renew_at.is_none() {
            self.lease.renew_from(context, sent);
        }
        if within == 0 {
            // The head was not asked for. It is due before those behind it: if they could be granted earlier than it
            // is asked for, permits have come back.
            let soonest = soonest.map(|wait| now.saturating_add(wait));
            if soonest.is_some_and(|due| self.asks_at().is_some_and(|at| due < at)) {
                self.ask_at = None;
            }
            return;
        }
        // Where a window begins, all bookings are due at the same time: a process does not take the whole window
        // in one request, and leaves the other processes time for theirs before its next.
        let at_once = booked > 1 && first_due == Some(self.last_due);
        let ahead = whole(self.last_due.since(now) / 2);
        let pause = if at_once { context.options.horizon / 4 } else { Duration::ZERO };
        // If all were booked there may be room for more, otherwise for about the same number.
        self.reach = match booked == within {
            true if ahead >= pause && at_once => self.reach,
            true => 2 * self.reach.max(booked),
            false if at_once => booked / 2,
            false => 2 * booked,
        };
        self.reach = self.reach.clamp(FEW, BATCH);
        let refresh = context.options.refresh;
        self.refresh_at = now.saturating_add((refresh / 4).saturating_add(self.about(refresh / 2)));
        match later {
            None => {
                let pause = self.about(pause).min(ahead);
                self.ask_at = Some(now.saturating_add(pause)).filter(|_| !pause.is_zero());
            }
            Some((id, wait)) => {
                // It was passed over only if it was the head before.
                let was_passed = was_time && ids.first() == Some(&id);
                self.ask_later(context, now, id, wait, was_passed.then_some(passed));
            }
        }
    }

    fn booking(
        &mut self,
        now: Nanos,
        (sent, policy): (Nanos, u32),
        sequence: u32,
        wait: Duration,
    ) -> Booking {
        // Never before an earlier booking, even if this reply was quicker.
        let due = now.saturating_add(wait).max(self.last_due);
        self.last_due = due;
        Booking { sequence, due, earliest: sent.saturating_add(wait), policy }
    }

    fn not_booked(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        id: WaiterId,
        answer: Answer,
        later: &mut Option<(WaiterId, Option<Duration>)>,
    ) {
        let due = answer.wait.map(|wait| now.saturating_add(wait));
        let waiter = &mut self.queue[id];
        waiter.projected = due;
        match answer.verdict {
            Verdict::Later => {
                self.reserved(id);
                self.later(id);
                later.get_or_insert((id, answer.wait));
            }
            Verdict::Full => {
                let limit = QueueLimit::Capacity;
                let error = Error::QueueFull { limit, retry_after: answer.wait };
                self.turn_away(id, Outcome::Refused(error));
            }
            Verdict::Refused | Verdict::Booked(_) => {
                let cost = waiter.cost;
                let error = Error::Denied { retry_after: answer.wait, part: answer.part };
                self.turn_away(id, Outcome::Refused(error));
                // A policy that punishes must see each refusal.
                self.denied =
                    due.filter(|_| !context.scripts.punish).map(|due| (cost, due, answer.part));
            }
        }
    }

    /// Plans the next request for the head.
    fn ask_later(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        id: WaiterId,
        wait: Option<Duration>,
        passed: Option<u32>,
    ) {
        if self.head != Some(id) {
            self.ask_at = None;
            return;
        }
        if let Some(passed) = passed {
            self.passed = passed + 1;
        }
        let horizon = context.options.horizon;
        let Some(wait) = wait else {
            // It is unpredictable when permits come back: ask again, at growing intervals.
            self.lease.waits = P::HELD;
            let pause = self.about(poll_pause(self.passed));
            self.ask_at = Some(now.saturating_add(pause));
            return;
        };
        // It can be booked this far ahead.
        let ahead = self.reach(context, self.queue[id].cost, true);
        let pace = if P::HELD { ahead / 2 } else { horizon / PACE };
        let pause = wait.saturating_sub(ahead).max(self.about(pace));
        self.ask_at = Some(now.saturating_add(pause));
    }

    /// When the head is asked for. `None`: at once.
    pub(super) fn asks_at(&self) -> Option<Nanos> {
        self.ask_at.map(|at| at.min(self.refresh_at))
    }

    /// Permits may have come back: plans a request at once.
    pub(super) fn ask_again(&mut self) {
        self.ask_at = None;
        self.passed = 0;
        self.denied = None;
    }

    /// A random time from half of `duration` to one and a half.
    fn about(&mut self, duration: Duration) -> Duration {
        about(&mut self.random, duration)
    }
}
