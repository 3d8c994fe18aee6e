//! The order of grants: callers that come, wait, are granted or refused, and leave.

use std::task::Waker;
use std::time::Duration;

use super::charge::Charge;
use super::inner::{Admission, Inner};
use super::tail::ROUGHLY;
use super::waiting::{Place, Waiter};
use crate::error::{Error, QueueLimit};
use crate::policy::{Cost, Policy, PolicyExt, Ready, RuleEvent, TWO_TICKS};
use crate::units::{Nanos, saturating_nanos};
use crate::wait_queue::{Arrival, Claim, WaiterId};

impl<P: Policy> Inner<P> {
    pub(super) fn enter(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        let result = self.try_enter(now, cost, max_wait, claim, waker);
        if result.is_err() {
            self.stats.refused += 1;
        }
        result
    }

    fn try_enter(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let ready = self.policy.ready_at(&self.state, now, cost)?;
        let (ahead, tenant) = (claim.ahead(), claim.tenant());
        let arrival = Arrival::new(now, ahead);
        let place = self.place(arrival, ahead, tenant, cost);
        if self.is_first(place) && self.not_before <= now && ready.has_come(now) {
            if !matches!(place, Place::Last) {
                self.charge_in_tail(now, cost, true);
                self.waiting().queue.grant_turn_at_once(tenant, cost.permits());
            }
            return Ok(Admission::Granted(self.charge_at_once(now, cost)));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if deadline.is_some_and(|deadline| self.is_too_early(deadline, now, cost, place)) {
            // A caller that does not wait is granted when no caller waits.
            let is_last = deadline == Some(now) && self.waiting().queue.is_fair();
            let place = if is_last { Place::Last } else { place };
            return Err(self.denial(place, now, cost, deadline.unwrap_or(now)));
        }
        let waiting = self.waiting();
        let (queued, exceeded) = (waiting.queued, waiting.exceeded_by(cost, tenant));
        if let Some(limit) = exceeded {
            let moves = match self.due() {
                Some(due) => Some(due.since(now)),
                None => self.projected_at(place, now, cost, 0, now).0.wait(now),
            };
            return Err(Error::QueueFull { limit, retry_after: moves });
        }
        let joins = RuleEvent::Joins { queued, cost };
        let room = self.policy.event(&mut self.state, now, joins);
        if room > now {
            let (limit, retry_after) = (QueueLimit::Capacity, Some(room.since(now)));
            return Err(Error::QueueFull { limit, retry_after });
        }
        if self.queue_len() == 0 {
            self.forget_tail();
        }
        self.charge_in_tail(now, cost, !matches!(place, Place::Last));
        let (waiter, waker) = (Waiter::new(cost, arrival), waker.cloned());
        let waiting = self.waiting();
        let id = waiting.join((place, tenant), waiter, now, deadline, waker);
        // The next grant stays as it is, unless it is this one's.
        waiting.is_settled = waiting.queue.front() != Some(id);
        Ok(Admission::Waiting(id))
    }

    /// Whether a new caller could not be granted by `deadline`.
    fn is_too_early(&mut self, deadline: Nanos, now: Nanos, cost: P::Cost, place: Place) -> bool {
        if deadline <= now {
            return true;
        }
        if !matches!(place, Place::Last) {
            return !self.is_in_time_behind_all(deadline, now, cost)
                && deadline < self.projected_at(place, now, cost, 0, deadline).0.earliest();
        }
        // Waiters that have left can only make it look later: if the time is enough with them, it is enough. But where
        // one that is unpredictable was the last to count, more of them count now.
        let with_them = self.projected(now, cost, usize::MAX).0;
        let is_enough = matches!(with_them, Ready::At(due) if due <= deadline);
        !is_enough && deadline < self.projected(now, cost, 0).0.earliest()
    }

    /// The error of a caller that cannot wait, or not long enough.
    fn denial(&mut self, place: Place, now: Nanos, cost: P::Cost, deadline: Nanos) -> Error {
        if self.change_state(now, |policy, state, _| policy.refused(state, now, cost)) {
            self.forget_tail();
        }
        let (due, part) = self.projected_at(place, now, cost, 0, deadline);
        Error::Denied { retry_after: due.wait(now), part }
    }

    /// The time at which a waiter that became ready at `ready` is charged: its due time, so that a late alarm
    /// costs nothing, but not before the last event or further back than the policy catches up.
    fn charge_time(&self, ready: Nanos, joined: Nanos, now: Nanos) -> Nanos {
        let catch_up = now.saturating_sub(self.policy.catch_up());
        ready.max(joined).max(self.not_before).max(catch_up)
    }

    fn charge(&mut self, at: Nanos, joined: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        let receipt = Some(self.policy.charge(&mut self.state, at, cost));
        let waited = at.since(joined);
        self.not_before = self.not_before.max(at);
        self.stats.granted += 1;
        self.stats.waited = self.stats.waited.saturating_add(waited);
        Charge { waited: saturating_nanos(waited), receipt, limited_by: None }
    }

    /// Grants all that is due, in order, and refuses the waiters whose time is up.
    pub(super) fn pump(&mut self, now: Nanos) {
        let Some(waiting) = &mut self.waiting else { return };
        // Not written where there is none, as in `WaitQueue::after_unlock`.
        if waiting.resumed.is_some() && self.not_before <= now {
            waiting.resumed = None;
        }
        if waiting.rests(now) {
            return;
        }
        waiting.is_settled = false;
        self.grant_due(now);
        self.refuse_late(now);
        self.waiting().is_settled = true;
    }

    /// Refuses the waiters whose time is up, and grants what is due then.
    fn refuse_late(&mut self, now: Nanos) {
        let mut over = Vec::new();
        while let Some((deadline, key)) = self.waiting().queue.first_deadline()
            && deadline <= now
        {
            self.turn_away(key, now);
            over.push(key);
        }
        if over.is_empty() {
            return;
        }
        self.grant_due(now);
        // All of them have left before the first `retry_after` is computed behind the rest.
        let mut last = None;
        for key in over {
            let tenant = self.waiting().queue.tenant(key);
            let &mut Waiter { cost, arrival, .. } = self.waiter(key);
            let joined = self.waiting().joined(key);
            let ahead = arrival.ahead_at(joined);
            // A crowd ahead of others, or of a tenant, does not need a walk for each.
            let is_known = |&(caller, _): &_| {
                caller == (cost, ahead, tenant) && (!ahead.is_zero() || tenant.is_some())
            };
            let (ready, part) = last.filter(is_known).map_or_else(
                || {
                    let place = self.place(Arrival::new(now, ahead), ahead, tenant, cost);
                    self.projected_at(place, now, cost, self.queue_len() / ROUGHLY, now)
                },
                |(_, projected)| projected,
            );
            last = Some(((cost, ahead, tenant), (ready, part)));
            self.waiting().finish(key, Err(Error::Denied { retry_after: ready.wait(now), part }));
        }
    }

    fn grant_due(&mut self, now: Nanos) {
        let due = self.waiting().due.take();
        let late = due.is_some_and(|due| due < now);
        let ticks = self.policy.catch_up().saturating_add(TWO_TICKS);
        if due.is_some_and(|due| now.since(due) > ticks) {
            // Not a late tick: the process stood still, and the projection is too early by as much.
            self.forget_tail();
        }
        while let Some(key) = self.waiting().queue.front() {
            let cost = self.waiter(key).cost;
            let joined = self.waiting().joined(key);
            let deadline = self.waiting().queue.deadline(key);
            let ready = match self.policy.ready_at(&self.state, now, cost) {
                Ok(ready) => ready,
                Err(error) => {
                    self.turn_away(key, now);
                    self.waiting().finish(key, Err(error.into()));
                    continue;
                }
            };
            let at = self.charge_time(ready.earliest(), joined, now);
            if deadline.is_some_and(|deadline| deadline < at) {
                let part = self.part_that_holds(&self.state, now, now, cost);
                self.turn_away(key, now);
                let retry_after = ready.and(Ready::At(at)).wait(now);
                self.waiting().finish(key, Err(Error::Denied { retry_after, part }));
            } else if at > now || matches!(ready, Ready::NotBefore(_)) {
                // After a pause, if there is one.
                let limited_by =
                    self.policy.limited_by(&self.state, now.max(self.not_before), cost);
                let waiting = self.waiting();
                waiting.due = matches!(ready, Ready::At(_)).then_some(at);
                waiting.limited_by = limited_by;
                break;
            } else {
                let charge = self.charge(at, joined, cost);
                let waiting = self.waiting();
                if let Some(tail) = &mut waiting.tail {
                    tail.late += usize::from(late);
                }
                waiting.queue.grant_turn(key);
                waiting.unlink(key);
                waiting.finish(key, Ok(Charge { limited_by: waiting.limited_by, ..charge }));
            }
        }
    }

    /// Takes a waiter out of the queue without a grant.
    pub(super) fn turn_away(&mut self, key: WaiterId, now: Nanos) {
        self.stats.refused += 1;
        self.depart(key, now);
        // Replaced by a better answer, unless the policy panics before.
        self.waiting().finish(key, Err(Error::Denied { retry_after: None, part: None }));
    }

    /// A waiter leaves without a grant. If it was the head, waiters behind it get no credit for time before now.
    fn depart(&mut self, key: WaiterId, now: Nanos) {
        let waiting = self.waiting();
        if let Some(tail) = &mut waiting.tail {
            tail.left += 1;
        }
        let was_head = waiting.queue.front() == Some(key);
        waiting.unlink(key);
        if was_head {
            self.not_before = self.not_before.max(now);
        }
    }

    /// A waiting caller leaves, if that changes nothing for the others but their order: the next grant stays due
    /// as it is, and the alarm. `now` is only read for the head of the queue. Returns its waker, which is to be
    /// dropped after the lock is released.
    pub(super) fn leave_quietly(
        &mut self,
        key: WaiterId,
        now: impl FnOnce() -> Nanos,
    ) -> Option<Waker> {
        let waiting = self.waiting.as_deref_mut().filter(|waiting| !waiting.is_over(key))?;
        if waiting.queue.front() == Some(key) {
            if waiting.queue.is_fair() {
                return None;
            }
            // The next one asks for the same, and so is due at the same time.
            let next = waiting.queue.behind(key)?;
            let is_same = waiting.queue[next].cost == waiting.queue[key].cost;
            let due = waiting.due.filter(|_| is_same)?;
            // At the head it is refused if that is too late for it.
            let is_too_late = waiting.queue.deadline(next).is_some_and(|deadline| deadline < due);
            if is_too_late || due <= self.time.read(now()) {
                return None;
            }
        }
        self.stats.given_up += 1;
        Some(waiting.leave_quietly(key))
    }

    /// A waiting caller leaves: its entry is removed, and a grant that it did not take is given back.
    pub(crate) fn leave(&mut self, key: WaiterId, now: Nanos) {
        let cost = self.waiter(key).cost;
        match self.take_outcome(key) {
            None => {
                self.stats.given_up += 1;
                self.depart(key, now);
                self.waiting().remove(key);
            }
            Some(Ok(charge)) => self.give_up(now, cost, charge),
            Some(Err(_)) => {}
        }
    }

    pub(crate) fn set_policy(&mut self, now: Nanos, policy: P) {
        self.change_state(now, |old, state, _| policy.migrate(old, state, now));
        self.policy = policy;
        self.moved(now);
        // Requests that exceed the new capacity need not wait, nor count for others.
        let too_much = |waiter: &Waiter<P>| {
            self.policy.ready_at(&self.state, now, waiter.cost).err().map(Error::from)
        };
        let waiters = self.waiting.iter().flat_map(|waiting| waiting.queue.iter());
        let over: Vec<_> =
            waiters.filter_map(|(key, waiter)| Some((key, too_much(waiter)?))).collect();
        for (key, error) in over {
            self.turn_away(key, now);
            self.waiting().finish(key, Err(error));
        }
    }
}
