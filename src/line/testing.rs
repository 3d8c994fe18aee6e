//! A line in tests, with the time as an argument of each call.

use std::time::Duration;

use super::{Admission, Line, Timer};
use crate::clock::{Alarm, Monotone};
use crate::error::Error;
use crate::policy::Policy;
use crate::units::Nanos;
use crate::wait_queue::Claim;

/// A clock that stands at a time and has no alarms.
pub(super) struct At(pub(super) Nanos);

impl Timer for At {
    fn now(&self) -> Nanos {
        self.0
    }

    fn alarm(&self) -> Alarm {
        Alarm::Never
    }
}

/// As a limiter by a clock that shows `now`.
pub(super) fn line<P: Policy>(policy: P, now: Nanos) -> Line<P> {
    let state = policy.start(now);
    Line::new(policy, state, Monotone::new(now))
}

/// Asks as all methods of a limiter do: at once, and if that decides nothing, by the queue.
pub(super) fn ask<P: Policy>(
    line: &Line<P>,
    timer: &impl Timer,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Result<Admission<P>, Error> {
    match line.decide(timer, cost, max_wait) {
        Some(charge) => charge.map(Admission::Granted),
        None => {
            let mut entered = None;
            line.enter(timer, cost, max_wait, Claim::InOrder, None, |it| entered = Some(it))?;
            Ok(entered.expect("told"))
        }
    }
}
