//! Spare bookings, whose caller has left: they go to the next waiters, stay for the next caller until they are
//! due, or are returned to Redis.

use std::collections::VecDeque;
use std::time::Duration;

use super::KeyLine;
use super::waiter::{Booking, Stage, Turn};
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// A booking stays for the next caller if it is due within this time: others may need one that is due later.
const STAYS: Duration = Duration::from_millis(500);

/// Adds a spare booking. They are handed on in the order in which they are due.
pub(super) fn put_aside(spare: &mut VecDeque<Booking>, booking: Booking) {
    let place = spare.partition_point(|other| other.due <= booking.due);
    spare.insert(place, booking);
}

impl<P: Scripted> KeyLine<P> {
    /// The caller left without taking its grant.
    pub(crate) fn give_back(&mut self, cost: P::Cost, booking: Option<Booking>) {
        self.stats.given_up += 1;
        if let Some(booking) = booking {
            self.return_booking(cost, booking);
        }
    }

    /// Gives a booking back to Redis.
    pub(super) fn return_booking(&mut self, cost: P::Cost, booking: Booking) {
        self.refund(cost, cost, booking);
        self.let_go(cost);
    }

    pub(super) fn return_all(&mut self, cost: P::Cost, spare: &mut VecDeque<Booking>) {
        for booking in spare.drain(..) {
            self.return_booking(cost, booking);
        }
    }

    /// Gives back all spare bookings.
    pub(crate) fn return_spare(&mut self) {
        let mut spare = std::mem::take(&mut self.spare);
        self.return_all(self.spare_cost, &mut spare);
    }

    /// When the first spare booking goes back, unless it may be needed for a waiter in the request in flight.
    pub(super) fn spare_until(&self) -> Option<Nanos> {
        let spare = self.spare.front().filter(|_| self.head.is_none() || self.flight.is_none());
        spare.map(|booking| booking.due)
    }

    /// The process stood still while its bookings came due: they are not granted all at once, but returned, and
    /// the next requests ask for their waiters again.
    pub(super) fn return_overdue(&mut self, now: Nanos) {
        self.stood_still = Some(now);
        self.return_spare();
        let mut next = self.queue.front();
        while let Some(id) = next
            && let Stage::Booked(booking) = self.queue[id].stage
        {
            next = self.queue.behind(id);
            let waiter = &mut self.queue[id];
            waiter.stage = Stage::Waiting(Turn::Later);
            let (cost, deadline) = (waiter.cost, waiter.deadline);
            let went_ahead = !waiter.arrival.ahead_at(waiter.joined).is_zero();
            waiter.counted = true;
            self.later.join(cost);
            self.queue.set_deadline(id, deadline);
            if went_ahead {
                self.queue.may_be_overtaken(id);
            }
            self.waiting += 1;
            self.return_booking(cost, booking);
        }
        self.head = self.queue.front();
    }

    /// Hands spare bookings for `cost` to the waiters from `next` on that ask for the same cost: each moves
    /// up. Those that are left stay for the next caller until they are due, or go back.
    pub(super) fn hand_on(
        &mut self,
        mut next: Option<WaiterId>,
        cost: P::Cost,
        mut spare: VecDeque<Booking>,
    ) {
        let mut is_asked = false;
        while let Some(id) = next.filter(|_| !spare.is_empty()) {
            let waiter = &mut self.queue[id];
            if waiter.cost != cost {
                break;
            }
            match waiter.stage {
                Stage::Booked(ref mut booking) => {
                    spare.push_back(*booking);
                    *booking = spare.pop_front().unwrap_or(*booking);
                }
                Stage::Waiting(_) => {
                    let deadline = waiter.deadline;
                    let in_time = |due| deadline.is_none_or(|deadline| due <= deadline);
                    let Some(&booking) = spare.front().filter(|booking| in_time(booking.due))
                    else {
                        break;
                    };
                    spare.pop_front();
                    next = self.queue.behind(id);
                    self.book(id, booking);
                    self.ask_again();
                    continue;
                }
                Stage::Asked(_) | Stage::Stale(_) => {
                    // It may get a booking of its own: the first waiter without one gets this.
                    is_asked = true;
                    break;
                }
                Stage::Over(_) => break,
            }
            next = self.queue.behind(id);
        }
        // No caller may pass one that is booked later.
        let last = self.front_booking().map_or(Nanos::ZERO, |_| self.last_due);
        let stays = last..=self.time.latest().saturating_add(STAYS);
        let is_for_next =
            !P::HELD && next.is_none() && spare.iter().all(|booking| stays.contains(&booking.due));
        if (is_asked || is_for_next) && (self.spare.is_empty() || self.spare_cost == cost) {
            self.spare_cost = cost;
            for booking in spare {
                put_aside(&mut self.spare, booking);
            }
        } else {
            self.return_all(cost, &mut spare);
        }
    }

    pub(super) fn hand_on_spare(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.hand_on(self.head, self.spare_cost, spare);
    }
}
