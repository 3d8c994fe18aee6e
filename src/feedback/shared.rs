//! The state that the clones of a [`Feedback`](super::Feedback) and its calls share: the limiter, the state of the server, and
//! the gate that follows from it.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::counts::Counts;
use super::dialect::Dialects;
use super::gate::Gate;
use super::headers::Headers;
use super::judge::Judge;
use super::state::{Action, State};
use super::text::When;
use super::window::Observation;
use crate::error::Error;
use crate::limiter::OwnedLimiter;
use crate::rate_limiter::RateLimiter;
use crate::retry::RetryBudget;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::units::Nanos;

pub(super) struct Shared<L: OwnedLimiter> {
    pub(super) limiter: L,
    pub(super) gate: RateLimiter<Gate>,
    pub(super) counts: Counts,
    pub(super) dialects: Arc<Dialects>,
    pub(super) judge: Option<Judge>,
    /// Whether the limiter serves this server alone, so that it may be paused. `None`: it does.
    pub(super) is_alone: Option<Arc<AtomicBool>>,
    pub(super) max_wait: Duration,
    pub(super) state: Mutex<State>,
    /// Whether there is a learned rate, whose pace depends on the number of waiters.
    pub(super) is_learning: AtomicBool,
    pub(super) retries: Option<Box<RetryBudget>>,
}

impl<L: OwnedLimiter> Shared<L> {
    /// Changes the state, and the gate with it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.gate();
        let result = change(&mut state);
        let mut gate = state.gate();
        if gate.closes(&before) {
            state.closed += 1;
            gate.closed = state.closed;
        }
        self.is_learning.store(state.is_learning(), Ordering::Relaxed);
        // In the order of the answers, so under the lock; the waiters are woken after it.
        let after_unlock = (gate != before).then(|| self.gate.set_policy_quietly(gate));
        drop(state);
        if let Some(after_unlock) = after_unlock {
            after_unlock.run();
        }
        result
    }

    /// The number of waiters at the gate, if there is a learned rate.
    pub(super) fn waiting(&self) -> usize {
        if self.is_learning.load(Ordering::Relaxed) { self.gate.queue_len() } else { 0 }
    }

    pub(super) fn read<H: Headers + ?Sized>(
        &self,
        status: u16,
        headers: &H,
        body: Option<&[u8]>,
    ) -> Answer {
        let mut answer = self.dialects.read(status, headers);
        if let Some(body) = body {
            self.dialects.read_body(body, &mut answer);
        }
        if let Some(judge) = &self.judge {
            judge.judge(headers, body, &mut answer);
        }
        answer
    }

    pub(super) fn observation(&self, sent: Nanos, answer: &Answer) -> Observation {
        let clock = self.limiter.clock();
        let now = clock.now();
        let ours = || clock.since_epoch().saturating_add(now.since(Nanos::ZERO));
        let calendar = match answer.date {
            Some(date) => self.state.lock().calendar.read(now, date),
            None if answer.names_time() => ours(),
            // Nothing is compared with it.
            None => Duration::ZERO,
        };
        let named = match answer.wait {
            Some(When::After(named)) => Some(named),
            _ => None,
        };
        let (is_dated, is_accepted) = (answer.date.is_some(), answer.is_accepted());
        Observation { sent, now, calendar, is_dated, is_accepted, named, max: self.max_wait }
    }

    /// Pauses or resumes the limiter after an answer.
    pub(super) async fn apply(&self, action: Action) {
        if self.is_alone.as_ref().is_some_and(|is_alone| !is_alone.load(Ordering::Acquire)) {
            return;
        }
        if let Some(pause) = action.pause {
            self.count(self.limiter.pause_for(pause).await);
        } else if action.resume {
            self.count(self.limiter.resume().await);
        }
    }

    fn count<T>(&self, result: Result<T, Error>) {
        if result.is_err() {
            self.state.lock().stats.failed += 1;
        }
    }
}
