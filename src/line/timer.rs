//! What a line needs from its limiter.

use crate::clock::Alarm;
use crate::units::Nanos;

/// What a line needs from its limiter.
pub(crate) trait Timer {
    fn now(&self) -> Nanos;

    /// The time, or a little earlier if [`is_coarse`](Self::is_coarse).
    fn coarse_now(&self) -> Nanos {
        self.now()
    }

    /// Whether a cost that is not ready by the coarse time may be ready by the exact one.
    fn is_coarse(&self) -> bool {
        false
    }

    /// The alarm of the line; made when a caller first waits.
    fn alarm(&self) -> Alarm;
}
