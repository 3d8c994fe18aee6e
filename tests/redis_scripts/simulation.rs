//! A policy in Rust, run like the scripts: charges are booked ahead, in the order of the calls.

use super::subject::{Answer, Call, Subject, Wait};
use crate::policy::{PolicyExt, RuleEvent};
use crate::redis::Scripted;
use crate::{Nanos, Policy};
use std::fmt::Debug;

pub(super) struct Simulation<P: Policy> {
    pub(super) policy: P,
    pub(super) state: P::State,
    /// No charge is booked before this time: the due time of the last booking, or the end of the last pause.
    pub(super) since: Nanos,
    pub(super) paused_until: Nanos,
    /// The number of replies that name the same limiting part as the policy, and of those that name another one,
    /// which happens if both parts are ready at about the same time.
    pub(super) parts: [u64; 2],
}

/// Whether the Rust policy drops old grants that will have expired at the due time of a charge booked ahead.
/// In Rust no caller is booked ahead. Redis keeps such grants until they expire, because a booked caller may
/// leave.
pub(super) fn forgets_ahead(policy: &impl Debug) -> bool {
    format!("{policy:?}").contains("SlidingWindow")
}

pub(super) fn nanos(micros: u64) -> Nanos {
    Nanos::new(micros * 1000)
}

pub(super) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1000)).expect("a span")
}

impl<P: Scripted> Simulation<P> {
    pub(super) fn new(subject: &Subject<P>, now: u64) -> Self {
        let policy = subject.policy.clone();
        let state = if subject.idle { policy.idle(nanos(now)) } else { policy.start(nanos(now)) };
        Self { policy, state, since: Nanos::ZERO, paused_until: Nanos::ZERO, parts: [0; 2] }
    }

    fn due(&self, now: Nanos, cost: P::Cost) -> (Wait, Nanos) {
        match self.policy.ready_at(&self.state, now, cost) {
            Err(_) => (Wait::Never, now),
            Ok(ready) => {
                let due = ready.earliest().max(now).max(self.since).max(self.paused_until);
                let wait = micros(due.since(now));
                (
                    if ready.wait(now).is_some() { Wait::Known(wait) } else { Wait::AtLeast(wait) },
                    due,
                )
            }
        }
    }

    /// Compares a reply with the policy, and follows the reply where two outcomes are valid. Returns the receipt
    /// if the call was booked.
    pub(super) fn follow(
        &mut self,
        now: u64,
        call: Call<P::Cost>,
        answer: Answer,
    ) -> Option<(Nanos, P::Receipt)> {
        let now = nanos(now);
        let (mut wait, mut due) = self.due(now, call.cost);
        let mut limited_by = self.policy.limited_by(&self.state, now, call.cost);
        let close = |wait: u64, limit: u64| wait.abs_diff(limit) <= 1;
        let expected = match wait {
            Wait::Never => vec![2],
            Wait::AtLeast(_) if call.patience == 0 => vec![2],
            Wait::AtLeast(wait) if wait > call.patience => vec![2],
            Wait::AtLeast(_) => vec![1],
            Wait::Known(wait) => {
                let mut expected = Vec::new();
                if wait <= call.limit || close(wait, call.limit) {
                    expected.push(0);
                }
                if (wait > call.limit && wait <= call.patience) || close(wait, call.patience) {
                    expected.push(1);
                }
                if wait > call.patience || close(wait, call.patience) {
                    expected.push(2);
                }
                expected
            }
        };
        let joins = RuleEvent::Joins { queued: Default::default(), cost: call.cost };
        let room = self.policy.event(&mut self.state, now, joins);
        let room = micros(room.since(now));
        if answer.outcome == 3 {
            assert!(call.fresh && room > 0, "{call:?} {answer:?}: room in {room}");
            let Wait::Known(wait) = answer.wait else { panic!("{answer:?}") };
            assert!(close(wait, room), "{call:?} {answer:?}: room in {room}");
            return None;
        }
        assert!(
            expected.contains(&answer.outcome),
            "{call:?} {answer:?}, but {wait:?} due {due:?} {expected:?}, {:?} at {now:?}",
            self.state,
        );
        // In a pause an excess of less than a microsecond leaks only at its end, so the room may be that far
        // away.
        let fits = room <= 1 || close(room, micros(self.paused_until.since(now)));
        assert!(answer.outcome == 2 || !call.fresh || fits || wait == Wait::Known(0));
        // A waiter that is late has not been refused by the rule.
        let is_refused = answer.outcome == 2 && call.fresh;
        if is_refused && self.policy.refused(&mut self.state, now, call.cost) {
            (wait, due) = self.due(now, call.cost);
            limited_by = self.policy.limited_by(&self.state, now, call.cost);
        }
        let alike = match (wait, answer.wait) {
            (Wait::Known(ours), Wait::Known(theirs))
            | (Wait::AtLeast(ours), Wait::AtLeast(theirs)) => {
                close(ours, theirs) || ours.min(theirs) >= (1 << 49) - 1
            }
            (ours, theirs) => ours == theirs,
        };
        assert!(
            alike,
            "{call:?} {answer:?}, but {wait:?}, {:?} at {now:?}, since {:?}",
            self.state, self.since
        );
        // Compares the limiting part, unless only the order of the queue limits.
        if due > self.since && answer.part != 0 && matches!(answer.wait, Wait::Known(2..)) {
            let ours = limited_by.map_or(0, |part| part.index() as u64 + 1);
            self.parts[usize::from(ours != answer.part)] += 1;
        }
        (answer.outcome == 0).then(|| {
            self.since = due;
            (due, self.policy.charge(&mut self.state, due, call.cost))
        })
    }
}
