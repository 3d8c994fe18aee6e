//! Places in flight that are found: how many calls a server works on at once.
//!
//! Up to the right number a call takes as long as the work on it, and more calls at once bring more answers. Above it calls
//! queue in the server: each takes longer, and no more answers arrive. So the times of calls are compared at two numbers, a
//! lower and a higher one. Answers a second are calls in flight over the time of a call (Little, 1961), so the right number
//! is the rate at the higher one times the time at the lower one: `high * time(low) / time(high)`, between both.
//!
//! ```text
//!            80 answers a place, or            its mean                its mean
//!            times that changed               is known                is known
//!    STAY ---------------------------> LOW -------------------> HIGH -----------> STAY
//!     ^                                 ^                         | the right number is
//!     | a refusal: never above          +-------------------------+ further off: a wider pair
//! ```
//!
//! Both times are of the last seconds, so a server that is slow by itself does not lower the number, which the least time of
//! a longer past would do. A mean is known when chance is small beside the distance of the pair, so calls that all
//! take as long need a few rounds, and others up to `SAMPLE` answers. What did not end well counts by the time that it took,
//! but not as an answer.
//!
//! BBR (Cardwell and others, 2016) sets its window by rate times time. Vegas (Brakmo and others, 1994) and Gradient2 of
//! Netflix's concurrency-limits compare with a time of the past. The thread pool of .NET (Hellerstein and others, 2008) climbs
//! by pairs.

use std::time::Duration;

use super::answer::Unit;
use super::gate::STATED;
use crate::units::Nanos;

/// The pair is this far above and below, as factors, and at most `WIDEST`.
const UP: f64 = 1.1;
const DOWN: f64 = 1.15;
const WIDEST: f64 = 2.0;

/// A mean is known once its error is this part of the distance, of logarithms; or after so many answers.
const KNOWN: f64 = 0.16;
const SAMPLE: f64 = 150.0;
/// Times vary: somewhat too many places cost little, and too few cost answers. This many errors of the mean are added.
const ERRORS: f64 = 1.2;

/// The answers of a place between two pairs, and the longest time unless the last pair changed the number by less than
/// `SETTLED`; shorter if the times of calls change by `CHANGE`, and by `SURE` errors.
const ROUNDS: f64 = 80.0;
const SETTLED: f64 = 0.05;
const LONGEST: Duration = Duration::from_secs(5);
const CHANGE: f64 = 1.3;
const SURE: f64 = 4.0;

/// How long a refusal bounds the places.
const CAPPED: Duration = Duration::from_secs(3);

/// A call that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Nanos,
    pub(super) units: [u32; 4],
    /// How many requests were in flight before it.
    pub(super) ahead: u64,
    /// Which part of the gate it waited for.
    pub(super) waited_for: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    Stay,
    #[default]
    Low,
    High,
}

/// The times of calls, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    sum: f64,
    squares: f64,
    calls: f64,
    good: f64,
}

impl Times {
    fn add(&mut self, time: f64, is_good: bool) {
        self.sum += time;
        self.squares += time * time;
        self.calls += 1.0;
        self.good += f64::from(u8::from(is_good));
    }

    /// Of a good answer.
    fn mean(&self) -> f64 {
        self.sum / self.good.max(0.5)
    }

    /// The standard error of the mean, as a part of it.
    fn error(&self) -> f64 {
        let spread = self.squares * self.calls / (self.sum * self.sum) - 1.0;
        (spread.max(0.0) / self.calls).sqrt()
    }
}

#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) start: u32,
    /// The right number, as far as it is known.
    n: f64,
    /// How many are in force.
    level: u32,
    phase: Phase,
    /// Calls that were sent earlier say nothing of this phase.
    began: Nanos,
    times: Times,
    /// Calls that were sent while other places were free, and the most places that were taken then.
    few: f64,
    most: u64,
    up: f64,
    down: f64,
    /// The lower number of the pair, and its times.
    low: (f64, Times),
    /// The last pair hardly changed the number.
    is_settled: bool,
    /// The time per place, at the end of the last stay.
    stayed: Option<f64>,
    /// A refusal leaves no more, until a time.
    cap: u32,
    capped_until: Nanos,
}

impl Places {
    pub(super) fn new(start: u32, now: Nanos) -> Self {
        let mut places = Self {
            start,
            n: f64::from(start.max(1)),
            // The first pair is the start and its double.
            up: WIDEST,
            down: 1.0,
            cap: u32::MAX,
            ..Self::default()
        };
        places.enter(Phase::Low, now);
        places
    }

    /// How many requests may be in flight.
    pub(super) fn level(&self) -> u64 {
        self.level.into()
    }

    /// The right number of places.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of a positive number
    pub(super) fn found(&self) -> u64 {
        self.n.round() as u64
    }

