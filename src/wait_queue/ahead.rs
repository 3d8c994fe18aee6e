//! Callers that enter ahead of others.
//!
//! A caller that enters ahead by `d` gets the place of one that came `d` earlier. All others join at the end, so
//! the queue is in the order of arrivals anyway, and only a caller that enters ahead has to find its place: behind
//! the last waiter of no later arrival. An index of the callers ahead finds the last of these, and the search goes
//! on from there, past waiters that are granted before the new one. So each waiter is passed about once.

use std::task::Waker;

use super::arrival::{Arrival, Arrived};
use super::{Entry, WaitQueue, WaiterId};
use crate::units::Nanos;

impl<T: Arrived> WaitQueue<T> {
    /// The first waiter that a caller with this arrival goes ahead of. `from`: the first one that may be.
    pub(crate) fn overtaken(&self, arrival: Arrival, from: Option<WaiterId>) -> Option<WaiterId> {
        if self[self.fifo.back()?].arrival() <= arrival {
            return None;
        }
        let last = self.ahead.last_until(arrival);
        let mut next = last.map_or(from, |last| self.fifo.behind(last));
        while let Some(id) = next.filter(|&id| self[id].arrival() <= arrival) {
            next = self.fifo.behind(id);
        }
        next
    }

    /// A caller joins ahead of `next`.
    pub(crate) fn insert_before(
        &mut self,
        next: WaiterId,
        value: T,
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        let arrival = value.arrival();
        let id = self.fifo.insert_before(next, Entry::new(value, waker));
        self.deadlines.set(id, deadline);
        self.ahead.set(arrival, id);
        self.is_here = true;
        id
    }

    /// A waiter moves ahead of `next`.
    #[cfg(feature = "redis")]
    pub(crate) fn move_before(&mut self, next: WaiterId, id: WaiterId) {
        self.forget_arrival(id);
        self.fifo.unlink(id);
        self.fifo.link_before(next, id);
    }

    /// No caller enters ahead of this waiter, nor of those ahead of it, any more.
    #[cfg(feature = "redis")]
    pub(crate) fn not_overtaken(&mut self, id: WaiterId) {
        let arrival = self[id].arrival();
        self.ahead.remove(arrival, id);
    }

    /// The opposite, for a waiter that entered ahead of others.
    #[cfg(feature = "redis")]
    pub(crate) fn may_be_overtaken(&mut self, id: WaiterId) {
        self.ahead.set(self[id].arrival(), id);
    }

    /// A search for a place does not begin at this waiter any more: it leaves the queue.
    pub(super) fn forget_arrival(&mut self, id: WaiterId) {
        if self.ahead.is_empty() {
            return;
        }
        let arrival = self[id].arrival();
        if self.ahead.is_last(arrival, id) {
            let before = self.fifo.before(id);
            let is_one = |waiter: &T| waiter.arrival() == arrival && !waiter.is_settled();
            match before.filter(|&before| is_one(&self[before])) {
                Some(before) => self.ahead.set(arrival, before),
                None => self.ahead.remove(arrival, id),
            }
        }
    }
}
