//! The queue of a key: callers that come and leave, grants, refusals, and the order of the waiters.

use std::task::Waker;
use std::time::Duration;

use super::failure::without_redis;
use super::waiter::{Booking, GrantInfo, KeyWaiter, Outcome, Stage, Turn};
use super::{BATCH, KeyLine};
use crate::error::Error;
use crate::policy::Cost;
use crate::redis::connection::Failure;
use crate::redis::context::Context;
use crate::redis::options::Options;
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::{Arrival, Bounds, WaiterId};

/// A booking that is overdue by more than this, and by more than the horizon, is returned and not granted.
const LATE: Duration = Duration::from_millis(100);

impl<P: Scripted> KeyLine<P> {
    /// Joins the queue, as a caller that came `ahead` earlier. `max_wait`: from the arrival. `Err` if the caller need
    /// not wait.
    pub(crate) fn enter(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        arrived: Nanos,
        cost: P::Cost,
        (max_wait, ahead): (Option<Duration>, Duration),
        (turn, waker): (Turn, Option<Waker>),
    ) -> Result<WaiterId, Outcome> {
        let deadline = max_wait.map(|wait| arrived.saturating_add(wait).max(now));
        if let Err(outcome) = self.admit(context, now, cost, deadline) {
            self.count(&outcome);
            return Err(outcome);
        }
        self.permits = self.permits.saturating_add(cost.permits());
        let arrival = Arrival::new(now, ahead);
        let waiter = KeyWaiter {
            cost,
            joined: now,
            arrived,
            arrival,
            changes: self.changes_made,
            deadline,
            stage: Stage::Waiting(turn),
            projected: None,
            limited_by: None,
            counted: false,
        };
        // A caller that has no time to wait gets its outcome with the reply.
        let at = deadline.filter(|&at| at > now);
        let needs_answer = turn != Turn::New || deadline.is_some() || context.scripts.room;
        // Waiters with a booking are not overtaken.
        let next = self.head.filter(|_| !ahead.is_zero());
        let next = next.and_then(|head| self.queue.overtaken(arrival, Some(head)));
        self.waiting += 1;
        let id = match next {
            None => {
                let id = self.queue.push(waiter, at, waker);
                self.head.get_or_insert(id);
                self.later.next.get_or_insert(id);
                id
            }
            Some(next) => {
                let id = self.queue.insert_before(next, waiter, at, waker);
                self.entered_before(next, id, needs_answer);
                id
            }
        };
        if self.later.next == Some(id) && !needs_answer {
            // It waits as long as it takes.
            self.later(id);
        }
        let is_in_time = |booking: &Booking| deadline.is_none_or(|at| booking.due <= at);
        if self.head == Some(id)
            && self.spare_cost == cost
            && self.spare.front().is_some_and(is_in_time)
        {
            self.hand_on_spare();
        }
        Ok(id)
    }

    /// A caller has entered ahead of `next`, which has no booking.
    fn entered_before(&mut self, next: WaiterId, id: WaiterId, needs_answer: bool) {
        let is_head = self.head == Some(next);
        if is_head {
            self.head = Some(id);
        }
        let (cost, next_cost) = (self.queue[id].cost, self.queue[next].cost);
        // What has left in the middle of a request is not counted, wherever it is.
        let mut behind = std::iter::successors(Some(next), |&id| self.queue.behind(id));
        let behind = behind.find(|&id| !matches!(self.queue[id].stage, Stage::Stale(_)));
        match behind.filter(|&behind| self.queue[behind].counted) {
            Some(counted) => {
                self.queue[id].projected = self.queue[counted].projected;
                self.count_as_answered(id, needs_answer);
            }
            None if self.later.next == behind => self.later.next = Some(id),
            None => {}
        }
        if is_head && next_cost != cost {
            self.ask_again();
        }
    }

    /// Counts a waiter that has entered ahead of one that is counted.
    fn count_as_answered(&mut self, id: WaiterId, needs_answer: bool) {
        let waiter = &mut self.queue[id];
        waiter.counted = true;
        self.later.join(waiter.cost);
        // The next request reaches it, or only the first.
        if needs_answer && self.reach_to(id) {
            self.ask_again();
        } else if let Stage::Waiting(_) = self.queue[id].stage {
            self.reserved(id);
            self.queue[id].stage = Stage::Waiting(Turn::Later);
        }
    }

    /// The next request asks for all up to this waiter, unless they are too many.
    fn reach_to(&mut self, id: WaiterId) -> bool {
        let position = self.unbooked().take(BATCH).position(|other| other == id);
        self.reach = self.reach.max(position.map_or(0, |position| position + 1));
        position.is_some()
    }

