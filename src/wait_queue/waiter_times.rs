//! A time of some of the waiters.

use hashbrown::HashMap;

use super::WaiterId;
use crate::clock::KEEP;
use crate::units::Nanos;

#[derive(Debug, Default)]
pub(crate) struct WaiterTimes(HashMap<WaiterId, Nanos>);

impl WaiterTimes {
    /// Sets the time of a waiter, and returns the one that it had.
    pub(crate) fn set(&mut self, id: WaiterId, time: Option<Nanos>) -> Option<Nanos> {
        if let Some(time) = time {
            return self.0.insert(id, time);
        }
        if self.0.is_empty() {
            return None;
        }
        let old = self.0.remove(&id);
        if self.0.is_empty() && self.0.capacity() > KEEP {
            self.0 = HashMap::new();
        }
        old
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, id: WaiterId) -> Option<Nanos> {
        self.0.get(&id).copied()
    }
}
