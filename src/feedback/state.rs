//! The state of a [`Feedback`](super::Feedback): the quotas that answers stated, and the rate that refusals showed.
//!
//! [`State::learn`] is the one function that an answer changes it by. It records each quota in its [`Window`], judges a
//! refusal, and passes what no quota explains to the [`Learner`]. [`State::gate`] makes the bound for the next calls.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::time::Duration;

use super::answer::{Answer, Meter, Unit, Verdict};
use super::gate::Gate;
use super::learner::{Learner, Pace, Recent, Search};
use super::places::{Places, Sent};
use super::server_state::ServerState;
use super::text::When;
use super::window::{Calendar, Observation, Order, ROUNDED, Window};
use crate::units::{Nanos, Rate};

/// Counters of a [`Feedback`](super::Feedback).
///
/// ```
/// use tollgate::feedback::Feedback;
/// use tollgate::{InFlight, ManualClock, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::auto_advance());
/// let feedback = Feedback::new(limiter);
/// let headers = [("x-ratelimit-remaining", "many"), ("retry-after", "3")];
/// feedback.acquire(1).await?.observe(429u16, &headers).await;
/// let stats = feedback.stats();
/// assert_eq!((stats.answers, stats.refused, stats.pauses, stats.malformed), (1, 1, 1, 1));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FeedbackStats {
    /// Observed answers.
    pub answers: u64,
    /// Answers that refused the call.
    pub refused: u64,
    /// Quotas in answers that had been overtaken by newer answers.
    pub stale: u64,
    /// Fields that could not be parsed.
    pub malformed: u64,
    /// How often all calls were paused after a refusal.
    pub pauses: u64,
    /// How often the limiter could not be paused or resumed, because its store did not answer.
    pub failed: u64,
}

/// What to do with the limiter after an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Action {
    pub(super) pause: Option<Duration>,
    pub(super) resume: bool,
}

/// The pause after a first refusal without a time, if nothing remained.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The least pause. It doubles with each refusal in a row.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// A server that refuses again within this time after a pause gets calls more slowly.
const AGAIN: Duration = Duration::from_secs(60);

/// The state of a server without calls is forgotten after this time.
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) struct State {
    windows: [Window; 4],
    pub(super) calendar: Calendar,
    search: Option<Box<Search>>,
    /// `None` until the first refusal that no quota explains, unless a first rate is given.
    learner: Option<Box<Learner>>,
    /// Places in flight, if they are learned.
    places: Option<Places>,
    /// Accepted calls of the last time.
    recent: Recent,
    /// When the last refusal arrived, or zero. Answers to calls that were sent before it say nothing of the time after it.
    refused_at: Nanos,
    /// Refusals in a row.
    refusals: u32,
    pub(super) paused_until: Nanos,
    /// How often the server named zero right after a time that it had named was over.
    cut_times: u32,
    /// Until when the limiter is paused because nothing remains.
    exhausted_until: Nanos,
    /// How often the gate has closed. A call that had passed it and was not sent yet goes back to it.
    pub(super) closed: u64,
    /// The units of calls that were sent and not answered.
    pub(super) in_flight: [u64; 4],
    pub(super) stats: FeedbackStats,
}

impl State {
    pub(super) fn new(search: Option<Box<Search>>, places: Option<u32>, now: Nanos) -> Self {
        let recent = Recent::new(now);
        Self {
            windows: Default::default(),
            calendar: Calendar::default(),
            learner: Self::first_learner(search.as_deref(), now, &recent),
            search,
            places: places.map(|start| Places::new(start, now)),
            recent,
            refused_at: Nanos::ZERO,
            refusals: 0,
            paused_until: Nanos::ZERO,
            cut_times: 0,
            exhausted_until: Nanos::ZERO,
            closed: 0,
            in_flight: [0; 4],
            stats: FeedbackStats::default(),
        }
    }

    fn first_learner(search: Option<&Search>, now: Nanos, recent: &Recent) -> Option<Box<Learner>> {
        let given = search.filter(|search| search.start.min(search.ceiling).is_finite())?;
        Some(Box::new(Learner::new(given, now, recent)))
    }

