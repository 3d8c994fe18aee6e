//! A limiter that learns, and what its clones and its calls share: the limiter, the state of the server, and the gate that
//! follows from it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Response;

use super::answer::{Answer, Unit};
use super::dialect::Dialects;
use super::gate::{Gate, Units, array};
use super::learner::Search;
use super::places::Sent;
use super::server_state::ServerState;
use super::state::State;
use super::text::When;
use super::window::Observation;
use crate::error::Error;
use crate::limiter::{Hearing, Limiter};
use crate::part::Part;
use crate::policy::Cost;
use crate::rate_limiter::{Grant, RateLimiter};
use crate::sync::Mutex;
use crate::units::{Nanos, Rate};

/// A limiter that learns from each response: see the [module](super).
///
/// A caller first waits at the gate, which follows the server's answers and the learned rate, and then in the queue of the
/// limiter. Both are in the order of arrival. Callers of the limiter itself are held back by its pauses only. A timeout
/// fails at once if the gate rules it out, or later the limiter's queue. The `retry_after` of a caller at the gate is the
/// gate's time: the limiter may need more. A caller that passes the gate joins the limiter's queue when it is polled.
///
/// It is a handle: clones share what was learned. Calls for which a server keeps separate quotas (GitHub's search,
/// Discord's routes) need one for each.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::Feedback;
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(100.0), 100);
/// let feedback = Feedback::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
/// let mut call = feedback.acquire(1).await?;
/// let headers = [("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "20")];
/// assert!(call.observe(200u16, &headers).await.is_accepted());
/// // The server has room for two more calls in the next 20 seconds.
/// let two = (feedback.acquire(1).await?, feedback.acquire(1).await?);
/// let clock = feedback.limiter().clock().clone();
/// drop(two); // without an answer: the server may have counted them
/// feedback.acquire(1).await?;
/// assert_eq!(clock.now().get(), 20_000_000_000);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Feedback<L: Limiter + 'static> {
    pub(super) shared: Arc<Shared<L>>,
    /// Where an answer to its calls belongs, if there are several servers.
    pub(super) home: Option<Arc<Home<L>>>,
}

/// The bucket that an answer names.
type Home<L> = dyn Fn(&Answer) -> Option<Feedback<L>> + Send + Sync;

impl<L: Limiter + 'static> Feedback<L> {
    crate::limiter::methods_of_limiter!();

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &L {
        &self.shared.limiter
    }

    /// The rate that was learned: how many calls a second go to the server now, while as many wait as do; in a row of refusals
    /// or a pause fewer go. `None` while nothing but the limiter and what the server said holds calls back.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.shared.state.lock().learner.rate()
    }

    /// What is known of the server now: a pause, the learned rate, what remains, and counts of answers.
    #[must_use]
    pub fn server_state(&self) -> ServerState {
        let now = self.shared.limiter.clock().now();
        self.shared.state.lock().server_state(now)
    }

    /// Whether it knows nothing that holds calls back, and no other handle is in use.
    pub(super) fn is_idle(&self) -> bool {
        let now = self.shared.limiter.clock().now();
        Arc::strong_count(&self.shared) == 1 && self.shared.state.lock().is_idle(now)
    }

    /// Forgets what the server said and what was learned, and ends a pause of the limiter: for a caller that knows
    /// better. The search for the rate begins anew.
    ///
    /// # Errors
    ///
    /// Those of the limiter's own `resume`.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::auto_advance();
    /// let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    /// feedback.acquire(1).await?.observe(503u16, &[("retry-after", "600")]).await;
    /// feedback.resume().await?;
    /// feedback.acquire(1).await?;
    /// assert_eq!(clock.elapsed().as_secs(), 0);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn resume(&self) -> Result<(), Error> {
        let now = self.shared.limiter.clock().now();
        self.shared.change(|state| state.resume(now));
        self.shared.limiter.resume().await
    }
}

impl<L: Limiter + 'static> fmt::Debug for Feedback<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback")
            .field("limiter", &self.shared.limiter)
            .field("server", &self.server_state())
            .finish_non_exhaustive()
    }
}

type Judge = dyn Fn(&Response<&[u8]>, &mut Answer) + Send + Sync;

#[derive(Clone)]
pub(super) struct Options {
    /// What each number of a cost counts, if the program has said so.
    pub(super) units: Option<Vec<Option<Unit>>>,
    pub(super) dialects: Dialects,
    pub(super) judge: Option<Arc<Judge>>,
    /// Whether the limiter serves this server alone, so that it may be paused.
    pub(super) is_alone: bool,
    pub(super) max_wait: Duration,
    pub(super) search: Search,
    /// How many calls to send at once at first, if that is learned.
    pub(super) places: Option<u32>,
}

pub(super) struct Shared<L: Limiter + 'static> {
    pub(super) limiter: L,
    pub(super) gate: RateLimiter<Gate>,
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
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

impl<L: Limiter + 'static> Shared<L> {
    /// Changes the state, and the gate with it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        if state.close_or_open() {
            // In the order of the answers, so under the lock; the waiters are woken after it.
            let after_unlock = self.gate.set_policy_quietly(state.gate);
            drop(state);
            after_unlock.run();
        }
        result
    }

    /// Counts a call that is sent now, unless the gate has closed since it passed.
    pub(super) fn send(&self, place: &Grant<'_, Gate>, is_late: bool) -> Option<Sent> {
        let mut state = self.state.lock();
        // A call for nothing was not charged.
        let passed = place.receipt().filter(|_| is_late);
        passed.is_none_or(|charged| *charged == Some(state.gate.closed)).then(|| {
            let units = array(place.cost());
            let (at, ahead) = (self.limiter.clock().now(), state.send(units));
            Sent { at, units, ahead, waited_for: place.limited_by().map(Part::index) }
        })
    }

    /// Learns from the answer to a call.
    pub(super) fn learn(&self, sent: Sent, answer: &Answer) -> Option<Duration> {
        // A look at the queue may wake callers, so not under the lock.
        let is_learning = self.state.lock().learner.is_on();
        let waiting = if is_learning { self.gate.queue_len() } else { 0 };
        let clock = self.limiter.clock();
        let now = clock.now();
        let named = match answer.wait {
            Some(When::After(named)) => Some(named),
            _ => None,
        };
        self.change(|state| {
            let calendar = match answer.date {
                Some(date) => state.calendar.read(now, date),
                // Nothing is compared with it.
                None if answer.wait.is_none() && answer.meters.is_empty() => Duration::ZERO,
                None => clock.since_epoch().saturating_add(now.since(Nanos::ZERO)),
            };
            let (is_dated, is_accepted) = (answer.date.is_some(), answer.is_accepted());
            let max = self.options.max_wait;
            let observed = Observation { sent, now, calendar, is_dated, is_accepted, named, max };
            state.learn(&observed, answer, waiting)
        })
    }

    /// Pauses the limiter after a refusal.
    pub(super) fn pause(self: &Arc<Self>, pause: Option<Duration>) -> Hearing {
        let pause = pause.filter(|_| self.options.is_alone)?;
        let shared = Arc::clone(self);
        Some(Box::pin(async move {
            if shared.limiter.pause_for(pause).await.is_err() {
                shared.state.lock().shown.failed += 1;
            }
        }))
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
