//! Time passes: bookings come due, deadlines pass, requests take too long, and the alarm is set for what is next.

use std::time::Duration;

use super::KeyLine;
use super::change::refuse_all;
use super::roster::{BATCH, Outcome};
use crate::clock::{AfterUnlock, Alarm};
use crate::error::Error;
use crate::error::store::StoreError;
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// A booking that is overdue by more than this, and by more than the horizon, is returned and not granted.
const LATE: Duration = Duration::from_millis(100);

/// What is due.
impl<P: Scripted> KeyLine<P> {
    /// Grants bookings that are due, and refuses waiters whose deadline has passed.
    pub(crate) fn pump(&mut self) {
        let now = self.now();
        let late = self.context.options.horizon.max(LATE);
        // The process stood still: once until the next grant, as a runtime may always be this late.
        if !self.stood_still
            && self.roster.front_booking().is_some_and(|booking| now.since(booking.due) > late)
        {
            // Its bookings came due meanwhile: they are not granted all at once, but returned, and the next requests ask
            // for their waiters again.
            self.stood_still = true;
            self.return_bookings();
        }
        while let Some(waited) = self.roster.grant_due(now) {
            self.stats.grant(waited);
            self.stood_still = false;
        }
        while let Some((deadline, id)) = self.roster.queue.first_deadline()
            && deadline <= now
        {
            self.end_wait(id, deadline);
        }
        self.give_up_on_redis();
    }

    /// The deadline of a waiter has passed.
    fn end_wait(&mut self, id: WaiterId, deadline: Nanos) {
        let waiter = &self.roster[id];
        // Why requests are not sent as usual, if they are not.
        let own = self.outage.failing.as_ref().map(|outage| outage.error.clone());
        let trouble = own.or_else(|| Some(self.context.health.doubt()?.0));
        let may_be_due = trouble.is_none()
            && !waiter.stage.is_asked()
            && waiter.projected.is_some_and(|at| at <= self.now());
        let place = || self.roster.unbooked().take(BATCH).position(|other| other == id);
        if may_be_due && let Some(before) = place() {
            // Its turn may have come: the next reply decides.
            self.roster.queue.set_deadline(id, None);
            self.pacing.reach = self.pacing.reach.max(before + 1);
            self.pacing.ask_at = None;
            return;
        }
        let outcome = match trouble {
            // It is unknown whether its turn would have come.
            Some(_) if waiter.stage.is_asked() => {
                let late = StoreError::late(deadline.since(waiter.arrived));
                self.without_redis(late.at(&self.key))
            }
            Some(error) => self.without_redis(error.at(&self.key).unsent()),
            None => {
                let retry_after = waiter.projected.map(|at| at.since(self.now()));
                Outcome::Refused(Error::Denied { retry_after, part: waiter.limited_by })
            }
        };
        self.turn_away(id, outcome);
    }

    /// If Redis has been away for the deadline, no caller waits for it any longer.
    fn give_up_on_redis(&mut self) {
        let now = self.now();
        self.events.extend(self.context.health.pass(now));
        let own = self.outage.exceeds_deadline(now);
        let Some(error) = self.context.health.down().or_else(|| own.cloned()) else { return };
        let error = error.at(&self.key).unsent();
        let waiting: Vec<_> = self.roster.unasked().collect();
        if !waiting.is_empty() {
            self.outage.probes = 0;
        }
        for id in waiting {
            let outcome = self.without_redis(error.clone());
            self.turn_away(id, outcome);
        }
        refuse_all(std::mem::take(&mut self.outbox), &error);
    }

    /// Whether requests for this key have failed for so long that callers are served without Redis.
    pub(crate) fn is_away(&self) -> bool {
        self.outage.exceeds_deadline(self.now()).is_some()
    }

    /// No caller waits for a task that stands still.
    pub(crate) fn give_up_on_flight(&mut self) {
        if self.flight.as_ref().is_some_and(|flight| flight.until <= self.now()) {
            let deadline = self.context.options.deadline;
            self.lose_flight(&format!("nothing was heard of it within {deadline:?}"));
        }
    }

