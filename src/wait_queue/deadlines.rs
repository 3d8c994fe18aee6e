//! The waiters with a deadline.
//!
//! Apart from their entries, so that waiters without one need no room for it.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::WaiterId;
use crate::units::Nanos;

#[derive(Debug)]
pub(super) struct Deadlines {
    /// The first deadline first.
    in_order: BTreeSet<(Nanos, WaiterId)>,
    by_waiter: HashMap<WaiterId, Nanos>,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Self { in_order: BTreeSet::new(), by_waiter: HashMap::new() }
    }

    pub(super) fn set(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        if let Some(old) = self.by_waiter.remove(&id) {
            self.in_order.remove(&(old, id));
        }
        if let Some(deadline) = deadline {
            self.by_waiter.insert(id, deadline);
            self.in_order.insert((deadline, id));
        } else if self.in_order.is_empty() && self.by_waiter.capacity() > super::fifo::KEEP {
            self.by_waiter = HashMap::new();
        }
    }

    pub(super) fn of(&self, id: WaiterId) -> Option<Nanos> {
        self.by_waiter.get(&id).copied()
    }

    pub(super) fn first(&self) -> Option<(Nanos, WaiterId)> {
        self.in_order.first().copied()
    }
}
