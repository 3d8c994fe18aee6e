//! Callers come, are polled, and leave; and the end of the line.

use std::task::Waker;
use std::time::Duration;

use super::KeyLine;
use super::roster::{BATCH, Booking, KeyWaiter, Outcome, Stage, Turn};
use crate::error::Error;
use crate::policy::Cost;
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::{End, WaiterId};

impl<P: Scripted> KeyLine<P> {
    /// Joins the queue as if it had come `ahead` earlier. `max_wait`: from the arrival. `Err` if the caller need not wait.
    pub(crate) fn enter(
        &mut self,
        arrived: Nanos,
        cost: P::Cost,
        (max_wait, ahead): (Option<Duration>, Duration),
        (turn, waker): (Turn, Option<Waker>),
    ) -> Result<WaiterId, Outcome> {
        let now = self.now();
        let deadline = max_wait.map(|wait| arrived.saturating_add(wait).max(now));
        if let Err(outcome) = self.admit(cost, deadline) {
            self.count(&outcome);
            return Err(outcome);
        }
        let waiter = KeyWaiter {
            cost,
            arrived,
            changes: self.changes,
            deadline,
            stage: Stage::Waiting(turn),
            projected: None,
            limited_by: None,
        };
        let needs_answer = turn != Turn::New || deadline.is_some() || self.rules().has_room();
        let (id, is_due) = self.roster.enter(waiter, (now, ahead), needs_answer, waker);
        if is_due {
            self.pacing.ask_again();
        }
        Ok(id)
    }

    fn admit(&self, cost: P::Cost, deadline: Option<Nanos>) -> Result<(), Outcome> {
        let now = self.now();
        let refused = |error: Error| Err(Outcome::Refused(error));
        if self.roster.queue.is_closed {
            return refused(Error::Closed);
        }
        if deadline == Some(now) && self.roster.queue.len() >= BATCH {
            // The next request would not reach it.
            return refused(Error::Denied { retry_after: None, part: None });
        }
        if let Err(error) = self.agreement.check(now)(cost) {
            return refused(error.into());
        }
        if let Some(error) = self.context.health.down() {
            return Err(self.without_redis(error.at(&self.key).unsent()));
        }
        if let Some(deadline) = deadline
            && let Some((due, part)) = self.pacing.refuses(now, cost, deadline)
            && self.roster.queue.len() == 0
        {
            self.context.count(|counters| counters.denied_locally += 1);
            return refused(Error::Denied { retry_after: Some(due.since(now)), part });
        }
        let queued = self.roster.permits.saturating_add(cost.permits());
        if let Some(limit) = self.context.bounds.exceeded(self.roster.len(), queued, None) {
            let booked = self.roster.front_booking().map(|booking| booking.due);
            let next = booked.or_else(|| self.roster[self.roster.head()?].projected);
            let retry_after = next.map(|at| at.since(now));
            return refused(Error::QueueFull { limit, retry_after });
        }
        Ok(())
    }

    /// How long a waiter still has to wait, as far as is known.
    pub(crate) fn delay(&self, id: WaiterId) -> Duration {
        let now = self.now();
        let waiter = &self.roster[id];
        match waiter.stage {
            Stage::Booked(booking) => booking.due.since(now),
            Stage::Waiting(_) | Stage::Asked(_) => {
                waiter.projected.map_or(Duration::ZERO, |at| at.since(now))
            }
            Stage::Over(_) | Stage::Stale(_) => Duration::ZERO,
        }
    }

    /// The caller has gone: its turn or its booking goes to the next, or back.
    pub(crate) fn leave(&mut self, id: WaiterId) {
        self.roster.queue.drop_waker(id);
        let cost = self.roster[id].cost;
        match self.roster[id].stage {
            Stage::Waiting(_) | Stage::Asked(_) => {
                self.stats.given_up += 1;
                self.give_up(id, None);
            }
            Stage::Booked(booking) => {
                self.stats.given_up += 1;
                // It may have counted this booking.
                self.pacing.refusal = None;
                let left = self.roster.leave_booked(id, booking);
                let place = self.spare.partition_point(|(_, other)| other.due <= left.due);
                self.spare.insert(place, (cost, left));
                // A head in the request in flight gets it if the reply books none for it.
                if !self.roster.head().is_some_and(|id| self.roster[id].stage.is_asked()) {
                    self.hand_on();
                }
            }
            Stage::Over(_) | Stage::Stale(_) => match self.roster.take(id) {
                Some(Outcome::Granted(info)) => self.give_back(cost, info.booking),
                Some(Outcome::Local) => self.stats.given_up += 1,
                Some(Outcome::Refused(_)) | None => {}
            },
        }
    }

    /// The caller left without taking its grant.
    pub(crate) fn give_back(&mut self, cost: P::Cost, booking: Option<Booking>) {
        self.stats.given_up += 1;
        if let Some(booking) = booking {
            self.return_booking(cost, booking);
        }
    }

    /// Whether no caller waits and this process holds no place in flight.
    fn is_drained(&self) -> bool {
        self.roster.len() == 0 && self.lease.holds_nothing()
    }

    /// `Err`: not yet, and when the line moves next, if that is known.
    pub(crate) fn close(&mut self, end: End<'_>) -> Result<bool, Option<Nanos>> {
        match end {
            End::IsClosed => return Ok(self.roster.queue.is_closed),
            End::IsDrained(_) if self.is_drained() => {}
            End::IsDrained(waker) => {
                self.roster.queue.keep_until_drained(waker);
                return Err(self.moves_at());
            }
            End::Serve => self.roster.queue.is_closed = true,
            End::Close => {
                self.roster.queue.is_closed = true;
                self.return_bookings();
                let waiting: Vec<_> = self.roster.unbooked().collect();
                for id in waiting {
                    self.turn_away(id, Outcome::Refused(Error::Closed));
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn wake_if_drained(&mut self) {
        if self.roster.queue.is_closed && self.is_drained() {
            self.roster.queue.wake_drained();
        }
    }
}
