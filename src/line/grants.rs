//! The order of grants: callers that come, wait, are granted or refused, and leave.

use std::task::Waker;

use super::charge::Charge;
use super::inner::{Admission, Inner};
use super::waiting::{ROUGHLY, Waiter};
use crate::error::{Error, QueueLimit};
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt, Ready, RuleEvent, TWO_TICKS};
use crate::units::{Nanos, saturating_nanos};
use crate::wait_queue::{Arrival, Ask, Place, WaiterId};

impl<P: Policy> Inner<P> {
    pub(super) fn enter(
        &mut self,
        now: Nanos,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        let result = self.try_enter(now, ask, waker);
        if result.is_err() {
            self.stats.refused += 1;
        }
        result
    }

    fn try_enter(
        &mut self,
        now: Nanos,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        let &Ask { cost, max_wait, claim } = ask;
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let ready = self.policy.ready_at(&self.state, now, cost)?;
        let tenant = claim.tenant();
        let place = Place::new(Arrival::new(now, claim.ahead()), tenant, cost.permits());
        if self.is_first(&place) && self.charges_from <= now && ready.has_come(now) {
            if self.queue_len() > 0 {
                self.charge_in_tail(now, cost, true);
                self.waiting().queue.grant_at_once(&place);
            }
            return Ok(Admission::Granted(self.charge(now, now, cost)));
        }
        self.waiting().queue.take_turns_for(&place);
        // Where it stands among the waiters, unless it is behind all of them.
        let among = Some(&place).filter(|place| !self.waiting().queue.is_last(place));
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if let Some(deadline) = deadline
            && self.is_too_early(deadline, now, cost, among)
        {
            // Among tenants a caller that does not wait is granted when no caller waits.
            let is_last = deadline <= now && self.waiting().queue.is_fair();
            return Err(self.denial(among.filter(|_| !is_last), now, cost, deadline));
        }
        let waiting = self.waiting();
        let (queued, exceeded) = (waiting.queued, waiting.exceeded_by(cost, tenant));
        if let Some(limit) = exceeded {
            let moves = match self.due() {
                Some(due) => Some(due.since(now)),
                None => self.projected_at(among, now, cost, now).0.wait(now),
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
        self.charge_in_tail(now, cost, among.is_some());
        let (waiter, waker) = (Waiter::new(cost, now), waker.cloned());
        let waiting = self.waiting();
        let id = waiting.join(&place, waiter, deadline, waker);
        // The next grant stays as it is, unless it is this one's.
        waiting.due_is_current = waiting.queue.front() != Some(id);
        Ok(Admission::Waiting(id))
    }

    /// Whether a new caller could not be granted by `deadline`.
    fn is_too_early(
        &mut self,
        deadline: Nanos,
        now: Nanos,
        cost: P::Cost,
        among: Option<&Place>,
    ) -> bool {
        if deadline <= now {
            return true;
        }
        if among.is_some() {
            return !self.is_in_time_behind_all(deadline, now, cost)
                && deadline < self.projected_at(among, now, cost, deadline).0.earliest();
        }
        // Waiters that have left can only make it look later: if the time is enough with them, it is enough. But where
        // one that is unpredictable was the last to count, more of them count now.
        let with_them = self.projected(now, cost, usize::MAX).0;
        let is_enough = matches!(with_them, Ready::At(due) if due <= deadline);
        !is_enough && deadline < self.projected(now, cost, 0).0.earliest()
    }

    /// The error of a caller that cannot wait, or not long enough.
    fn denial(
        &mut self,
        among: Option<&Place>,
        now: Nanos,
        cost: P::Cost,
        deadline: Nanos,
    ) -> Error {
        if self.change_state(now, |policy, state, _| policy.refused(state, now, cost)) {
            self.forget_tail();
        }
        let (due, part) = self.projected_at(among, now, cost, deadline);
        Error::Denied { retry_after: due.wait(now), part }
    }

    /// The time at which a waiter that became ready at `ready` is charged: its due time, so that a late alarm
    /// costs nothing, but not before the last event or further back than the policy catches up.
    fn charge_time(&self, ready: Nanos, joined: Nanos, now: Nanos) -> Nanos {
        let catch_up = now.saturating_sub(self.policy.catch_up());
        ready.max(joined).max(self.charges_from).max(catch_up)
    }

    fn charge(&mut self, at: Nanos, joined: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        let receipt = Some(self.policy.charge(&mut self.state, at, cost));
        let waited = at.since(joined);
        self.charges_from = self.charges_from.max(at);
        self.stats.granted += 1;
        self.stats.waited = self.stats.waited.saturating_add(waited);
        Charge { waited: saturating_nanos(waited), receipt, limited_by: None }
    }

    /// Grants all that is due, in order, and refuses the waiters whose time is up.
    pub(super) fn pump(&mut self, now: Nanos) {
        let Some(waiting) = &mut self.waiting else { return };
        // Not written where there is none, as in `WaitQueue::after_unlock`.
        if waiting.resumed.is_some() && self.charges_from <= now {
            waiting.resumed = None;
        }
        if waiting.rests(now) {
            return;
        }
        waiting.due_is_current = false;
        self.grant_due(now);
        self.refuse_late(now);
        self.waiting().due_is_current = true;
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
        // All of them have left before the first `retry_after` is computed. A crowd that has gone ahead does not need a walk
        // for each.
        let mut last = None;
        for key in over {
            let queue = &self.waiting().queue;
            let &Waiter { cost, joined, .. } = &queue[key];
            let place = queue.place_of(key).later(now.since(joined));
            let (ready, part) = match last {
                Some((caller, projected)) if caller == (cost, place) => projected,
                _ => self.projected_late(&place, now, cost),
            };
            last = Some(((cost, place), (ready, part)));
            self.waiting().finish(key, Err(Error::Denied { retry_after: ready.wait(now), part }));
        }
    }

    /// When a caller would be granted that has waited too long, if it came again.
    fn projected_late(
        &mut self,
        place: &Place,
        now: Nanos,
        cost: P::Cost,
    ) -> (Ready, Option<Part>) {
        if self.waiting().queue.is_last(place) {
            self.projected(now, cost, self.queue_len() / ROUGHLY)
        } else {
            self.projected_at(Some(place), now, cost, now)
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
            let queue = &self.waiting().queue;
            let (&Waiter { cost, joined, .. }, deadline) = (&queue[key], queue.deadline(key));
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
                    self.policy.limited_by(&self.state, now.max(self.charges_from), cost);
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
                waiting.grant(key);
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
            self.charges_from = self.charges_from.max(now);
        }
    }

    /// A waiting caller leaves: its entry is removed, and a grant that it did not take is given back.
    pub(crate) fn leave(&mut self, key: WaiterId, now: Nanos) {
        let cost = self.waiting().queue[key].cost;
        match self.take_outcome(key) {
            None => {
                self.stats.given_up += 1;
                self.depart(key, now);
                self.waiting().queue.remove(key);
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
        let Some(waiting) = &self.waiting else { return };
        let too_much = |key| {
            let error = self.policy.ready_at(&self.state, now, waiting.queue[key].cost).err()?;
            Some((key, Error::from(error)))
        };
        let over: Vec<_> = waiting.queue.ahead_of(None).filter_map(too_much).collect();
        for (key, error) in over {
            self.turn_away(key, now);
            self.waiting().finish(key, Err(error));
        }
    }
}
