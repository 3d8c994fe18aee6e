//! The queue of a key: grants, refusals, and the order of the waiters.

use super::KeyLine;
use super::failure::without_redis;
use super::waiter::{Booking, GrantInfo, Outcome, Stage, Turn};
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
            && let Stage::Booked(booking) = self.queue[id].stage
            && booking.due <= now
        {
            let waiter = &self.queue[id];
            let waited = booking.due.since(waiter.joined);
            let info = GrantInfo { waited, booking: Some(booking), limited_by: waiter.limited_by };
            self.stats.grant(waited);
            self.unlink(id);
            self.finish(id, Some(Outcome::Granted(info)));
        }
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            let waiter = &self.queue[id];
            if let Some(error) = self.trouble(rules) {
                // Nobody can know whether it would have been its turn.
                let error = match waiter.stage.is_asked() {
                    true => {
                        let late = Failure::late(deadline.since(waiter.joined));
                        late.error(&self.key)
                    }
                    false => error.unsent(&self.key),
                };
                self.turn_away(id, without_redis(rules, error));
                continue;
            }
            if !waiter.stage.is_asked() && waiter.projected.is_some_and(|at| at <= now) {
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
        match self.queue[self.queue.front()?].stage {
            Stage::Booked(booking) => Some(booking),
            _ => None,
        }
    }

    /// Those without a booking, and those who are still there for an answer.
    pub(super) fn unbooked(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&id| self.queue.behind(id))
    }

    /// Those without a booking who are not in the request under way.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| matches!(self.queue[id].stage, Stage::Waiting(_)))
    }

    /// Takes out of the line who gets no booking.
    pub(super) fn turn_away(&mut self, id: WaiterId, outcome: Outcome) {
        self.count(&outcome);
        self.give_up(id, Some(outcome));
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

    /// A waiter without a booking does not wait any longer. `outcome`: what its caller still gets.
    pub(super) fn give_up(&mut self, id: WaiterId, outcome: Option<Outcome>) {
        self.waiting -= 1;
        // It may have counted those ahead.
        self.denied = None;
        let waiter = &mut self.queue[id];
        if waiter.stage.is_asked() {
            self.wake.extend(waiter.waker.take());
            waiter.stage = Stage::Stale(outcome);
            self.gone += 1;
            self.cancel_deadline(id);
            return;
        }
        let (cost, is_head) = (waiter.cost, self.head == Some(id));
        self.unlink(id);
        // The next may be ready earlier, unless it asks for the same.
        if is_head && self.head.is_none_or(|head| self.queue[head].cost != cost) {
            self.ask_again();
        }
        self.finish(id, outcome);
    }

    /// Of a waiter that has left the queue only the outcome stays, until its caller fetches it.
    pub(super) fn finish(&mut self, id: WaiterId, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            self.queue.remove(id);
            return;
        };
        let waiter = &mut self.queue[id];
        waiter.stage = Stage::Over(outcome);
        self.wake.extend(waiter.waker.take());
    }

    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(info) => self.stats.grant(info.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when that limiter has answered.
            Outcome::Local => {}
        }
    }

    /// The first without a booking gets one.
    pub(super) fn book(&mut self, id: WaiterId, booking: Booking) {
        debug_assert_eq!(self.head, Some(id), "bookings go to the first in line");
        self.cancel_deadline(id);
        self.head = self.queue.behind(id);
        self.waiting -= 1;
        self.passed = 0;
        self.reserved(id);
        self.queue[id].stage = Stage::Booked(booking);
    }

    /// A reservation learns when its turn comes.
    pub(super) fn reserved(&mut self, id: WaiterId) {
        let waiter = &mut self.queue[id];
        if waiter.stage.turn() == Some(Turn::Reserving) {
            self.wake.extend(waiter.waker.take());
        }
    }

    /// The request in flight has ended for a waiter. Whether it still waits.
    pub(super) fn unask(&mut self, id: WaiterId) -> bool {
        match &mut self.queue[id].stage {
            Stage::Stale(outcome) => {
                let outcome = outcome.take();
                self.gone -= 1;
                self.unlink(id);
                self.finish(id, outcome);
                false
            }
            stage => {
                if let Stage::Asked(turn) = *stage {
                    *stage = Stage::Waiting(turn);
                }
                true
            }
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
