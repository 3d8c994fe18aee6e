//! A line in tests, with the time as an argument of each call.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::{Caller, Line};
use crate::clock::{AfterUnlock, Clock, OnAlarm};
use crate::error::Error;
use crate::observe::{Observer, Reports};
use crate::policy::Policy;
use crate::units::Nanos;
use crate::wait_queue::{Ask, Bounds};

#[cfg(tollgate_loom)]
use loom::thread_local;

thread_local! {
    /// What the clock of a line shows this thread when it is read next, and from then on.
    #[allow(clippy::missing_const_for_thread_local)] // loom's has no such form
    static READINGS: Cell<[Nanos; 2]> = Cell::new([Nanos::ZERO; 2]);
}

/// The clock stands at `time` in the calls of this thread.
pub(super) fn stand_at(time: Nanos) {
    read_once(time, time);
}

/// It goes on after it has been read.
pub(super) fn read_once(time: Nanos, from_then_on: Nanos) {
    READINGS.with(|readings| readings.set([time, from_then_on]));
}

/// What the clock of a line shows.
fn read() -> Nanos {
    READINGS.with(|readings| {
        let [time, from_then_on] = readings.get();
        readings.set([from_then_on; 2]);
        time
    })
}

/// The alarm goes off.
pub(super) fn sound<P: Policy>(line: &Arc<Line<P>>) {
    let mut after = AfterUnlock::default();
    Arc::clone(line).on_alarm(&mut after);
    after.run();
}

/// As a limiter by a clock that shows `now`.
pub(super) fn line<P: Policy>(policy: P, now: Nanos) -> Arc<Line<P>> {
    stand_at(now);
    let (clock, observer) = (Clock::read_by(read), Observer::new(Reports::default()));
    Line::new(policy, None, (clock, observer), Bounds::NONE)
}

/// Asks at a time as all methods of a limiter do: at once, and if that decides nothing, by the queue.
pub(super) fn ask<P: Policy>(
    line: &Arc<Line<P>>,
    time: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Caller<P>, Error> {
    stand_at(time);
    ask_now(line, cost, max_wait)
}

/// The same when the clock shows what it shows.
pub(super) fn ask_now<P: Policy>(
    line: &Arc<Line<P>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Caller<P>, Error> {
    match line.decide(cost, max_wait) {
        Some(charge) => charge.map(Caller::Granted),
        None => line.enter(&Ask::new(cost, max_wait), None),
    }
}
