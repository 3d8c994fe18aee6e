//! The queue of a key: grants, refusals, and the order of the waiters.

use super::Inner;
use super::change::refuse_all;
use super::failure::without_redis;
use super::waiter::{Booking, Charge, Outcome, Place};
use crate::error::Error;
use crate::line::WaiterId;
use crate::policy::Cost;
use crate::redis::connection::failure::Failure;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> Inner<P> {
    /// Grants what is due, and turns away those whose time is up.
    pub(crate) fn pump(&mut self, rules: &Rules<P>, now: Nanos) {
        while let Some(key) = self.queue.front()
            && let Place::Booked(ticket) = self.queue[key].place
            && ticket.due <= now
        {
            let waiter = &self.queue[key];
            let waited = ticket.due.since(waiter.joined);
            let charge = Charge { waited, ticket: Some(ticket), limited_by: waiter.limited_by };
            self.stats.grant(waited);
            self.unlink(key);
            self.tell(key, Outcome::Granted(charge));
        }
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            let waiter = &self.queue[key];
            if let Some(error) = self.trouble(rules) {
                // Nobody can know whether it would have been its turn.
                let error = match waiter.asked {
                    true => {
                        let late = Failure::late(deadline.since(waiter.joined));
                        late.error(&self.key)
                    }
                    false => error.unsent(&self.key),
                };
                self.turn_away(key, without_redis(rules, error));
                continue;
            }
            if !waiter.asked && waiter.projected.is_some_and(|at| at <= now) {
                // It may be its turn: the answer tells.
                self.cancel_deadline(key);
                self.ask_at = None;
                continue;
            }
            let retry_after = waiter.projected.map(|at| at.since(now));
            let error = Error::Denied { retry_after, part: waiter.limited_by };
            self.turn_away(key, Outcome::Refused(error));
        }
        if rules.health.is_well() && self.failing.is_none() {
            return;
        }
        self.events.extend(rules.health.pass(now));
        let failing = self.failing.as_ref();
        let failing = failing
            .filter(|failing| now >= failing.until(rules.options.deadline))
            .map(|failing| failing.error.clone());
        if let Some(error) = rules.health.down().or(failing) {
            let error = error.unsent(&self.key);
            let waiting: Vec<WaiterId> = self.unasked().collect();
            if let Some(failing) = self.failing.as_mut().filter(|_| !waiting.is_empty()) {
                failing.idle = 0;
            }
            for key in waiting {
                let outcome = without_redis(rules, error.clone());
                self.turn_away(key, outcome);
            }
            refuse_all(std::mem::take(&mut self.changes), &error);
        }
    }

    /// The ticket that is due first.
    pub(super) fn front_ticket(&self) -> Option<Booking> {
        match self.queue[self.queue.front()?].place {
            Place::Booked(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Those without a ticket, and those who are still there for an answer.
    pub(super) fn without_ticket(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&key| self.queue.behind(key))
    }

    /// Those without a ticket who are not in the request under way.
    fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.without_ticket().filter(|&key| {
            let waiter = &self.queue[key];
            !waiter.asked && matches!(waiter.place, Place::Waiting)
        })
    }

    /// Takes out of the line who gets no ticket.
    pub(super) fn turn_away(&mut self, key: WaiterId, outcome: Outcome) {
        self.count(&outcome);
        self.give_up(key);
        self.tell(key, outcome);
    }

    /// Who waits for more than there ever is by a new policy need not wait.
    pub(crate) fn turn_away_the_too_large(&mut self, now: Nanos) {
        let idle = self.policy.idle(now);
        let too_large = |&key: &WaiterId| {
            let cost = self.queue[key].cost;
            self.policy.ready_at(&idle, now, cost).err().map(|error| (key, error))
        };
        let over: Vec<_> = self.unasked().filter_map(|key| too_large(&key)).collect();
        for (key, error) in over {
            self.turn_away(key, Outcome::Refused(error.into()));
        }
    }

    /// Somebody without a ticket does not wait any more.
    pub(super) fn give_up(&mut self, key: WaiterId) {
        self.waiting -= 1;
        // That was reckoned behind it, perhaps.
        self.denied = None;
        if self.queue[key].asked {
            // The entry stands for whatever it is charged in the end.
            self.gone += 1;
            self.cancel_deadline(key);
        } else {
            let is_head = self.head == Some(key);
            self.unlink(key);
            // The next may be ready earlier, unless it asks for the same.
            let cost = self.queue[key].cost;
            if is_head && self.head.is_none_or(|head| self.queue[head].cost != cost) {
                self.ask_again();
            }
        }
    }

    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(charge) => self.stats.grant(charge.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when that limiter has answered.
            Outcome::Local => {}
        }
    }

    fn tell(&mut self, key: WaiterId, outcome: Outcome) {
        let waiter = &mut self.queue[key];
        waiter.place = Place::Over(Some(outcome));
        self.wake.extend(waiter.waker.take());
    }

    /// The first without a ticket gets one.
    pub(super) fn book(&mut self, key: WaiterId, ticket: Booking) {
        debug_assert_eq!(self.head, Some(key), "tickets go to the first in line");
        self.cancel_deadline(key);
        self.head = self.queue.behind(key);
        self.waiting -= 1;
        self.passed = 0;
        let waiter = &mut self.queue[key];
        waiter.place = Place::Booked(ticket);
        // Who wants to know how long it will take knows now.
        self.wake.extend(waiter.curious.then(|| waiter.waker.take()).flatten());
    }

    /// The request is over for somebody. Whether it is still there.
    pub(super) fn unask(&mut self, key: WaiterId) -> bool {
        let waiter = &mut self.queue[key];
        waiter.asked = false;
        let is_gone = matches!(waiter.place, Place::Over(_));
        if is_gone {
            self.forget(key);
        }
        !is_gone
    }

    /// An entry of somebody who has gone.
    pub(super) fn forget(&mut self, key: WaiterId) {
        self.gone -= 1;
        self.unlink(key);
        if self.queue[key].left {
            self.queue.remove(key);
        }
    }

    pub(super) fn unlink(&mut self, key: WaiterId) {
        if self.head == Some(key) {
            self.head = self.queue.behind(key);
        }
        self.queue.unlink(key);
        self.permits = self.permits.saturating_sub(self.queue[key].cost.permits());
        self.cancel_deadline(key);
    }

    fn cancel_deadline(&mut self, key: WaiterId) {
        if let Some(deadline) = self.queue[key].deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }
}
