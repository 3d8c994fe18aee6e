//! Bookings whose caller has gone: they go to the next waiters, or back to Redis.

use std::collections::VecDeque;

use super::Inner;
use super::waiter::{Booking, Place};
use crate::line::WaiterId;
use crate::redis::script::policies::Scripted;

/// One more ticket that nobody holds. They are handed on in the order in which they are due, whoever of
/// their holders left first.
pub(super) fn put_aside(spare: &mut VecDeque<Booking>, ticket: Booking) {
    let place = spare.partition_point(|other| other.due <= ticket.due);
    spare.insert(place, ticket);
}

impl<P: Scripted> Inner<P> {
    /// Nobody is there to take what was granted.
    pub(crate) fn give_back(&mut self, cost: P::Cost, ticket: Option<Booking>) {
        self.stats.given_up += 1;
        if let Some(ticket) = ticket {
            self.return_ticket(cost, ticket);
        }
    }

    /// A ticket goes back to Redis.
    fn return_ticket(&mut self, cost: P::Cost, ticket: Booking) {
        self.refund(cost, cost, ticket);
        self.let_go(cost);
    }

    pub(super) fn return_all(&mut self, cost: Option<P::Cost>, spare: &mut VecDeque<Booking>) {
        let Some(cost) = cost else { return };
        for ticket in spare.drain(..) {
            self.return_ticket(cost, ticket);
        }
    }

    /// Tickets for `cost` that nobody holds go to those from `next` on, as long as they ask for the same:
    /// everybody moves up by one. What is left goes back.
    pub(super) fn hand_on(
        &mut self,
        mut next: Option<WaiterId>,
        cost: P::Cost,
        mut spare: VecDeque<Booking>,
    ) {
        while let Some(key) = next.filter(|_| !spare.is_empty()) {
            next = self.queue.behind(key);
            let waiter = &mut self.queue[key];
            if waiter.cost != cost {
                break;
            }
            if waiter.asked {
                // It may get one of its own: whoever gets none has this one.
                if self.spare.is_empty() || self.spare_cost == cost {
                    self.spare_cost = cost;
                    for ticket in spare.drain(..) {
                        put_aside(&mut self.spare, ticket);
                    }
                }
                break;
            }
            match waiter.place {
                Place::Booked(ref mut ticket) => {
                    spare.push_back(*ticket);
                    *ticket = spare.pop_front().unwrap_or(*ticket);
                }
                Place::Waiting => {
                    let deadline = waiter.deadline;
                    let in_time = |due| deadline.is_none_or(|deadline| due <= deadline);
                    let Some(&ticket) = spare.front().filter(|ticket| in_time(ticket.due)) else {
                        break;
                    };
                    spare.pop_front();
                    self.book(key, ticket);
                    self.ask_again();
                }
                Place::Over(_) => break,
            }
        }
        for ticket in spare {
            self.return_ticket(cost, ticket);
        }
    }

    pub(super) fn hand_on_spare(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.hand_on(self.head, self.spare_cost, spare);
    }
}
