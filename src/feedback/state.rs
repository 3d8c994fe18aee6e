//! The state of a [`Feedback`](super::Feedback): the quotas that answers stated, and the rate that refusals showed.
//!
//! [`State::learn`] is the one function that an answer changes it by. It records each quota in its [`Window`], judges a
//! refusal, and passes what no quota explains to the [`Learner`]. [`State::gate`] makes the bound for the next calls.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::time::Duration;

use super::answer::{Answer, Meter, Unit, Verdict};
use super::gate::{Gate, LEARNED};
use super::learner::{Learner, Search};
use super::places::{Places, Sent};
use super::server_state::ServerState;
use super::text::When;
use super::window::{Calendar, Observation, Order, ROUNDED, Window};
use crate::units::Nanos;

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
    pub(super) learner: Learner,
    /// Places in flight, if they are learned.
    places: Option<Places>,
    /// The bound that is in force.
    pub(super) gate: Gate,
    /// Nothing held calls back after the last change.
    is_open: bool,
    /// When the last refusal arrived, or zero. Answers to calls that were sent before it say nothing of the time after it.
    refused_at: Nanos,
    /// Refusals in a row.
    refusals: u32,
    paused_until: Nanos,
    /// How often the server named zero right after a time that it had named was over.
    cut_times: u32,
    /// The units of calls that were sent and not answered.
    in_flight: [u64; 4],
    /// Its counters; the rest is filled in where it is shown.
    pub(super) shown: ServerState,
}

/// A quota that explains a refusal: the index of its unit, what the answer says of it, and the cost of the call in it.
type Short = (usize, Meter, u64);

impl State {
    pub(super) fn new(search: Search, places: Option<u32>, now: Nanos) -> Self {
        let mut state = Self {
            windows: Default::default(),
            calendar: Calendar::default(),
            learner: Learner::new(search, now),
            places: places.map(|start| Places::new(start, now)),
            gate: Gate::OPEN,
            is_open: false,
            refused_at: Nanos::ZERO,
            refusals: 0,
            paused_until: Nanos::ZERO,
            cut_times: 0,
            in_flight: [0; 4],
            shown: ServerState::default(),
        };
        state.close_or_open();
        state
    }

    /// Makes the bound for the next calls. Returns whether it has changed.
    pub(super) fn close_or_open(&mut self) -> bool {
        // Most servers say nothing, and refuse nothing.
        let is_open = self.shown.answers > 0
            && self.paused_until == Nanos::ZERO
            && self.places.is_none()
            && !self.learner.is_on()
            && self.windows.iter().all(|window| window.reset().is_none());
        if std::mem::replace(&mut self.is_open, is_open) && is_open {
            return false;
        }
        let mut gate = Gate {
            caps: self.windows.each_ref().map(Window::cap),
            shut_until: self.paused_until,
            pace: self.learner.pace(),
            closed: self.gate.closed,
            is_new: self.shown.answers == 0,
            places: self.places.as_ref().map_or(u64::MAX, Places::level),
        };
        gate.closed += u64::from(gate.closes(&self.gate));
        let is_changed = gate != self.gate;
        self.gate = gate;
        is_changed
    }

    pub(super) fn server_state(&self, now: Nanos) -> ServerState {
        let learner = &self.learner;
        let windows = Unit::ALL.into_iter().zip(&self.windows);
        ServerState {
            pause: Some(self.paused_until.since(now)).filter(|pause| !pause.is_zero()),
            rate: learner.rate(),
            lowered: learner.lowered().map(|at| now.since(at)),
            is_down: learner.is_down(),
            meters: windows.filter_map(|(unit, window)| Some((unit, window.meter(now)?))).collect(),
            places: self.places.as_ref().map(Places::found),
            under_way: self.in_flight[Unit::Requests.index()],
            ..self.shown.clone()
        }
    }

    /// Whether nothing holds calls back now or, without further answers, later.
    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        self.learner.lowered().is_none_or(|at| at.saturating_add(LONGEST) <= now)
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

    /// A call is over, whether it was answered or not.
    pub(super) fn over(&mut self, sent: Sent, now: Nanos, is_good: bool) {
        self.answered(sent.units);
        if let Some(places) = &mut self.places {
            places.over(now, sent, is_good);
        }
    }

    /// Counts a call that the server may have counted.
    pub(super) fn count_lost(&mut self, sent: Sent, now: Nanos) {
        for (window, n) in self.windows.iter_mut().zip(sent.units) {
            window.count_lost(now, n.into());
        }
    }

    /// Forgets everything that bounds calls.
    pub(super) fn resume(&mut self, now: Nanos) {
        self.windows.iter_mut().for_each(Window::open);
        self.learner.restart(now);
        self.places = self.places.as_ref().map(|places| Places::new(places.start, now));
        self.refusals = 0;
        self.paused_until = Nanos::ZERO;
    }