    /// The learner, made if there is none.
    fn learner(&mut self, now: Nanos) -> (&mut Learner, &Recent) {
        let Self { learner, recent, search, .. } = self;
        let first = || {
            let search = search.as_deref().copied().unwrap_or_default();
            Box::new(Learner::new(&search, now, recent))
        };
        (learner.get_or_insert_with(first), recent)
    }

    /// The bound for the next calls.
    pub(super) fn gate(&self) -> Gate {
        let is_known = self.windows.iter().any(Window::is_known);
        let (is_new, closed) = (self.stats.answers == 0, self.closed);
        let places = self.places.as_ref().map_or(u64::MAX, Places::level);
        if !is_known && self.learner.is_none() && self.paused_until == Nanos::ZERO {
            return Gate { is_new, closed, places, ..Gate::OPEN };
        }
        let caps = self.windows.each_ref().map(Window::cap);
        let pace = self.learner.as_ref().map_or(Pace::NONE, |learner| learner.pace());
        Gate { caps, shut_until: self.paused_until, pace, closed, is_new, places }
    }

    /// The learned pace, if there is one.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.learner.as_ref()?.rate()
    }

    pub(super) fn server_state(&self, now: Nanos) -> ServerState {
        let learner = self.learner.as_ref();
        let windows = Unit::ALL.into_iter().zip(&self.windows);
        ServerState {
            pause: Some(self.paused_until.since(now)).filter(|pause| !pause.is_zero()),
            rate: self.rate(),
            lowered: learner.and_then(|learner| learner.lowered()).map(|at| now.since(at)),
            is_down: learner.is_some_and(|learner| learner.is_down()),
            meters: windows.filter_map(|(unit, window)| Some((unit, window.meter(now)?))).collect(),
            places: self.places.as_ref().map(Places::found),
            under_way: self.in_flight[Unit::Requests.index()],
        }
    }

    /// Whether there is a learned rate.
    pub(super) fn is_learning(&self) -> bool {
        self.learner.is_some()
    }

    pub(super) fn remaining(&self, unit: Unit, now: Nanos) -> Option<u64> {
        let window = &self.windows[unit.index()];
        window.remaining(now).filter(|_| !window.has_ended(now))
    }

    /// Whether nothing holds calls back now or, without further answers, later.
    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        let is_learned = self.learner.as_ref().and_then(|learner| learner.lowered());
        is_learned.is_none_or(|at| at.saturating_add(LONGEST) <= now)
            && self.paused_until <= now
            && self.in_flight.iter().all(|&in_flight| in_flight == 0)
            && self.windows.iter().all(|window| window.reset().is_none_or(|reset| reset <= now))
    }

    /// Counts a call that was sent. Returns the requests that were in flight before.
    pub(super) fn send(&mut self, units: [u32; 4]) -> u64 {
        let ahead = self.in_flight[Unit::Requests.index()];
        for (in_flight, n) in self.in_flight.iter_mut().zip(units) {
            *in_flight += u64::from(n);
        }
        ahead
    }

    pub(super) fn answered(&mut self, units: [u32; 4]) {
        for (in_flight, n) in self.in_flight.iter_mut().zip(units) {
            *in_flight = in_flight.saturating_sub(n.into());
        }
    }

    /// Counts a call in flight whose answer will not arrive.
    pub(super) fn lost(&mut self, units: [u32; 4], sent: Sent, now: Nanos) {
        self.answered(units);
        self.over(units, sent, now, false);
        self.count_lost(units, now);
    }

    fn over(&mut self, units: [u32; 4], sent: Sent, now: Nanos, is_good: bool) {
        if let Some(places) = &mut self.places {
            places.over(now, sent, units[Unit::Requests.index()], is_good);
        }
    }

    /// Counts the units of a call that the server may have counted.
    pub(super) fn count_lost(&mut self, units: [u32; 4], now: Nanos) {
        for (window, n) in self.windows.iter_mut().zip(units) {
            window.count_lost(now, n.into());
        }
    }

    /// Forgets everything that bounds calls.
    pub(super) fn resume(&mut self, now: Nanos) {
        self.windows.iter_mut().for_each(Window::open);
        self.recent = Recent::new(now);
        self.learner = Self::first_learner(self.search.as_deref(), now, &self.recent);
        self.places = self.places.as_ref().map(|places| Places::new(places.start, now));
        self.refusals = 0;
        (self.paused_until, self.exhausted_until) = (Nanos::ZERO, Nanos::ZERO);
    }

    /// Learns from the answer to a call, which is no longer counted as sent.
    pub(super) fn learn(
        &mut self,
        observed: &Observation,
        units: [u32; 4],
        answer: &Answer,
        (waited, waiting): (bool, usize),
    ) -> Action {
        self.stats.answers += 1;
        self.stats.malformed += u64::from(answer.malformed);
        let now = observed.now;
        let mut action = Action::default();
        let mut any = false;
        let short = if answer.is_refused() { self.short(units, answer) } else { Vec::new() };
        let was_known = answer.is_refused() && self.record_refusal(observed, answer, &short);
        // Sent after the last refusal had arrived: only such a call ends its pause.
        let is_news = observed.sent.at >= self.refused_at;
        for unit in Unit::ALL {
            let Some(meter) = answer.meter(unit) else { continue };
            if meter.remaining.is_none() {
                continue;
            }
            if !is_news && now < self.paused_until {
                self.stats.stale += 1;
                continue;
            }
            let index = unit.index();
            let (cost, in_flight) = (u64::from(units[index]), self.in_flight[index]);
            let order = self.windows[index].record(observed, meter, cost, in_flight);
            self.stats.stale += u64::from(order == Order::Stale);
            any |= order != Order::Stale;
        }
        let is_good = answer.is_accepted() && answer.status < 500 && answer.status != 408;
        if answer.verdict != Verdict::Refused {
            self.over(units, observed.sent, now, is_good);
        }
        if answer.verdict == Verdict::Accepted {
            if is_news {
                self.refusals = 0;
            }
            // 408: the call waited too long in a queue of the server.
            if is_good {
                self.recent.count(now);
                if let Some(learner) = &mut self.learner {
                    learner.good(now, observed.sent.at, waited);
                }
            } else {
                self.fail(observed);
            }
            for unit in Unit::ALL {
                let window = &mut self.windows[unit.index()];
                if window.has_ended(observed.sent.at) && answer.meter(unit).is_none() {
                    window.open();
                }
            }
        } else {
            action.pause = self.refuse(observed, answer, &short, is_news, was_known);
        }
        if let Some(learner) = &mut self.learner {
            learner.set_pace(waiting, observed.max);
        }
        if any && action.pause.is_none() && now >= self.paused_until {
            let exhausted = self.windows.iter().filter_map(|window| window.exhausted_until(now));
            let until = exhausted.max();
            action.pause = until.map(|until| until.since(now));
            // If the pause is over, the limiter may be paused by someone else.
            action.resume = until.is_none() && now < self.exhausted_until;
            self.exhausted_until = until.unwrap_or(Nanos::ZERO);
        }
        action
    }

    /// The quotas that explain a refusal, with the cost of the call in each.
    fn short(&self, units: [u32; 4], answer: &Answer) -> Vec<(Unit, Meter, u64)> {
        let all = Unit::ALL.into_iter();
        let each = all
            .filter_map(|unit| Some((unit, answer.meter(unit)?, u64::from(units[unit.index()]))));
        each.filter(|&(unit, meter, cost)| self.windows[unit.index()].was_short(meter, cost))
            .collect()
    }

    /// Records a refusal in the windows. Returns whether the call should have fitted by what was known when it was sent.
    fn record_refusal(
        &mut self,
        observed: &Observation,
        answer: &Answer,
        short: &[(Unit, Meter, u64)],
    ) -> bool {
        // An outage contradicts no quota.
        if answer.verdict != Verdict::Refused {
            return false;
        }
        let named = answer.wait.map(|wait| observed.wait(wait));
        let early = self.windows.each_ref().map(|window| window.is_early(observed.sent.at));
        let meant = short.iter().map(|&(unit, ..)| unit.index());
        if !short.is_empty() && { meant }.all(|unit| early[unit]) {
            short.iter().for_each(|&(unit, ..)| self.windows[unit.index()].was_early());
            return false;
        }
        let was_known = self.windows.iter().any(|window| window.was_known(observed.sent.at));
        for (window, unit) in self.windows.iter_mut().zip(Unit::ALL) {
            let is_short = short.iter().find(|(other, ..)| *other == unit);
            let is_meant = short.is_empty() || is_short.is_some();
            if window.was_known(observed.sent.at) && is_meant {
                window.distrust(observed.sent.at >= self.refused_at);
            }
            if let Some(&(_, meter, cost)) = is_short {
                window.record_refusal(observed, meter, cost, named);
            }
        }
        was_known
    }

    /// Records a failure: the server gave no good answer.
    fn fail(&mut self, observed: &Observation) {
        let (learner, recent) = self.learner(observed.now);
        learner.failed(observed.now, observed.sent.at, recent);
    }

    /// The time that a refusal names. Some servers cut it to whole seconds and then name zero when it is over. After that happened
    /// twice, a second is added.
    fn heard_wait(&mut self, observed: &Observation, wait: When) -> Duration {
        let named = observed.wait(wait);
        let (over, sent) = (self.paused_until, observed.sent.at);
        if named.is_zero() && over > Nanos::ZERO && over <= sent && sent.since(over) < ROUNDED {
            self.cut_times += 1;
        }
        let is_cut = self.cut_times > 1 && named.subsec_nanos() == 0;
        if is_cut { named.saturating_add(ROUNDED) } else { named }
    }

    /// Records a refusal. Returns how long to pause all calls, unless they are paused for longer already.
    ///
    /// A named time is the server's word on the next call and goes before the reset. If the next call is refused again, the
    /// time doubles, up to the reset. A refusal that neither names a time nor says that nothing remains goes to the learner.
    fn refuse(
        &mut self,
        observed: &Observation,
        answer: &Answer,
        short: &[(Unit, Meter, u64)],
        is_news: bool,
        was_known: bool,
    ) -> Option<Duration> {
        self.stats.refused += 1;
        let (now, sent) = (observed.now, observed.sent.at);
        // Calls that were in flight together are refused together.
        let again = self.refusals.saturating_sub(u32::from(!is_news));
        self.refusals += u32::from(is_news);
        let doubled = |wait: Duration| wait.saturating_mul(1 << again.min(16));
        let named = answer.wait.map(|wait| self.heard_wait(observed, wait));
        let backs = short.iter().filter_map(|&(unit, meter, cost)| {
            self.windows[unit.index()].back(observed, meter, cost)
        });
        let resets = short.iter().filter_map(|(_, meter, _)| Some(observed.wait(meter.reset?)));
        let wait = named.or(backs.max()).map(|wait| {
            let most = resets.max().unwrap_or_default();
            wait.max(doubled(LEAST_WAIT).min(FIRST_WAIT)).max(doubled(wait).min(most))
        });
        let least = answer.least_wait.or((!short.is_empty()).then_some(FIRST_WAIT));
        let wait = wait.or(least.map(doubled)).map(|wait| wait.min(observed.max));
        let Some(wait) = wait else {
            if answer.verdict == Verdict::Refused {
                self.refused_at = now;
                let in_flight = self.in_flight[Unit::Requests.index()];
                let others = observed.sent.ahead.max(in_flight);
                if self.places.as_mut().is_none_or(|places| !places.refused(now, others)) {
                    self.learner(now).0.refused(now, sent, None);
                }
            } else {
                self.fail(observed);
            }
            return None;
        };
        let until = now.saturating_add(wait);
        // In a sliding window it may be jitter.
        let is_shared = short.iter().any(|&(unit, ..)| !self.windows[unit.index()].is_sliding());
        if is_news && was_known && !short.is_empty() {
            if is_shared {
                let (learner, recent) = self.learner(now);
                let of_requests = short.iter().any(|&(unit, ..)| unit == Unit::Requests);
                learner.used_up((now, sent, until), of_requests, recent);
            }
        } else if is_news && short.is_empty() {
            let obeyed = self.paused_until.saturating_add(AGAIN.max(wait));
            let is_again = self.paused_until > Nanos::ZERO && now <= obeyed;
            let (learner, recent) = self.learner(now);
            // In an outage there are no good calls in between.
            if is_again && (answer.verdict == Verdict::Refused || again == 0) {
                learner.refused(now, sent, Some(wait));
            } else {
                learner.last_answer(now, until, recent);
            }
        }
        self.refused_at = now;
        if until <= self.paused_until {
            return None;
        }
        self.paused_until = until;
        self.stats.pauses += 1;
        for &(unit, meter, cost) in short {
            self.windows[unit.index()].close_until(observed, meter, cost, until);
        }
        Some(until.since(now))
    }
}
