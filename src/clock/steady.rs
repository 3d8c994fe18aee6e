//! The time of a line, in which small steps back are not seen.

use std::time::Duration;

use crate::units::{Nanos, saturating_nanos};

/// Time that does not go back by a small step, even if the clock does: no caller should be refused for
/// that.
#[derive(Debug)]
pub(crate) struct Steady {
    latest: Nanos,
    /// What counts as small, in nanoseconds.
    step: u64,
}

impl Steady {
    pub(crate) fn new(now: Nanos, step: Duration) -> Self {
        Self { latest: now, step: saturating_nanos(step) }
    }

    #[inline]
    pub(crate) fn latest(&self) -> Nanos {
        self.latest
    }

    /// For a time that was read under the lock.
    #[inline]
    pub(crate) fn read(&mut self, now: Nanos) -> Nanos {
        if let Some(now) = self.read_before(now) {
            return now;
        }
        self.latest = now;
        now
    }

    /// For a time that was read before the lock was taken: `None` if it has to be read again, because it is
    /// old or the clock has been set back.
    #[inline]
    pub(crate) fn read_before(&mut self, now: Nanos) -> Option<Nanos> {
        if now >= self.latest {
            self.latest = now;
        } else if self.latest.get() - now.get() > self.step {
            return None;
        }
        Some(self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_step_back_is_not_seen_and_a_large_one_is() {
        let mut time = Steady::new(Nanos::new(10_000), Duration::from_nanos(1_000));
        let read = |now| time.read(Nanos::new(now)).get();
        assert_eq!(
            [10_500, 9_500, 10_600, 9_599, 9_500].map(read),
            [10_500, 10_500, 10_600, 9_599, 9_599]
        );
    }
}
