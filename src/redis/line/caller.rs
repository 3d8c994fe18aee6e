//! What the future of a caller does in the queue of its key.

use std::task::Waker;
use std::time::Duration;

use super::failure::without_redis;
use super::waiter::{Entered, KeyWaiter, Outcome, Place};
use super::{BATCH, KeyLine};
use crate::error::Error;
use crate::line::WaiterId;
use crate::policy::Cost;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    pub(crate) fn enter(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        waker: Option<Waker>,
        curious: bool,
    ) -> Entered {
        match self.try_enter(rules, now, cost, max_wait, curious) {
            Ok(id) => {
                self.queue[id].waker = waker;
                Entered::Waiting(id)
            }
            Err(outcome) => {
                self.count(&outcome);
                Entered::Over(outcome)
            }
        }
    }

    fn try_enter(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        curious: bool,
    ) -> Result<WaiterId, Outcome> {
        let refused = |error: Error| Outcome::Refused(error);
        if max_wait.is_some_and(|wait| wait.is_zero()) && self.waiting >= BATCH {
            // It would not even be asked for.
            return Err(refused(Error::Denied { retry_after: None, part: None }));
        }
        if let Err(error) = self.policy.ready_at(&self.policy.idle(now), now, cost) {
            return Err(refused(error.into()));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if let Some(error) = rules.health.down() {
            return Err(without_redis(rules, error.unsent(&self.key)));
        }
        if let (Some(deadline), Some((denied, due, part))) = (deadline, self.denied)
            && denied == cost
            && deadline < due
            && self.waiting == 0
        {
            rules.counters.denied_locally();
            let retry_after = Some(due.since(now));
            return Err(refused(Error::Denied { retry_after, part }));
        }
        let permits = self.permits.saturating_add(cost.permits());
        if self.len() >= rules.options.max_waiters || permits > rules.options.max_queued_permits {
            let moves = self.next_move().map(|at| at.since(now));
            return Err(refused(Error::QueueFull { retry_after: moves }));
        }
        self.permits = permits;
        let id = self.queue.push_back(KeyWaiter {
            cost,
            joined: now,
            changes: self.changes_made,
            deadline,
            waker: None,
            place: Place::Waiting,
            asked: false,
            left: false,
            fresh: true,
            curious,
            projected: None,
            limited_by: None,
        });
        self.head.get_or_insert(id);
        self.waiting += 1;
        // Who has no time to wait is told by the answer.
        self.deadlines.extend(deadline.filter(|&at| at > now).map(|deadline| (deadline, id)));
        Ok(id)
    }

    /// When the line moves next by itself.
    fn next_move(&self) -> Option<Nanos> {
        let front = self.queue.front()?;
        self.front_booking().map_or(self.queue[front].projected, |booking| Some(booking.due))
    }

    /// What became of somebody in line, if anything has yet.
    pub(crate) fn take(&mut self, id: WaiterId) -> Option<Outcome> {
        let waiter = &mut self.queue[id];
        let Place::Over(outcome) = &mut waiter.place else { return None };
        let outcome = outcome.take()?;
        if waiter.asked {
            waiter.left = true;
        } else {
            self.queue.remove(id);
        }
        Some(outcome)
    }

    /// What became of somebody in line. If nothing yet, `waker` will be called when it has.
    pub(crate) fn poll(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        id: WaiterId,
        waker: &Waker,
    ) -> Result<Outcome, Option<Nanos>> {
        if let Some(outcome) = self.take(id) {
            return Ok(outcome);
        }
        self.keep_waker(id, waker);
        Err(self.moves_at(rules, now))
    }

    fn keep_waker(&mut self, id: WaiterId, waker: &Waker) {
        let waiter = &mut self.queue[id];
        if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.discard.extend(waiter.waker.replace(waker.clone()));
        }
    }

    /// The caller is gone: its place or its booking goes to the next, or back.
    pub(crate) fn leave(&mut self, id: WaiterId) {
        let waiter = &mut self.queue[id];
        self.discard.extend(waiter.waker.take());
        let (cost, place) = (waiter.cost, std::mem::replace(&mut waiter.place, Place::Over(None)));
        match place {
            Place::Waiting => {
                self.stats.given_up += 1;
                self.give_up(id);
            }
            Place::Booked(booking) => {
                self.stats.given_up += 1;
                let next = self.queue.behind(id);
                self.unlink(id);
                self.hand_on(next, cost, [booking].into());
            }
            Place::Over(Some(Outcome::Granted(info))) => self.give_back(cost, info.booking),
            Place::Over(Some(Outcome::Local)) => self.stats.given_up += 1,
            Place::Over(_) => {}
        }
        let waiter = &mut self.queue[id];
        if waiter.asked {
            waiter.left = true;
        } else {
            self.queue.remove(id);
        }
    }

    /// How long somebody in line still has to wait as things stand, as far as is known.
    pub(crate) fn delay(&self, id: WaiterId, now: Nanos) -> Duration {
        let waiter = &self.queue[id];
        match waiter.place {
            Place::Booked(booking) => booking.due.since(now),
            Place::Waiting => waiter.projected.map_or(Duration::ZERO, |at| at.since(now)),
            Place::Over(_) => Duration::ZERO,
        }
    }

    /// Why there is no place, if there is none. The entry is gone then.
    pub(crate) fn refusal(&mut self, id: WaiterId) -> Option<Error> {
        let waiter = &mut self.queue[id];
        match &waiter.place {
            Place::Over(Some(Outcome::Refused(error))) if !waiter.asked => {
                let error = error.clone();
                self.queue.remove(id);
                Some(error)
            }
            _ => None,
        }
    }

    /// Whether a place in line is known to be one: it has been asked for. If not, when that may change by
    /// itself, and `waker` will be called when it has.
    pub(crate) fn placed(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        id: WaiterId,
        waker: &Waker,
    ) -> Result<(), Option<Nanos>> {
        let is_far_back = self.waiting > BATCH;
        let waiter = &mut self.queue[id];
        if !waiter.fresh || is_far_back || !matches!(waiter.place, Place::Waiting) {
            return Ok(());
        }
        self.keep_waker(id, waker);
        Err(self.moves_at(rules, now))
    }
}