    fn admit(
        &self,
        context: &Context<P>,
        now: Nanos,
        cost: P::Cost,
        deadline: Option<Nanos>,
    ) -> Result<(), Outcome> {
        let refused = |error: Error| Err(Outcome::Refused(error));
        if deadline == Some(now) && self.waiting >= BATCH {
            // The next request would not reach it.
            return refused(Error::Denied { retry_after: None, part: None });
        }
        if let Err(error) = self.policy.ready_at(&self.policy.idle(now), now, cost) {
            return refused(error.into());
        }
        if let Some(error) = context.health.down() {
            return Err(without_redis(context, error.unsent(&self.key)));
        }
        if let (Some(deadline), Some((denied, due, part))) = (deadline, self.denied)
            && denied == cost
            && deadline < due
            && now < self.refresh_at
            && self.waiting == 0
            && self.spare.is_empty()
        {
            context.counters.denied_locally.add(1);
            return refused(Error::Denied { retry_after: Some(due.since(now)), part });
        }
        let permits = self.permits.saturating_add(cost.permits());
        let Options { max_waiters: waiters, max_queued_permits, .. } = context.options;
        let bounds = Bounds { waiters, permits: max_queued_permits, ..Bounds::NONE };
        if let Some(limit) = bounds.exceeded(self.len(), permits, None) {
            let retry_after = self.next_move().map(|at| at.since(now));
            return refused(Error::QueueFull { limit, retry_after });
        }
        Ok(())
    }

    /// When the front is served next.
    fn next_move(&self) -> Option<Nanos> {
        let front = self.queue.front()?;
        self.front_booking().map_or(self.queue[front].projected, |booking| Some(booking.due))
    }

