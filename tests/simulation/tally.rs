//! The counts of the callers of a limiter, compared with those of the limiter.

use std::ops::AddAssign;
use std::time::Duration;

use tollgate::Stats;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    /// Left before a decision.
    pub(crate) left: u64,
    /// Left when they were woken, and did not look: refused, or granted and given back.
    pub(crate) woken: u64,
    /// Left, and were refused, granted and given back, or not decided.
    pub(crate) blind: u64,
    /// Granted or refused, without a caller that would know.
    pub(crate) kept: u64,
    /// The waits of all grants that were seen.
    pub(crate) waited: Duration,
    /// Whether there were grants whose waits were not seen.
    pub(crate) waited_more: bool,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.left += other.left;
        self.woken += other.woken;
        self.blind += other.blind;
        self.kept += other.kept;
        self.waited += other.waited;
        self.waited_more |= other.waited_more;
    }
}

impl Tally {
    /// Whether the limiter's counts are possible when no caller waits.
    ///
    /// A call counts once, unless it was granted and given back: then it counts as granted and as given up. So the
    /// sum of the counts tells how many were given back, and that determines the others.
    pub(crate) fn check(&self, stats: Stats) -> Result<(), String> {
        let of = i128::from;
        let counts = of(stats.granted + stats.refused + stats.given_up);
        let calls = self.granted + self.refused + self.left + self.woken + self.blind + self.kept;
        let back = counts - of(calls);
        let undecided = of(stats.given_up) - of(self.left) - back;
        let kept = of(stats.granted) - of(self.granted) - back;
        let refused = of(stats.refused) - of(self.refused) - (of(self.kept) - kept);
        let is_exact = back >= 0
            && refused >= 0
            && (0..=of(self.blind)).contains(&undecided)
            && (0..=of(self.kept)).contains(&kept);
        let all_seen = back == 0 && !self.waited_more;
        let waits =
            if all_seen { stats.waited == self.waited } else { stats.waited >= self.waited };
        if is_exact && waits { Ok(()) } else { Err(format!("{stats:?}, but {self:?}")) }
    }
}
