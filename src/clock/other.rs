//! Clocks other than the system's: known by a pointer, so that a program that makes none has no code of them.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::alarm::OnAlarm;
use crate::units::Nanos;

/// tokio's clock, or a manual one.
pub(super) trait OtherClock: fmt::Debug + Send + Sync {
    fn now(&self) -> Nanos;

    fn alarm(&self, line: Weak<dyn OnAlarm>) -> Box<dyn OtherAlarm>;

    /// See [`Clock::since_epoch`](super::Clock::since_epoch).
    fn since_epoch(&self) -> Duration;

    /// See [`Clock::wake_others`](super::Clock::wake_others).
    fn wake_others(&self) {}

    /// See [`Clock::sounds_without_callers`](super::Clock::sounds_without_callers).
    fn sounds_without_callers(&self) -> bool {
        true
    }

    /// See [`Clock::advances_by_itself`](super::Clock::advances_by_itself).
    fn advances_by_itself(&self) -> bool {
        false
    }

    /// See [`Clock::skip_to`](super::Clock::skip_to).
    fn skip_to(&self, due: Nanos) -> bool {
        let _ = due;
        false
    }
}

/// An alarm of another clock than the system's: see the methods of [`Alarm`](super::Alarm).
pub(crate) trait OtherAlarm: fmt::Debug + Send + Sync {
    fn set(&mut self, due: Nanos) -> bool;

    fn unset(&mut self);

    fn rest(&mut self) {
        self.unset();
    }

    fn is_moved_by_callers(&self) -> bool {
        false
    }

    fn timer_task(&mut self, is_here: bool, is_missed: bool) -> Option<TimerTask>;
}

/// What an alarm needs besides the clock. Called without a lock.
pub(crate) type TimerTask = Box<dyn FnOnce() + Send>;

/// How long after the Unix epoch a clock showed zero that shows `now`.
pub(super) fn since_epoch(now: Nanos) -> Duration {
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    unix_time.saturating_sub(now.since(Nanos::ZERO))
}
