//! The order of a queue.

use std::time::Duration;

use super::WaiterId;
use crate::clock::TimeOrder;
use crate::units::{Nanos, saturating_nanos};

/// When a caller came, less the time by which it entered ahead of others: the order of a queue. Callers of one
/// arrival are in FIFO order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(i64);

impl Arrival {
    pub(crate) fn new(joined: Nanos, ahead: Duration) -> Self {
        let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let ahead = ahead.min(Nanos::HORIZON);
        Self(signed(joined.get()).saturating_sub(signed(saturating_nanos(ahead))))
    }

    /// In the same order.
    fn get(self) -> u64 {
        self.0.cast_unsigned() ^ (1 << 63)
    }

    /// When a caller that did not enter ahead joined.
    pub(crate) fn joined(self) -> Nanos {
        Nanos::new(u64::try_from(self.0).unwrap_or(0))
    }

    /// By how much a caller that joined at `joined` entered ahead.
    pub(crate) fn ahead_at(self, joined: Nanos) -> Duration {
        let joined = Self::new(joined, Duration::ZERO);
        Duration::from_nanos(joined.0.saturating_sub(self.0).unsigned_abs())
    }
}

/// A waiter of a known arrival.
pub(crate) trait Arrived {
    fn arrival(&self) -> Arrival;

    /// Whether no caller enters ahead of it any more.
    fn is_settled(&self) -> bool {
        false
    }
}

/// Of each arrival of a caller that went ahead of others the last waiter.
#[derive(Debug, Default)]
pub(super) struct Ahead(TimeOrder);

impl Ahead {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last waiter of this arrival, or of the last one before it.
    pub(super) fn last_until(&self, arrival: Arrival) -> Option<WaiterId> {
        self.0.last_until(arrival.get()).map(WaiterId::of)
    }

    /// Whether this waiter is the last one of its arrival.
    pub(super) fn is_last(&self, arrival: Arrival, id: WaiterId) -> bool {
        self.0.last_until(arrival.get()) == Some(id.at(arrival.get()))
    }

    pub(super) fn set(&mut self, arrival: Arrival, id: WaiterId) {
        if let Some(last) = self.0.last_until(arrival.get())
            && last.time() == arrival.get()
        {
            self.0.remove(last);
        }
        self.0.insert(id.at(arrival.get()));
    }

    pub(super) fn remove(&mut self, arrival: Arrival, id: WaiterId) {
        self.0.remove(id.at(arrival.get()));
    }
}