    fn enter(&mut self, phase: Phase, now: Nanos) {
        let level = match phase {
            // A little down: calls that all take as long queue from the first place too many on.
            Phase::Stay => self.n - 0.3,
            Phase::Low => self.n / self.down,
            Phase::High => (self.n * self.up).max(self.low.0 + 1.0),
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it saturates
        let level = level.round() as u32;
        self.level = level.clamp(1, self.cap);
        (self.phase, self.began) = (phase, now);
        (self.times, self.few, self.most) = (Times::default(), 0.0, 0);
    }

    /// A call is over. `is_good`: the server took it.
    pub(super) fn over(&mut self, now: Nanos, sent: Sent, is_good: bool) {
        let n = sent.units[Unit::Requests.index()];
        if self.capped_until <= now {
            self.cap = u32::MAX;
        }
        if n == 0 || sent.at < self.began {
            return;
        }
        let level = f64::from(self.level);
        if sent.waited_for != Some(STATED) && sent.ahead + 2 * u64::from(n) <= self.level.into() {
            // It had more room than this phase is about.
            self.few += 1.0;
            self.most = self.most.max(sent.ahead + u64::from(n));
            if self.phase == Phase::High && self.few > self.times.calls + level {
                self.lower(now);
            }
            return;
        }
        self.times.add(now.since(sent.at).as_secs_f64(), is_good);
        let calls = self.times.calls;
        if calls < 2.0 * level {
            return;
        }
        match self.phase {
            Phase::Stay => self.stay(now),
            _ if self.times.error() > KNOWN * self.distance() && calls < SAMPLE => {}
            Phase::Low => {
                self.low = (level, self.times);
                self.enter(Phase::High, now);
            }
            Phase::High => self.compare(now),
        }
    }

    /// Between the numbers of the pair, of logarithms.
    fn distance(&self) -> f64 {
        let level = f64::from(self.level);
        let (low, high) = match self.phase {
            Phase::High => (self.low.0, level),
            _ => (level, (self.n * self.up).max(level + 1.0)),
        };
        (high / low).ln()
    }

    /// The callers do not need as many places as the higher number: it is what they need, if that is a pair.
    fn lower(&mut self, now: Nanos) {
        let most = u32::try_from(self.most).unwrap_or(u32::MAX);
        let is_pair = self.low.0 < f64::from(most) && most < self.level;
        self.enter(if is_pair { Phase::High } else { Phase::Stay }, now);
        (self.up, self.down) = (if is_pair { 1.0 } else { UP }, DOWN);
        self.is_settled = false;
        self.level = if is_pair { most } else { self.level };
    }

    fn stay(&mut self, now: Nanos) {
        if self.level >= self.cap {
            // A refusal says more than a pair.
            return;
        }
        let level = f64::from(self.level);
        let time = self.times.mean() / level;
        let change = self.stayed.map_or(0.0, |stayed| (time / stayed).ln());
        let has_changed = change.abs() > CHANGE.ln().max(SURE * self.times.error());
        if has_changed && self.times.calls >= SAMPLE / 3.0 {
            // The pool may be smaller by as much, or larger.
            let factor = change.abs().exp().min(WIDEST);
            *(if change > 0.0 { &mut self.down } else { &mut self.up }) = factor;
        } else if self.times.calls < ROUNDS * level
            && (self.is_settled || now.since(self.began) < LONGEST)
        {
            return;
        }
        self.stayed = Some(time);
        self.enter(Phase::Low, now);
    }

    /// Both numbers of a pair are measured.
    fn compare(&mut self, now: Nanos) {
        let (low, times) = self.low;
        let high = f64::from(self.level);
        let mut next = Phase::Stay;
        if high > low {
            let right = (high * times.mean() / self.times.mean()).clamp(low, high);
            let n = (right * (1.0 + ERRORS * times.error())).max(1.0);
            self.is_settled = (n / self.n).ln().abs() < SETTLED;
            // Small changes are mostly chance.
            self.n = if self.is_settled { (n * self.n).sqrt() } else { n };
            // Near an end of the pair the right number may be beyond it.
            let part = (right / low).ln() / self.distance();
            let wider = |factor: f64| (factor * factor).min(WIDEST);
            (self.up, self.down) = match part {
                ..0.1 => (UP, wider(self.down.max(DOWN))),
                // Unless the callers need no more.
                0.75.. => (wider(self.up).max(UP), DOWN),
                _ => (UP, DOWN),
            };
            if self.up > UP || self.down > DOWN {
                next = Phase::Low;
            }
        }
        self.enter(next, now);
    }

    /// A server refused a call beside this many others, without a time. Returns whether fewer places help: a call alone is
    /// refused for another reason.
    pub(super) fn refused(&mut self, now: Nanos, others: u64) -> bool {
        let cap = u32::try_from(others).unwrap_or(u32::MAX);
        if cap == 0 {
            return false;
        }
        self.capped_until = now.saturating_add(CAPPED);
        if cap < self.cap {
            self.cap = cap;
            self.n = f64::from(cap);
            (self.up, self.down, self.stayed) = (UP, DOWN, None);
        }
        if self.level > self.cap {
            self.enter(Phase::Stay, now);
        }
        true
    }
}
