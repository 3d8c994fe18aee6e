//! Replays scenarios on `tollgate` and measures how far its waits are from Guava's.
//!
//! Guava cuts every cost down to whole microseconds and `tollgate` does not, so the two drift
//! apart, by a known bound: [`Tolerance`]. The clocks drift by as much, since each moves by its own
//! waits; that is why waits are compared, not times.

use std::{fmt, time::Duration};

use super::{
    subject::{Make, Subject, micros},
    trace::{Kind, Limiter, Op, Scenario, State},
};

/// The results of a replay.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) scenarios: usize,
    pub(crate) steps: usize,
    /// Waits compared: of each grant the time waited, of each refusal the time it would have taken.
    pub(crate) waits: usize,
    /// Timeouts so near to Guava's wait that the decision may differ: moved to Guava's side.
    pub(crate) timeouts_moved: usize,
    /// Those of them where the decision would have differed without the move. Many are ties in
    /// exact arithmetic, so rounding a grant by a nanosecond more or less changes this number.
    pub(crate) decisions_changed: usize,
    /// The largest deviation of a wait as a share of its tolerance, and where it was.
    pub(crate) largest_share: f64,
    pub(crate) largest_at: String,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scenarios, {} steps, {} waits; {} timeouts moved, {} of them changed the \
             decision; largest deviation {:.4} of the tolerance ({})",
            self.scenarios,
            self.steps,
            self.waits,
            self.timeouts_moved,
            self.decisions_changed,
            self.largest_share,
            self.largest_at
        )
    }
}

pub(crate) fn replay(scenarios: &[Scenario], make: Make) -> Tally {
    let mut tally = Tally::default();
    for scenario in scenarios {
        let mut run = Run {
            subject: Subject::new(scenario.limiter, make),
            tolerance: Tolerance::new(scenario.limiter),
            tally: &mut tally,
        };
        let mut before = scenario.initial;
        for (index, step) in scenario.steps.iter().enumerate() {
            let place = format!("scenario {}, step {index}", scenario.id);
            run.step(step.op, before, &place);
            before = step.after;
        }
        tally.scenarios += 1;
        tally.steps += scenario.steps.len();
    }
    tally
}

/// One scenario on its way.
struct Run<'a> {
    subject: Subject,
    tolerance: Tolerance,
    tally: &'a mut Tally,
}

impl Run<'_> {
    /// `before` is Guava's state before the step.
    fn step(&mut self, op: Op, before: State, place: &str) {
        // Below zero: the time that Guava has been idle.
        let debt_micros = before.next_free_micros - before.now_micros;
        let guava_wait = micros(debt_micros);
        match op {
            Op::Advance { micros: time } => self.subject.advance(micros(time)),
            Op::SetRate { permits_per_second, .. } => self.subject.set_rate(permits_per_second),
            Op::Acquire { permits, .. } => {
                let answer = self.subject.acquire(permits);
                let wait = answer.unwrap_or_else(|error| panic!("{place}: {error}"));
                self.compare(wait, guava_wait, place);
                self.tolerance.charges += 1;
            }
            Op::TryAcquire { permits, timeout_micros, granted, .. } => {
                let timeout = micros(timeout_micros);
                let limit = self.tolerance.of(guava_wait);
                let apart = micros_apart(debt_micros, timeout_micros.max(0));
                let near = apart <= limit && !limit.is_zero();
                let moved = match (near, granted) {
                    (false, _) => timeout,
                    (true, true) => timeout.saturating_add(limit),
                    (true, false) => timeout.saturating_sub(limit),
                };
                let answer = self.subject.try_acquire(permits, moved);
                assert_eq!(answer.is_ok(), granted, "{place}: {answer:?}");
                let wait = answer.unwrap_or_else(|refused| {
                    refused.retry_after().unwrap_or_else(|| panic!("{place}: {refused}"))
                });
                self.tally.timeouts_moved += usize::from(near);
                self.tally.decisions_changed += usize::from((wait <= timeout) != granted);
                self.compare(wait, guava_wait, place);
                self.tolerance.charges += u32::from(granted);
            }
        }
    }

    fn compare(&mut self, wait: Duration, guava_wait: Duration, place: &str) {
        let limit = self.tolerance.of(guava_wait);
        let deviation = wait.abs_diff(guava_wait);
        assert!(
            deviation <= limit,
            "{place}: waits {wait:?}, Guava {guava_wait:?}: {deviation:?} apart, allowed {limit:?}"
        );
        self.tally.waits += 1;
        // 0 / 0 is NaN, which is larger than nothing.
        let share = deviation.as_secs_f64() / limit.as_secs_f64();
        if share > self.tally.largest_share {
            self.tally.largest_share = share;
            self.tally.largest_at = format!("{place}: {deviation:?} of {limit:?}");
        }
    }
}

/// The deviation that Guava's truncation explains: an amount per charge so far, and 2^-45 of the
/// wait for its doubles.
///
/// A bursty charge is one cut. A warming-up charge is three, and a ticket that is early by one
/// microsecond makes the store colder by as much, which costs up to the cold factor times that.
struct Tolerance {
    per_charge: Duration,
    charges: u32,
}

impl Tolerance {
    fn new(limiter: Limiter) -> Self {
        let micros = match limiter.kind {
            Kind::Bursty { .. } => 1.0,
            Kind::WarmingUp { cold_factor, .. } => 3.0 * f64::max(1.0, cold_factor / 3.0),
        };
        Self { per_charge: Duration::from_secs_f64(micros / 1e6), charges: 0 }
    }

    fn of(&self, wait: Duration) -> Duration {
        let share = u64::try_from(wait.as_nanos() >> 45).expect("2^-45 of a wait is short");
        self.per_charge * self.charges + Duration::from_nanos(share)
    }
}

/// The time between two points that may be nearly 2^64 microseconds apart.
fn micros_apart(a: i64, b: i64) -> Duration {
    Duration::from_micros(a.abs_diff(b))
}
