//! The memory in use.

use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What lists of a test may take more at one time than at another.
pub(crate) const SLACK: usize = 64 << 10;

/// The bytes in use.
pub(crate) fn in_use() -> usize {
    HEAP.current_usage()
}

/// Bytes in use, at times at which it should be the same.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<usize>);

impl Samples {
    pub(crate) fn add(&mut self) {
        self.0.push(in_use());
    }

    /// The most in the first half of the time and in the second. Panics if it has grown.
    #[track_caller]
    pub(crate) fn check(&self) -> [usize; 2] {
        let (first, second) = self.0.split_at(self.0.len() / 2);
        let most = [first, second].map(|half| half.iter().copied().max().unwrap_or(0));
        assert!(first.is_empty() || most[1] < most[0] + SLACK, "memory grows: {:?}", self.0);
        most
    }
}
