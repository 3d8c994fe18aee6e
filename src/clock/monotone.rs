//! The time of what is decided under one lock.

use crate::units::Nanos;

/// Time that does not go back, in the order of the decisions under one lock: the clock may be read before the lock
/// is taken, and on several processors.
#[derive(Debug)]
pub(crate) struct Monotone {
    latest: Nanos,
}

impl Monotone {
    pub(crate) fn new(now: Nanos) -> Self {
        Self { latest: now }
    }

    #[inline]
    pub(crate) fn latest(&self) -> Nanos {
        self.latest
    }

    /// The time, when the clock shows `now`.
    #[inline]
    pub(crate) fn read(&mut self, now: Nanos) -> Nanos {
        self.latest = self.latest.max(now);
        self.latest
    }
}
