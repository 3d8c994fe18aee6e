//! The table at the end: the results of the fleet, and the cost of each fault.

use std::time::{Duration, Instant};

use crate::workers::Call;

const SECOND: Duration = Duration::from_secs(1);
/// The first second of a phase shows the cost of the fault, and is counted separately.
const SETTLING: Duration = SECOND;
/// The least part of the rate that must be used.
const USED: f64 = 0.95;

pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    /// How many a second may be granted.
    pub(crate) asked: f64,
    pub(crate) workers: u32,
    pub(crate) redis: Redis,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redis {
    Up,
    Down,
    /// Up again: some workers use it already while others still go on alone.
    Back,
}

pub(crate) struct Report {
    /// In the order of their grants.
    pub(crate) calls: Vec<Call>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) rate: f64,
    pub(crate) quota: u32,
    /// The most requests that the API saw in a second.
    pub(crate) fullest: usize,
}

impl Report {
    fn within(&self, from: Instant, to: Instant) -> &[Call] {
        let before = |time: Instant| self.calls.partition_point(|call| call.granted < time);
        &self.calls[before(from)..before(to)]
    }

    /// Calls a second once the phase has settled.
    fn achieved(&self, phase: &Phase) -> f64 {
        let from = phase.start + SETTLING;
        self.within(from, phase.end).len() as f64 / (phase.end - from).as_secs_f64()
    }

    /// The 429s in the first second of the phase, and in the rest.
    fn refused(&self, phase: &Phase) -> (usize, usize) {
        let settled = phase.start + SETTLING;
        let count = |from, to| self.within(from, to).iter().filter(|call| call.refused).count();
        (count(phase.start, settled), count(settled, phase.end))
    }

    /// No 429 while Redis lives, and the rate used. Going back to it is a part of its death.
    pub(crate) fn is_good(&self) -> bool {
        let mut good = true;
        for phase in self.phases.iter().filter(|phase| phase.redis != Redis::Down) {
            let (name, (early, late)) = (phase.name, self.refused(phase));
            let refused = if phase.redis == Redis::Up { early + late } else { late };
            let used = self.achieved(phase) / phase.asked;
            if refused > 0 {
                println!("BAD: {refused} 429s in \"{name}\"");
            }
            if used < USED {
                println!("BAD: {:.1} % of the rate used in \"{name}\"", 100.0 * used);
            }
            good &= refused == 0 && used >= USED;
        }
        good
    }

    pub(crate) fn print(&self) {
        let title = "rate, after a second";
        println!("\n{title:24}workers   asked/s   achieved/s              429s");
        for phase in &self.phases {
            let achieved = self.achieved(phase);
            let (used, (_, refused)) = (100.0 * achieved / phase.asked, self.refused(phase));
            let Phase { name, workers, asked, .. } = phase;
            println!("{name:24}{workers:7}{asked:10.1}{achieved:13.1}  ({used:5.1} %){refused:9}");
        }
        let title = "cost, in that second";
        println!("\n{title:24}no service for   granted            429s");
        for phase in self.phases.iter().skip(1) {
            let (gap, granted) = (self.gap(phase), self.granted_in_a_second(phase));
            let (name, (refused, _), note) = (phase.name, self.refused(phase), self.note(phase));
            let more = granted as f64 - self.rate;
            let granted = format!("{granted} ({more:+.0})");
            println!("{name:24}{gap:>14.0?}   {granted:16}{refused:7}{note}");
        }
        let (fullest, quota) = (self.fullest, self.quota);
        println!("\nfullest second: {fullest} requests arrived, the API accepts {quota}");
    }

    /// The longest time without a grant in the second after the fault.
    fn gap(&self, phase: &Phase) -> Duration {
        let end = phase.end.min(phase.start + SECOND);
        let times = self.within(phase.start, end).iter().map(|call| call.granted);
        let mut last = phase.start;
        let mut longest = Duration::ZERO;
        for time in times.chain([end]) {
            longest = longest.max(time.saturating_duration_since(last));
            last = time;
        }
        longest
    }

    fn granted_in_a_second(&self, phase: &Phase) -> usize {
        self.within(phase.start, phase.start + SECOND).len()
    }

    /// When the fleet went on without Redis, or with it.
    fn note(&self, phase: &Phase) -> String {
        let mut calls = self.within(phase.start, phase.end).iter();
        let (what, call) = match phase.redis {
            Redis::Up => return String::new(),
            Redis::Down => ("the last by Redis", calls.rfind(|call| call.by_redis)),
            Redis::Back => ("the last without Redis", calls.rfind(|call| !call.by_redis)),
        };
        let after = call.map(|call| call.granted - phase.start).unwrap_or_default();
        format!("   {what} after {after:.0?}")
    }
}
