//! The counts of the callers, compared with those of the limiter.

use std::ops::AddAssign;
use std::time::Duration;

use tollgate::Stats;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    /// Left before a decision.
    pub(crate) left: u64,
    /// Left with a grant without polling it.
    pub(crate) unseen: u64,
    /// Had a time limit, and left after the decision without polling it.
    pub(crate) undecided: u64,
    /// Left without a single poll.
    pub(crate) blind: u64,
    /// The waits of all grants that were seen.
    pub(crate) waited: Duration,
    /// Permits of all calls that were granted, or may have been.
    pub(crate) charged: u64,
    /// Permits that were certainly kept. They may be given back by another caller than the one
    /// granted.
    pub(crate) kept: i64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.left += other.left;
        self.unseen += other.unseen;
        self.undecided += other.undecided;
        self.blind += other.blind;
        self.waited += other.waited;
        self.charged += other.charged;
        self.kept += other.kept;
    }
}

impl Tally {
    /// Compares with the limiter's counts when the queue is empty.
    ///
    /// Three equations determine the two numbers that no caller can know: how many of the undecided
    /// and of the blind were granted. Without those, all counts are compared one by one.
    #[track_caller]
    pub(crate) fn check(&self, stats: Stats, what: &str) {
        let of = |count: u64| i128::from(count);
        let undecided = of(stats.given_up) - of(self.left + self.unseen + self.blind);
        let blind = of(stats.granted) - of(self.granted + self.unseen) - undecided;
        let refused = of(self.refused + self.undecided) - undecided;
        let is_exact = (0..=of(self.undecided)).contains(&undecided)
            && (0..=of(self.blind)).contains(&blind)
            && of(stats.refused) == refused;
        assert!(is_exact, "{what}: {stats:?}, but {self:?}");
        let all_seen = stats.granted == self.granted;
        let is_all =
            if all_seen { stats.waited == self.waited } else { stats.waited >= self.waited };
        assert!(is_all, "{what}: waits of {:?}, but {self:?}", stats.waited);
    }
}
