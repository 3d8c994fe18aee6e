//! Numbers that look random and are the same in each run.

use std::time::Duration;

/// Splitmix.
#[derive(Clone, Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

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
