//! The random choices of a simulation.

use std::time::Duration;

pub(super) use super::random::Random as Chance;

impl Chance {
    pub(crate) fn of_thousand(&mut self, likely: u64) -> bool {
        self.below(1_000) < likely
    }

    pub(crate) fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[usize::try_from(self.below(these.len() as u64)).expect("an index")]
    }

    /// Seldom the longest: lengths of all magnitudes are as likely.
    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).expect("a time");
        let micros = micros >> self.below(12);
        Duration::from_micros(self.below(micros + 1))
    }
}
