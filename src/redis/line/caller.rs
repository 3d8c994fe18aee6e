//! What the future of a caller does in the queue of its key.

use std::task::Waker;
use std::time::Duration;

use super::failure::without_redis;
use super::waiter::{KeyWaiter, Outcome, Stage, Turn};
use super::{BATCH, KeyLine};
use crate::error::Error;
use crate::line::WaiterId;
use crate::policy::Cost;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    /// Joins the queue. `Err` if the caller need not wait.
    pub(crate) fn enter(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        (turn, waker): (Turn, Option<Waker>),
    ) -> Result<WaiterId, Outcome> {
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if let Err(outcome) = self.admit(rules, now, cost, deadline) {
            self.count(&outcome);
            return Err(outcome);
        }
        self.permits = self.permits.saturating_add(cost.permits());
        let id = self.queue.push_back(KeyWaiter {
            cost,
            joined: now,
            changes: self.changes_made,
            deadline,
            waker,
            stage: Stage::Waiting(turn),
            projected: None,
            limited_by: None,
        });
        self.head.get_or_insert(id);
        self.waiting += 1;
        // The reply is the end of a caller that has no time to wait.
        self.deadlines.extend(deadline.filter(|&at| at > now).map(|deadline| (deadline, id)));
        Ok(id)
    }

    fn admit(
        &self,
        rules: &Rules<P>,
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
        if let Some(error) = rules.health.down() {
            return Err(without_redis(rules, error.unsent(&self.key)));
        }
        if let (Some(deadline), Some((denied, due, part))) = (deadline, self.denied)
            && denied == cost
            && deadline < due
            && self.waiting == 0
        {
            rules.counters.denied_locally.add(1);
            return refused(Error::Denied { retry_after: Some(due.since(now)), part });
        }
        let permits = self.permits.saturating_add(cost.permits());
        if self.len() >= rules.options.max_waiters || permits > rules.options.max_queued_permits {
            let retry_after = self.next_move().map(|at| at.since(now));
            return refused(Error::QueueFull { retry_after });
        }
        Ok(())
    }

    /// When the line moves next by itself.
    fn next_move(&self) -> Option<Nanos> {
        let front = self.queue.front()?;
        self.front_booking().map_or(self.queue[front].projected, |booking| Some(booking.due))
    }

    /// The outcome of a caller, if there is one yet.
    pub(crate) fn take(&mut self, id: WaiterId) -> Option<Outcome> {
        match &mut self.queue[id].stage {
            Stage::Stale(outcome) => outcome.take(),
            Stage::Over(_) => match self.queue.remove(id).stage {
                Stage::Over(outcome) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }

    /// `Ok` if there is an outcome or, if the caller is `reserving`, if Redis has said when its turn comes. If
    /// not, when that may change by itself; `waker` will be called when it has.
    pub(crate) fn poll(
        &mut self,
        rules: &Rules<P>,
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
        if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.discard.extend(waiter.waker.replace(waker.clone()));
        }
        Err(self.moves_at(rules, now))
    }

    /// The caller has gone: its turn or its booking goes to the next, or back.
    pub(crate) fn leave(&mut self, id: WaiterId) {
        let waiter = &mut self.queue[id];
        self.discard.extend(waiter.waker.take());
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

    /// How long somebody in line still has to wait as things stand, as far as is known.
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
}
