//! What is known of one unit, and which of two answers is the newer one.
//!
//! Answers overtake each other. An answer to a call that was sent after another answer had come is the newer of
//! both. Of two whose calls were under way at the same time the one with the later reset is; with the same
//! reset, within what is known of it, the one of which less remains, as within a window `remaining` only falls.
//!
//! An answer brings its own reset, even if both could be the same: that of a sliding window moves with each call.
//! A reset is an interval of our clock: the server made the answer at some time between the sending of the call
//! and now. A date of a whole second is the begin of that second.

use std::time::Duration;

use super::answer::Meter;
use super::gate::Cap;
use super::text::When;
use crate::units::Nanos;

/// When a call was sent and its answer came, and what time it is by the calendars.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) sent: Nanos,
    pub(super) now: Nanos,
    /// Our calendar, since the epoch.
    pub(super) calendar: Duration,
    /// The server's.
    pub(super) date: Option<Duration>,
    /// No reset is later than this.
    pub(super) max: Duration,
}

/// The reset of a server that gives none: when to ask again.
const NO_RESET: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Reset {
    earliest: Nanos,
    latest: Nanos,
    /// By the server's calendar: the same number is the same reset.
    id: Option<Duration>,
}

impl Heard {
    /// How long after now a time is, at the latest.
    pub(super) fn wait(&self, when: When) -> Duration {
        when.after(self.date.unwrap_or(self.calendar)).min(self.max)
    }

    fn reset(&self, reset: Option<When>) -> Reset {
        let after = self.wait(reset.unwrap_or(When::After(NO_RESET)));
        let latest = self.now.saturating_add(after);
        let (earliest, id) = match (reset, self.date) {
            (Some(When::After(_)), _) => (self.sent.saturating_add(after), None),
            (Some(When::At(at)), Some(_)) => {
                let earliest = self.sent.saturating_add(after);
                (earliest.saturating_sub(Duration::from_secs(1)), Some(at))
            }
            (Some(When::At(at)), None) => (latest, Some(at)),
            // As good as any.
            (None, _) => (Nanos::ZERO, None),
        };
        Reset { earliest, latest, id }
    }
}

/// What was said last.
#[derive(Clone, Copy, Debug)]
struct Told {
    remaining: u64,
    limit: Option<u64>,
    at: Nanos,
    reset: Reset,
}

/// How an answer stands to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is the first of a window.
    First,
    /// It says something newer, or less, of the same window.
    Newer,
    /// It was overtaken by another answer.
    Stale,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    told: Option<Told>,
    /// When anything was first said.
    known_since: Option<Nanos>,
    /// How much a window of this server begins with, as far as that was seen: at first one call.
    opening: u64,
    is_continuous: bool,
    /// It has refused a call although by what it said permits had come back since.
    is_distrusted: bool,
}

impl Window {
    /// When the quota is there again, if the server has said so.
    pub(super) fn reset(&self) -> Option<Nanos> {
        self.told.map(|told| told.reset.latest)
    }

    /// How much remained when the server last said so.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.told.map(|told| told.remaining)
    }

    pub(super) fn has_ended(&self, now: Nanos) -> bool {
        self.told.is_some_and(|told| told.reset.latest <= now)
    }

    /// Hears the answer to a call for `cost` while `out` others are under way.
    pub(super) fn hear(&mut self, heard: &Heard, meter: Meter, cost: u64, out: u64) -> Order {
        let Some(remaining) = meter.remaining else { return Order::Stale };
        let reset = heard.reset(meter.reset);
        let order = self.order(heard, reset, remaining);
        if order == Order::Stale {
            return order;
        }
        let told = Told { remaining, limit: meter.limit, at: heard.now, reset };
        let is_new = order == Order::First && self.has_ended(heard.sent);
        if is_new && meter.reset.is_some() && !self.is_distrusted {
            // A window that began with all of its quota will do so again. One that slides may not, nor one whose end
            // the server has not told.
            let all = remaining.saturating_add(cost).saturating_add(out);
            self.opening = meter.limit.filter(|&limit| all >= limit).unwrap_or(1);
        }
        self.opening = self.opening.max(1).min(meter.limit.unwrap_or(u64::MAX).max(1));
        self.is_continuous = meter.is_continuous && meter.limit.is_some() && !self.is_distrusted;
        self.told = Some(told);
        self.known_since.get_or_insert(heard.now);
        order
    }

    fn order(&self, heard: &Heard, reset: Reset, remaining: u64) -> Order {
        let Some(last) = &self.told else { return Order::First };
        let (later, earlier) = match (reset.id, last.reset.id) {
            (Some(new), Some(old)) => (new > old, new < old),
            _ => (reset.earliest > last.reset.latest, reset.latest < last.reset.earliest),
        };
        let is_over = self.has_ended(heard.now);
        if heard.sent >= last.at || heard.sent >= last.reset.latest {
            // Sent when all that is known was known.
            if later || is_over { Order::First } else { Order::Newer }
        } else if later {
            Order::First
        } else if earlier || remaining > last.remaining {
            Order::Stale
        } else {
            Order::Newer
        }
    }

    /// A call for `cost` may have been counted, and its answer will not come.
    pub(super) fn lose(&mut self, now: Nanos, cost: u64) {
        if self.has_ended(now) {
            // In the window that has begun, of which nothing was said yet.
            self.opening = self.opening.saturating_sub(cost).max(1);
        }
        if let Some(told) = &mut self.told {
            told.remaining = told.remaining.saturating_sub(cost);
        }
    }

    /// The server has refused a call: nothing is sent until `until`, and then one call.
    pub(super) fn shut(&mut self, now: Nanos, until: Nanos) {
        let limit = self.told.and_then(|told| told.limit);
        let reset = Reset { earliest: until, latest: until, id: None };
        self.told = Some(Told { remaining: 0, limit, at: now, reset });
        (self.opening, self.is_continuous) = (1, false);
    }

    /// A call that was sent by what was known has been refused: from now on each window begins with one call, and
    /// nothing comes back before the reset.
    pub(super) fn distrust(&mut self) {
        (self.opening, self.is_continuous, self.is_distrusted) = (1, false, true);
    }

    /// Whether anything was known when a call was sent.
    pub(super) fn was_known(&self, sent: Nanos) -> bool {
        self.known_since.is_some_and(|since| since <= sent)
    }

    /// Nothing is known any more.
    pub(super) fn open(&mut self) {
        self.told = None;
    }

    /// What the gate lets pass.
    pub(super) fn cap(&self) -> Cap {
        let Some(told) = &self.told else { return Cap::UNKNOWN };
        let rises = self.is_continuous;
        Cap {
            cap: told.remaining,
            opening: if rises { told.limit.unwrap_or(1) } else { self.opening },
            since: told.at,
            reset: told.reset.latest,
            rises,
            most: u64::MAX,
        }
    }
}