    /// The outcome of a caller, if there is one yet.
    pub(crate) fn take(&mut self, id: WaiterId) -> Option<Outcome> {
        match &mut self.queue[id].stage {
            Stage::Stale(outcome) => outcome.take(),
            Stage::Over(_) => {
                self.served = self.served.saturating_sub(1);
                match self.queue.remove(id).stage {
                    Stage::Over(outcome) => Some(outcome),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// `Ok` if there is an outcome or, for a `reserving` caller, if Redis has replied when its turn comes. `Err`:
    /// when that may change by itself; `waker` is called when it has.
    pub(crate) fn poll(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        id: WaiterId,
        (reserving, waker): (bool, &Waker),
    ) -> Result<(), Option<Nanos>> {
        let waiter = &mut self.queue[id];
        // The next request reaches only the first.
        let is_known = self.waiting > BATCH || waiter.stage.turn() != Some(Turn::Reserving);
        if matches!(waiter.stage, Stage::Over(_) | Stage::Stale(_)) || reserving && is_known {
            return Ok(());
        }
        self.queue.keep_waker(id, waker);
        Err(self.moves_at(context, now))
    }

    /// The caller has gone: its turn or its booking goes to the next, or back.
    pub(crate) fn leave(&mut self, id: WaiterId) {
        self.queue.drop_waker(id);
        let waiter = &self.queue[id];
        let cost = waiter.cost;
        match waiter.stage {
            Stage::Waiting(_) | Stage::Asked(_) => {
                self.stats.given_up += 1;
                self.give_up(id, None);
            }
            Stage::Booked(booking) => {
                self.stats.given_up += 1;
                let next = self.queue.behind(id);
                self.unlink(id);
                self.hand_on(next, cost, [booking].into());
                self.queue.remove(id);
            }
            Stage::Over(_) | Stage::Stale(_) => match self.take(id) {
                Some(Outcome::Granted(info)) => self.give_back(cost, info.booking),
                Some(Outcome::Local) => self.stats.given_up += 1,
                Some(Outcome::Refused(_)) | None => {}
            },
        }
    }

    /// How long a waiter still has to wait, as far as is known.
    pub(crate) fn delay(&self, id: WaiterId, now: Nanos) -> Duration {
        let waiter = &self.queue[id];
        match waiter.stage {
            Stage::Booked(booking) => booking.due.since(now),
            Stage::Waiting(_) | Stage::Asked(_) => {
                waiter.projected.map_or(Duration::ZERO, |at| at.since(now))
            }
            Stage::Over(_) | Stage::Stale(_) => Duration::ZERO,
        }
    }

    /// Grants bookings that are due, and refuses waiters whose deadline has passed.
    pub(crate) fn pump(&mut self, context: &Context<P>, now: Nanos) {
        self.forget_outage(context);
        let late = context.options.horizon.max(LATE);
        // Once until the next grant: a runtime may always be this late.
        if self.stood_still.is_none()
            && self.front_booking().is_some_and(|booking| now.since(booking.due) > late)
        {
            self.return_overdue(now);
        }
        if self.spare_until().is_some_and(|due| due <= now) {
            let later = self.spare.partition_point(|booking| booking.due <= now);
            let later = self.spare.split_off(later);
            self.return_spare();
            self.spare = later;
        }
        while let Some(id) = self.queue.front()
            && let Stage::Booked(booking) = self.queue[id].stage
            && booking.due <= now
        {
            let waiter = &self.queue[id];
            let waited = booking.due.since(waiter.arrived);
            let info = GrantInfo { waited, booking: Some(booking), limited_by: waiter.limited_by };
            self.stats.grant(waited);
            self.stood_still = None;
            self.unlink(id);
            self.finish(id, Some(Outcome::Granted(info)));
        }
        while let Some((deadline, id)) = self.queue.first_deadline()
            && deadline <= now
        {
            let waiter = &self.queue[id];
            if let Some(error) = self.trouble(context) {
                // It is unknown whether its turn would have come.
                let error = match waiter.stage.is_asked() {
                    true => Failure::late(deadline.since(waiter.joined)).error(&self.key),
                    false => error.unsent(&self.key),
                };
                self.turn_away(id, without_redis(context, error));
                continue;
            }
            let may_be_due =
                !waiter.stage.is_asked() && waiter.projected.is_some_and(|at| at <= now);
            if may_be_due && self.reach_to(id) {
                // Its turn may have come: the next reply decides.
                self.queue.cancel_deadline(id);
                self.ask_at = None;
                continue;
            }
            let waiter = &self.queue[id];
            let retry_after = waiter.projected.map(|at| at.since(now));
            let error = Error::Denied { retry_after, part: waiter.limited_by };
            self.turn_away(id, Outcome::Refused(error));
        }
        self.give_up_on_redis(context, now);
    }

    /// The first booking.
    pub(super) fn front_booking(&self) -> Option<Booking> {
        match self.queue[self.queue.front()?].stage {
            Stage::Booked(booking) => Some(booking),
            _ => None,
        }
    }

    /// The waiters without a booking, and stale entries.
    pub(super) fn unbooked(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&id| self.queue.behind(id))
    }

    /// The waiters without a booking that are not in the request in flight.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| matches!(self.queue[id].stage, Stage::Waiting(_)))
    }

    /// Ends the wait of a waiter without a booking.
    pub(super) fn turn_away(&mut self, id: WaiterId, mut outcome: Outcome) {
        if let Outcome::Granted(info) = &mut outcome {
            info.waited = self.time.latest().since(self.queue[id].arrived);
        }
        self.count(&outcome);
        self.give_up(id, Some(outcome));
    }

    /// Refuses waiters that ask for more than a new policy can ever grant.
    pub(super) fn turn_away_the_too_large(&mut self, now: Nanos) {
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
        // Others that wait for a place need not wait for this process any more.
        self.lease.released |= self.lease.waits && self.waiting == 0;
        // It may have counted this waiter.
        self.denied = None;
        self.not_later(id);
        let waiter = &mut self.queue[id];
        if waiter.stage.is_asked() {
            waiter.stage = Stage::Stale(outcome);
            self.gone += 1;
            self.queue.wake(id);
            self.queue.cancel_deadline(id);
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
        self.served += 1;
        self.queue[id].stage = Stage::Over(outcome);
        self.queue.wake(id);
    }

    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(info) => self.stats.grant(info.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when the local limiter has answered.
            Outcome::Local => {}
        }
    }

    /// Books the first waiter without a booking, or one that was asked for before others entered ahead of it.
    pub(super) fn book(&mut self, id: WaiterId, booking: Booking) {
        self.queue.cancel_deadline(id);
        self.waiting -= 1;
        self.passed = 0;
        self.reserved(id);
        self.not_later(id);
        match self.head {
            Some(head) if head != id => self.queue.move_before(head, id),
            _ => self.head = self.queue.behind(id),
        }
        self.queue.not_overtaken(id);
        self.queue[id].stage = Stage::Booked(booking);
    }

    /// This waiter needs no answer until the head is due.
    pub(super) fn later(&mut self, id: WaiterId) {
        if !self.queue[id].counted {
            // Those that have entered ahead of it since it was asked for.
            while let Some(next) = self.later.next.filter(|&next| next != id) {
                self.later.next = self.queue.behind(next);
                if matches!(self.queue[next].stage, Stage::Waiting(_)) {
                    self.count_as_answered(next, true);
                }
            }
            self.later.next = self.queue.behind(id);
            self.later.join(self.queue[id].cost);
            self.queue[id].counted = true;
        }
        self.queue[id].stage = Stage::Waiting(Turn::Later);
    }

    /// A waiter without a booking gets one, or leaves.
    fn not_later(&mut self, id: WaiterId) {
        if std::mem::take(&mut self.queue[id].counted) {
            self.later.leave(self.queue[id].cost);
        } else if self.later.next == Some(id) {
            self.later.next = self.queue.behind(id);
        }
    }

    /// A reservation learns when its turn comes.
    pub(super) fn reserved(&mut self, id: WaiterId) {
        if self.queue[id].stage.turn() == Some(Turn::Reserving) {
            self.queue.wake(id);
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
        if self.later.next == Some(id) {
            self.later.next = self.queue.behind(id);
        }
        self.queue.unlink(id);
        self.permits = self.permits.saturating_sub(self.queue[id].cost.permits());
    }
}
