//! The waiters with a deadline.
//!
//! Apart from their entries, so that waiters without one need no room for it.

use super::WaiterId;
use super::waiter_times::WaiterTimes;
use crate::clock::TimeOrder;
use crate::units::Nanos;

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// The first deadline first.
    in_order: TimeOrder,
    by_waiter: WaiterTimes,
}

impl Deadlines {
    // Most waiters have none, and this is asked of each.
    #[inline]
    pub(super) fn set(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        if deadline.is_some() || !self.by_waiter.is_empty() {
            self.replace(id, deadline);
        }
    }

    #[inline(never)]
    fn replace(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        if let Some(old) = self.by_waiter.set(id, deadline) {
            self.in_order.remove(id.at(old.get()));
        }
        if let Some(deadline) = deadline {
            self.in_order.insert(id.at(deadline.get()));
        }
    }

    pub(super) fn of(&self, id: WaiterId) -> Option<Nanos> {
        self.by_waiter.get(id)
    }

    pub(super) fn first(&self) -> Option<(Nanos, WaiterId)> {
        self.in_order.first().map(|first| (Nanos::new(first.time()), WaiterId::of(first)))
    }
}
