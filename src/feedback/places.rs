//! Places in flight that are found: how many calls a server works on at once.
//!
//! Up to the right number a call takes as long as the work on it, and more calls at once bring more answers. Above it calls
//! queue in the server: each takes longer, and no more answers arrive. So the times of calls are compared at two numbers, a
//! lower and a higher one. Answers a second are calls in flight over the time of a call (Little, 1961), so the right number
//! is the rate at the higher one times the time at the lower one: `high * time(low) / time(high)`, between both.
//!
//! ```text
//!            80 rounds, or                    its mean               as many calls
//!            a lower rate                     is known               are measured
//!    STAY ---------------------------> LOW -------------------> HIGH -----------> STAY
//!     ^                                 ^                         | the right number is
//!     | a refusal: never above          +-------------------------+ further off: a wider pair
//! ```
//!
//! Both times are of the last seconds, so a server that is slow by itself does not lower the number, which the least time of
//! a longer past would do. A mean is known when chance is small beside the distance of the pair, so calls that all
//! take as long need two rounds, and others up to `SAMPLE` answers. What did not end well counts by the time that it took,
//! but not as an answer.
//!
//! A place too many hurts: if all calls take as long, workers become free together, and the call too many waits for a whole
//! one. So the higher number lasts a few rounds of eighty, which less than one call in a hundred meets, and a stay is rounded
//! down.

use std::time::Duration;

use super::answer::Unit;
use super::gate::STATED;
use crate::units::Nanos;

/// The pair is this far above and below, as factors, and at most `WIDEST`.
const UP: f64 = 1.1;
const DOWN: f64 = 1.15;
const WIDEST: f64 = 2.0;

/// The lower mean is known once its error is this part of the distance, of logarithms; or after this many answers.
const KNOWN: f64 = 0.16;
const SAMPLE: f64 = 150.0;
/// Times vary: somewhat too many places cost little, and too few cost answers. This many errors of the mean are added.
const ERRORS: f64 = 1.2;

/// So near an end of the pair the right number may be beyond it.
const NEAR: f64 = 1.02;
/// Between two pairs each place has this many answers, or fewer if the last pair was wide or changed the number by more than
/// `SETTLED`. The next pair comes at once if the time between two answers grows by `CHANGE`, and by `SURE` errors.
const ROUNDS: f64 = 80.0;
const FEW_ROUNDS: f64 = 10.0;
const SETTLED: f64 = 0.05;
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

    /// Of any call.
    fn any(&self) -> f64 {
        self.sum / self.calls.max(1.0)
    }

    /// So far all counts half.
    fn fade(&mut self) {
        for sum in [&mut self.sum, &mut self.squares, &mut self.calls, &mut self.good] {
            *sum *= 0.5;
        }
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
    /// A round after its begin. Calls that were sent earlier say nothing of this phase.
    began: Nanos,
    times: Times,
    /// Calls that were sent while other places were free, and the most places that were taken then.
    few: f64,
    most: u64,
    up: f64,
    down: f64,
    /// The lower number of the pair, and its times.
    low: (f64, Times),
    /// The time between two answers at the end of the last stay. Infinite while the number is new.
    gap: f64,
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
            gap: f64::INFINITY,
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
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it saturates
        let level = self.number(phase) as u32;
        self.level = level.clamp(1, self.cap);
        // Calls of the first round do not meet the whole queue, or still meet the last one.
        let round = Duration::from_secs_f64(self.times.any());
        (self.phase, self.began) = (phase, now.saturating_add(round));
        (self.times, self.few, self.most) = (Times::default(), 0.0, 0);
    }

    /// The places of a phase.
    fn number(&self, phase: Phase) -> f64 {
        // A little down: calls that all take as long queue from the first place too many on.
        let stay = (self.n - 0.3).round();
        match phase {
            Phase::Stay => stay,
            Phase::Low => (self.n / self.down).round(),
            Phase::High => (self.n * self.up).floor().max(stay + 1.0),
        }
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
            Phase::Low => {
                let distance = (self.number(Phase::High) / level).ln();
                if self.times.error() <= KNOWN * distance || calls >= SAMPLE {
                    self.low = (level, self.times);
                    self.enter(Phase::High, now);
                }
            }
            // As many, since a queue makes times vary that are equal without it.
            Phase::High if calls < self.low.1.calls => {}
            Phase::High => self.compare(now),
        }
    }

    /// The callers do not need as many places as the higher number: it is what they need, if that is a pair.
    fn lower(&mut self, now: Nanos) {
        let most = u32::try_from(self.most).unwrap_or(u32::MAX);
        let is_pair = self.low.0 < f64::from(most) && most < self.level;
        self.enter(if is_pair { Phase::High } else { Phase::Stay }, now);
        (self.up, self.down) = (if is_pair { 1.0 } else { UP }, DOWN);
        self.level = if is_pair { most } else { self.level };
    }

    fn stay(&mut self, now: Nanos) {
        // A refusal says more than a pair.
        if self.level >= self.cap {
            return;
        }
        let (calls, gap) = (self.times.calls, self.times.mean() / f64::from(self.level));
        let rounds = if self.gap.is_finite() { ROUNDS } else { FEW_ROUNDS };
        if now.since(self.began).as_secs_f64() > rounds * self.times.any() {
            self.gap = gap;
            self.enter(Phase::Low, now);
        } else if calls >= SAMPLE / 3.0
            && gap > self.gap * CHANGE.max((SURE * self.times.error()).exp())
        {
            // The pool may be smaller.
            self.down = WIDEST;
            self.enter(Phase::Low, now);
        } else if calls >= SAMPLE {
            self.times.fade();
        }
    }

    /// Both numbers of a pair are measured.
    fn compare(&mut self, now: Nanos) {
        let (low, times) = self.low;
        let high = f64::from(self.level);
        let mut next = Phase::Stay;
        if high > low {
            let right = (high * times.mean() / self.times.mean()).clamp(low, high);
            let n = (right * (1.0 + ERRORS * times.error())).max(1.0);
            let was_wide = self.up > UP || self.down > DOWN;
            let is_settled = !was_wide && (n / self.n).ln().abs() < SETTLED;
            // Small changes are mostly chance.
            self.n = if is_settled { (n * self.n).sqrt() } else { n };
            if !is_settled {
                self.gap = f64::INFINITY;
            }
            let wider = |factor: f64| (factor * factor).min(WIDEST);
            (self.up, self.down) = if NEAR * n > high {
                // Unless the callers need no more.
                (wider(self.up).max(UP), DOWN)
            } else if right < NEAR * low {
                (UP, wider(self.down.max(DOWN)))
            } else {
                (UP, DOWN)
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
            (self.up, self.down, self.gap) = (UP, DOWN, f64::INFINITY);
        }
        if self.level > self.cap {
            self.enter(Phase::Stay, now);
        }
        true
    }
}
