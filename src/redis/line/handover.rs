//! Bookings whose caller has gone: they go to the next waiters, or back to Redis.

use std::collections::VecDeque;

use super::KeyLine;
use super::waiter::{Booking, Stage};
use crate::redis::script::Scripted;
use crate::wait_queue::WaiterId;

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
    fn return_booking(&mut self, cost: P::Cost, booking: Booking) {
        self.refund(cost, cost, booking);
        self.let_go(cost);
    }

    pub(super) fn return_all(&mut self, cost: P::Cost, spare: &mut VecDeque<Booking>) {
        for booking in spare.drain(..) {
            self.return_booking(cost, booking);
        }
    }

    /// Hands spare bookings for `cost` to the waiters from `next` on that ask for the same cost: each moves
    /// up. Bookings that are left go back.
    pub(super) fn hand_on(
        &mut self,
        mut next: Option<WaiterId>,
        cost: P::Cost,
        mut spare: VecDeque<Booking>,
    ) {
        while let Some(id) = next.filter(|_| !spare.is_empty()) {
            next = self.queue.behind(id);
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
                    self.book(id, booking);
                    self.ask_again();
                }
                Stage::Asked(_) | Stage::Stale(_) => {
                    // It may get a booking of its own: the first that gets none has this one.
                    if self.spare.is_empty() || self.spare_cost == cost {
                        self.spare_cost = cost;
                        for booking in spare.drain(..) {
                            put_aside(&mut self.spare, booking);
                        }
                    }
                    break;
                }
                Stage::Over(_) => break,
            }
        }
        self.return_all(cost, &mut spare);
    }

    pub(super) fn hand_on_spare(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.hand_on(self.head, self.spare_cost, spare);
    }
}