    /// The task of a flight has ended early, as by a panic.
    pub(crate) fn abandon(&mut self, number: u64) {
        if self.flight.as_ref().is_some_and(|flight| flight.number == number) {
            self.lose_flight("the task that sends requests has ended");
        }
    }

    /// The line goes on without the task.
    fn lose_flight(&mut self, why: &str) {
        let Some(flight) = self.flight.take() else { return };
        let failure = StoreError::lost(why);
        let failure = if flight.request.is_some() { failure } else { failure.unsent() };
        self.end(flight, &Err(failure));
    }
}

/// What is next.
impl<P: Scripted> KeyLine<P> {
    /// When the line may move by itself: with a request in flight not before the reply.
    pub(crate) fn moves_at(&self) -> Option<Nanos> {
        if self.flight.is_none() { self.next_alarm() } else { None }
    }

    /// When the line moves next, as far as its task does not move it.
    fn next_alarm(&self) -> Option<Nanos> {
        let (now, health) = (self.now(), &self.context.health);
        let is_needed = self.roster.queue.len() > 0 || !self.outbox.is_empty();
        // The next waiter that is granted or refused.
        let booking = self.roster.front_booking().map(|booking| booking.due);
        let deadline = self.roster.queue.first_deadline().map(|(deadline, _)| deadline);
        // The next request.
        let failing = self.outage.failing.as_ref();
        let look_at = health.look_at(now, self.outage.has_failed());
        let ask = match (failing, look_at) {
            _ if self.flight.is_some() => None,
            (Some(outage), _) => Some(outage.retry_at),
            (None, Some(look_at)) => {
                let looks = is_needed || self.outage.is_on(health) || !self.lease.is_free();
                looks.then_some(look_at)
            }
            (None, None) => {
                let head = self.roster.head().and_then(|_| self.pacing.asks_at());
                head.into_iter().chain(self.lease.renew_at).min()
            }
        };
        // The end of the callers' patience with an outage.
        let until = failing.map(|outage| outage.until);
        let until = until.into_iter().chain(health.doubt().map(|(_, until)| until));
        let until = until.filter(|&until| is_needed && until > now);
        booking.into_iter().chain(deadline).chain(ask).chain(until).min()
    }

    /// When the line goes on by itself although a request is under way.
    fn overdue_at(&self) -> Option<Nanos> {
        let collects = self.roster.served > 0 && self.flight.is_none() && self.has_business();
        let collected = Some(self.collect_until)
            .filter(|&until| until > self.now() && (collects || self.roster.queue.holds_back()));
        self.flight.as_ref().map(|flight| flight.until).into_iter().chain(collected).min()
    }

    /// Sets the alarm for the next event. Returns what is left to do after the lock is released.
    pub(crate) fn arm(&mut self, alarm: impl FnOnce() -> Alarm) -> AfterUnlock {
        let overdue = self.overdue_at();
        let due = self.next_alarm().into_iter().chain(overdue).min();
        let is_free = self.flight.is_none();
        if due.is_some() && self.context.clock.advances_by_itself() && is_free {
            // The first waiter that sees how long it has to wait moves the clock.
            self.roster.queue.wake_all();
            self.roster.wake_booked();
        }
        self.roster.queue.arm(due, self.time.latest(), alarm);
        self.roster.queue.after_unlock()
    }

    /// The alarm cannot be relied on: wakes all waiters, which then check for themselves.
    pub(crate) fn forget_alarm(&mut self) {
        self.roster.queue.forget_alarm();
        self.roster.wake_booked();
    }

    /// Of the callers that a reply has served only the first is woken, and wakes the others: waking another
    /// thread costs much more than waking a task of one's own runtime. If it does not come soon, the alarm does.
    pub(crate) fn hold_back(&mut self, lands: bool) {
        if lands && self.now() < self.collect_until {
            self.roster.queue.hold_back();
        } else {
            self.roster.queue.wake_held_back();
        }
    }
}
