//! The state that the clones of a [`Feedback`](super::Feedback) and its calls share: the limiter, the state of the server, and
//! the gate that follows from it.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Unit};
use super::dialect::Dialects;
use super::gate::{Gate, Units};
use super::headers::Headers;
use super::judge::Judged;
use super::state::{Action, State};
use super::text::When;
use super::window::Observation;
use crate::limiter::OwnedLimiter;
use crate::policy::Cost;
use crate::rate_limiter::RateLimiter;
use crate::retry::RetryBudget;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::units::Nanos;

#[derive(Clone)]
pub(super) struct Options {
    /// What each number of a cost counts, if the program has said so.
    pub(super) units: Option<Vec<Option<Unit>>>,
    pub(super) dialects: Arc<Dialects>,
    pub(super) judge: Option<Arc<dyn Fn(&Judged<'_>, &mut Answer) + Send + Sync>>,
    /// Whether the limiter serves this server alone, so that it may be paused.
    pub(super) is_alone: Arc<AtomicBool>,
    pub(super) max_wait: Duration,
}

pub(super) struct Shared<L: OwnedLimiter> {
    pub(super) limiter: L,
    pub(super) gate: RateLimiter<Gate>,
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    pub(super) retries: Option<RetryBudget>,
}

impl Options {
    /// How much of each unit a cost is. If no number counts requests, a call is one.
    pub(super) fn units<C: Cost>(&self, cost: C) -> Units {
        const USUAL: &[Option<Unit>] = &[Some(Unit::Requests), Some(Unit::Tokens)];
        let (mut units, mut has_requests) = ([0; 4], false);
        let each = self.units.as_deref().unwrap_or(USUAL).iter().enumerate();
        for (index, unit) in each.take(C::NUMBERS) {
            let Some(unit) = unit else { continue };
            let sum = &mut units[unit.index()];
            *sum = u32::saturating_add(*sum, cost.number(index));
            has_requests |= *unit == Unit::Requests;
        }
        let [requests, tokens, input, output] = units;
        let requests = match (has_requests, &self.units) {
            (false, _) => 1,
            // The first number may count something else.
            (true, None) => requests.min(1),
            (true, Some(_)) => requests,
        };
        (requests, tokens, input, output)
    }
}

impl<L: OwnedLimiter> Shared<L> {
    /// Changes the state, and the gate with it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.gate();
        let result = change(&mut state);
        let mut gate = state.gate();
        if gate.is_some_and(|gate| gate.closes(&before.unwrap_or(Gate::OPEN))) {
            state.closed += 1;
            gate = state.gate();
        }
        if gate != before {
            let gate = gate.unwrap_or(Gate { closed: state.closed, ..Gate::OPEN });
            // In the order of the answers, so under the lock; the waiters are woken after it.
            let after_unlock = self.gate.set_policy_quietly(gate);
            drop(state);
            after_unlock.run();
        }
        result
    }

    pub(super) fn read(&self, status: u16, headers: &dyn Headers, body: Option<&[u8]>) -> Answer {
        let response = Judged { headers, body };
        let mut answer = self.options.dialects.read_response(status, &response);
        if let Some(judge) = &self.options.judge {
            judge(&response, &mut answer);
        }
        answer
    }

    /// Learns from the answer to a call that was sent then for these units. `waited`: for the learned rate.
    pub(super) fn learn(
        &self,
        sent: Nanos,
        units: [u32; 4],
        answer: &Answer,
        waited: bool,
    ) -> Action {
        let clock = self.limiter.clock();
        let now = clock.now();
        let ours = || clock.since_epoch().saturating_add(now.since(Nanos::ZERO));
        let mut state = self.state.lock();
        let calendar = match answer.date {
            Some(date) => state.calendar.read(now, date),
            None if answer.names_time() => ours(),
            // Nothing is compared with it.
            None => Duration::ZERO,
        };
        let is_learning = state.is_learning();
        // A look at the queue may wake callers.
        drop(state);
        let waiting = if is_learning { self.gate.queue_len() } else { 0 };
        let named = match answer.wait {
            Some(When::After(named)) => Some(named),
            _ => None,
        };
        let (is_dated, is_accepted) = (answer.date.is_some(), answer.is_accepted());
        let max = self.options.max_wait;
        let observed = Observation { sent, now, calendar, is_dated, is_accepted, named, max };
        self.change(|state| {
            state.answered(units);
            state.learn(&observed, units, answer, (waited, waiting))
        })
    }

    /// Pauses or resumes the limiter after an answer.
    pub(super) async fn apply(&self, action: Action) {
        if !self.options.is_alone.load(Ordering::Acquire) {
            return;
        }
        let changed = match action.pause {
            Some(pause) => self.limiter.pause_for(pause).await,
            None if action.resume => self.limiter.resume().await,
            None => Ok(()),
        };
        if changed.is_err() {
            self.state.lock().stats.failed += 1;
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::feedback::Feedback;
    use crate::{ManualClock, Unlimited};

    #[test]
    fn a_call_is_one_request_unless_a_number_counts_them() {
        let builder = || Feedback::builder(RateLimiter::with_clock(Unlimited, ManualClock::new()));
        let tokens = builder().units([Some(Unit::Tokens)]).options;
        assert_eq!([0, 3].map(|cost| tokens.units(cost)), [(1, 0, 0, 0), (1, 3, 0, 0)]);
        let requests = builder().units([Some(Unit::Requests)]).options;
        assert_eq!([0, 3].map(|cost| requests.units(cost)), [(0, 0, 0, 0), (3, 0, 0, 0)]);
        // Nothing was said: the first number may count something else.
        let unsaid = builder().options;
        assert_eq!([0, 3].map(|cost| unsaid.units(cost)), [(0, 0, 0, 0), (1, 0, 0, 0)]);
    }
}
