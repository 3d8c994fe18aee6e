//! The queue of a key: grants, refusals, and the order of the waiters.

use super::KeyLine;
use super::failure::without_redis;
use super::waiter::{Booking, GrantInfo, Outcome, Place};
use crate::error::Error;
use crate::line::WaiterId;
use crate::policy::Cost;
use crate::redis::connection::failure::Failure;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    /// Grants what is due, and turns away those whose time is up.
    pub(crate) fn pump(&mut self, rules: &Rules<P>, now: Nanos) {
        while let Some(id) = self.queue.front()
            && let Place::Booked(booking) = self.queue[id].place
            && booking.due <= now
        {
            let waiter = &self.queue[id];
            let waited = booking.due.since(waiter.joined);
            let info = GrantInfo { waited, booking: Some(booking), limited_by: waiter.limited_by };
            self.stats.grant(waited);
            self.unlink(id);
            self.tell(id, Outcome::Granted(info));
        }
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            let waiter = &self.queue[id];
            if let Some(error) = self.trouble(rules) {
                // Nobody can know whether it would have been its turn.
                let error = match waiter.asked {
                    true => {
                        let late = Failure::late(deadline.since(waiter.joined));
                        late.error(&self.key)
                    }
                    false => error.unsent(&self.key),
                };
                self.turn_away(id, without_redis(rules, error));
                continue;
            }
            if !waiter.asked && waiter.projected.is_some_and(|at| at <= now) {
                // It may be its turn: the answer tells.
                self.cancel_deadline(id);
                self.ask_at = None;
                continue;
            }
            let retry_after = waiter.projected.map(|at| at.since(now));
            let error = Error::Denied { retry_after, part: waiter.limited_by };
            self.turn_away(id, Outcome::Refused(error));
        }
        self.give_up_on_redis(rules, now);
    }

    /// The booking that is due first.
    pub(super) fn front_booking(&self) -> Option<Booking> {
        match self.queue[self.queue.front()?].place {
            Place::Booked(booking) => Some(booking),
            _ => None,
        }
    }

    /// Those without a booking, and those who are still there for an answer.
    pub(super) fn unbooked(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&id| self.queue.behind(id))
    }

    /// Those without a booking who are not in the request under way.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| {
            let waiter = &self.queue[id];
            !waiter.asked && matches!(waiter.place, Place::Waiting)
        })
    }

    /// Takes out of the line who gets no booking.
    pub(super) fn turn_away(&mut self, id: WaiterId, outcome: Outcome) {
        self.count(&outcome);
        self.give_up(id);
        self.tell(id, outcome);
    }

    /// Who waits for more than there ever is by a new policy need not wait.
    pub(crate) fn turn_away_the_too_large(&mut self, now: Nanos) {
        let idle = self.policy.idle(now);
        let too_large = |&id: &WaiterId| {
            let cost = self.queue[id].cost;
            self.policy.ready_at(&idle, now, cost).err().map(|error| (id, error))
        };
        let over: Vec<_> = self.unasked().filter_map(|id| too_large(&id)).collect();
        for (id, error) in over {
            self.turn_away(id, Outcome::Refused(error.into()));
        }
    }

    /// Somebody without a booking does not wait any more.
    pub(super) fn give_up(&mut self, id: WaiterId) {
        self.waiting -= 1;
        // That was reckoned behind it, perhaps.
        self.denied = None;
        if self.queue[id].asked {
            // The entry stands for whatever it is charged in the end.
            self.gone += 1;
            self.cancel_deadline(id);
        } else {
            let is_head = self.head == Some(id);
            self.unlink(id);
            // The next may be ready earlier, unless it asks for the same.
            let cost = self.queue[id].cost;
            if is_head && self.head.is_none_or(|head| self.queue[head].cost != cost) {
                self.ask_again();
            }
        }
    }

    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(info) => self.stats.grant(info.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when that limiter has answered.
            Outcome::Local => {}
        }
    }

    fn tell(&mut self, id: WaiterId, outcome: Outcome) {
        let waiter = &mut self.queue[id];
        waiter.place = Place::Over(Some(outcome));
        self.wake.extend(waiter.waker.take());
    }

    /// The first without a booking gets one.
    pub(super) fn book(&mut self, id: WaiterId, booking: Booking) {
        debug_assert_eq!(self.head, Some(id), "bookings go to the first in line");
        self.cancel_deadline(id);
        self.head = self.queue.behind(id);
        self.waiting -= 1;
        self.passed = 0;
        let waiter = &mut self.queue[id];
        waiter.place = Place::Booked(booking);
        // Who wants to know how long it will take knows now.
        self.wake.extend(waiter.curious.then(|| waiter.waker.take()).flatten());
    }

    /// The request is over for somebody. Whether it is still there.
    pub(super) fn unask(&mut self, id: WaiterId) -> bool {
        let waiter = &mut self.queue[id];
        waiter.asked = false;
        let is_gone = matches!(waiter.place, Place::Over(_));
        if is_gone {
            self.forget(id);
        }
        !is_gone
    }

    /// An entry of somebody who has gone.
    pub(super) fn forget(&mut self, id: WaiterId) {
        self.gone -= 1;
        self.unlink(id);
        if self.queue[id].left {
            self.queue.remove(id);
        }
    }

    pub(super) fn unlink(&mut self, id: WaiterId) {
        if self.head == Some(id) {
            self.head = self.queue.behind(id);
        }
        self.queue.unlink(id);
        self.permits = self.permits.saturating_sub(self.queue[id].cost.permits());
        self.cancel_deadline(id);
    }

    fn cancel_deadline(&mut self, id: WaiterId) {
        if let Some(deadline) = self.queue[id].deadline {
            self.deadlines.remove(&(deadline, id));
        }
    }
}
