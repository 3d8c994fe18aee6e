//! Random numbers that are the same in every run.

#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The `SplitMix64` generator.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn cost(&mut self, most: u32) -> u32 {
        1 + u32::try_from(self.below(u64::from(most))).expect("a cost")
    }

    /// A span of about `scale`, often much less, seldom much more.
    pub(crate) fn span(&mut self, scale: u64) -> u64 {
        match self.below(20) {
            0..6 => 0,
            6..11 => self.below(scale / 10 + 2),
            11..17 => self.below(scale + 2),
            17..19 => self.below(5 * scale + 2),
            _ => self.below(50 * scale + 2),
        }
    }
}