    /// Learns from the answer to a call. `waiting`: how many wait at the gate. Returns for how long to pause the limiter.
    pub(super) fn learn(
        &mut self,
        observed: &Observation,
        answer: &Answer,
        waiting: usize,
    ) -> Option<Duration> {
        self.shown.answers += 1;
        self.shown.malformed += u64::from(answer.malformed);
        let (now, sent, units) = (observed.now, observed.sent.at, observed.sent.units);
        self.answered(units);
        let short = if answer.is_refused() { self.short(units, answer) } else { Vec::new() };
        let was_known =
            answer.verdict == Verdict::Refused && self.record_refusal(observed, answer, &short);
        // Sent after the last refusal had arrived: only such a call ends its pause.
        let is_news = sent >= self.refused_at;
        for &(unit, meter) in answer.meters.iter().filter(|(_, meter)| meter.remaining.is_some()) {
            let index = unit.index();
            let (cost, in_flight) = (u64::from(units[index]), self.in_flight[index]);
            let is_new = (is_news || now >= self.paused_until)
                && self.windows[index].record(observed, meter, cost, in_flight) != Order::Stale;
            self.shown.stale += u64::from(!is_new);
        }
        // 408: the call waited too long in a queue of the server.
        let is_good = answer.is_accepted() && answer.status < 500 && answer.status != 408;
        if let Some(places) = self.places.as_mut().filter(|_| answer.verdict != Verdict::Refused) {
            places.over(now, observed.sent, is_good);
        }
        let pause = if answer.is_accepted() {
            if is_news {
                self.refusals = 0;
            }
            if is_good {
                self.learner.good(now, sent, observed.sent.waited_for == Some(LEARNED));
            } else {
                self.learner.failed(now, sent);
            }
            for unit in Unit::ALL.into_iter().filter(|_| !self.is_open) {
                let window = &mut self.windows[unit.index()];
                if window.has_ended(sent) && answer.meter(unit).is_none() {
                    window.open();
                }
            }
            None
        } else {
            self.refuse(observed, answer, &short, is_news, was_known)
        };
        self.learner.set_pace(waiting, observed.max);
        pause
    }

    /// The quotas that explain a refusal.
    fn short(&self, units: [u32; 4], answer: &Answer) -> Vec<Short> {
        let each = answer.meters.iter().map(|&(unit, meter)| (unit.index(), meter));
        let each = each.map(|(index, meter)| (index, meter, u64::from(units[index])));
        each.filter(|&(index, meter, cost)| self.windows[index].was_short(meter, cost)).collect()
    }

    /// Records a refusal in the windows. Returns whether the call should have fitted by what was known when it was sent.
    fn record_refusal(&mut self, observed: &Observation, answer: &Answer, short: &[Short]) -> bool {
        let (named, sent) = (answer.wait.map(|wait| observed.wait(wait)), observed.sent.at);
        if !short.is_empty() && short.iter().all(|&(index, ..)| self.windows[index].is_early(sent))
        {
            short.iter().for_each(|&(index, ..)| self.windows[index].was_early());
            return false;
        }
        let was_known = self.windows.iter().any(|window| window.was_known(sent));
        for (index, window) in self.windows.iter_mut().enumerate() {
            let is_short = short.iter().find(|(other, ..)| *other == index);
            if window.was_known(sent) && (short.is_empty() || is_short.is_some()) {
                window.distrust(sent >= self.refused_at);
            }
            if let Some(&(_, meter, cost)) = is_short {
                window.record_refusal(observed, meter, cost, named);
            }
        }
        was_known
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
        short: &[Short],
        is_news: bool,
        was_known: bool,
    ) -> Option<Duration> {
        self.shown.refused += 1;
        let (now, sent) = (observed.now, observed.sent.at);
        let is_refused = answer.verdict == Verdict::Refused;
        // Calls that were in flight together are refused together.
        let again = self.refusals.saturating_sub(u32::from(!is_news));
        self.refusals += u32::from(is_news);
        let doubled = |wait: Duration| wait.saturating_mul(1 << again.min(16));
        let named = answer.wait.map(|wait| self.heard_wait(observed, wait));
        let each = short.iter();
        let backs =
            each.clone().filter_map(|&(i, meter, n)| self.windows[i].back(observed, meter, n));
        let resets = each.filter_map(|(_, meter, _)| Some(observed.wait(meter.reset?)));
        let wait = named.or(backs.max()).map(|wait| {
            let most = resets.max().unwrap_or_default();
            wait.max(doubled(LEAST_WAIT).min(FIRST_WAIT)).max(doubled(wait).min(most))
        });
        let least = answer.least_wait.or((!short.is_empty()).then_some(FIRST_WAIT));
        let Some(wait) = wait.or(least.map(doubled)).map(|wait| wait.min(observed.max)) else {
            // Nothing explains it.
            if !is_refused {
                self.learner.failed(now, sent);
                return None;
            }
            self.refused_at = now;
            let others = observed.sent.ahead.max(self.in_flight[Unit::Requests.index()]);
            if self.places.as_mut().is_none_or(|places| !places.refused(now, others)) {
                self.learner.refused(now, sent, None);
            }
            return None;
        };
        let until = now.saturating_add(wait);
        if is_news && !short.is_empty() {
            // In a sliding window it may be jitter.
            let is_shared = short.iter().any(|&(index, ..)| !self.windows[index].is_sliding);
            if was_known && is_shared {
                let of_requests = short.iter().any(|&(i, ..)| i == Unit::Requests.index());
                self.learner.used_up((now, sent, until), of_requests);
            }
        } else if is_news {
            let obeyed = self.paused_until.saturating_add(AGAIN.max(wait));
            let is_again = self.paused_until > Nanos::ZERO && now <= obeyed;
            // In an outage there are no good calls in between.
            if is_again && (is_refused || again == 0) {
                self.learner.refused(now, sent, Some(wait));
            } else {
                self.learner.last_answer(now, until);
            }
        }
        self.refused_at = now;
        if until <= self.paused_until {
            return None;
        }
        self.paused_until = until;
        self.shown.pauses += 1;
        for &(index, meter, cost) in short {
            self.windows[index].close_until(observed, meter, cost, until);
        }
        Some(until.since(now))
    }
}
