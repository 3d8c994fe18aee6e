//! What is known of one unit, and which of two answers is the newer one.
//!
//! Answers overtake each other. An answer to a call that was sent after another answer had come is the newer of
//! both. Of two whose calls were under way at the same time the one with the later reset is; with the same
//! reset, within what is known of it, the one of which less remains, as within a window `remaining` only falls.
//!
//! What came back until a reset is there at that reset, even if later answers name later ones: in a window that slides
//! each answer names the time at which its own call is forgotten. So a call tries at
//! the earliest of the resets that may be the same. Whether permits come back steadily is [seen](Window::watch).
//! A reset is an interval of our clock: the server made the answer at some time between the sending of the call
//! and now. A date of a whole second is the begin of that second, and a time in whole seconds was rounded up.

#[cfg(all(test, not(tollgate_loom)))]
pub(super) mod tests;

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
    /// The server's calendar, or else ours, since the epoch.
    pub(super) calendar: Duration,
    /// Whether it is the server's.
    pub(super) is_dated: bool,
    /// Whether the server took the call, and the time from now on that it named besides.
    pub(super) is_accepted: bool,
    pub(super) named: Option<Duration>,
    /// No reset is later than this.
    pub(super) max: Duration,
}

/// How far a server's calendar is ahead of our clock. A `Date` is cut to its second and may be old, so the latest one by
/// our clock is the best. It is forgotten slowly, as clocks drift, and at once if a date is too old for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calendar(Option<(i128, Nanos)>);

/// Clocks drift by less than one part of this.
const DRIFT: i128 = 8192;

impl Calendar {
    /// What it shows now, by a date that has come now and those before.
    pub(super) fn read(&mut self, now: Nanos, date: Duration) -> Duration {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let ahead = nanos(date) - i128::from(now.get());
        let known = self.0.map(|(known, at)| (known - nanos(now.since(at)) / DRIFT, at));
        let is_old = |known: i128| ahead < known - nanos(2 * ROUNDED + OLD);
        let (ahead, at) =
            known.filter(|&(known, _)| known > ahead && !is_old(known)).unwrap_or((ahead, now));
        if at == now {
            self.0 = Some((ahead, now));
        }
        let shown = u64::try_from(ahead + i128::from(now.get())).unwrap_or(u64::MAX);
        Duration::from_nanos(shown)
    }
}

/// The reset of a server that gives none: when to ask again.
const NO_RESET: Duration = Duration::from_secs(1);

/// A time in whole seconds was rounded by less than this.
pub(super) const ROUNDED: Duration = Duration::from_secs(1);

/// A date may be this old, besides: some servers make one a second and keep it.
const OLD: Duration = Duration::from_secs(1);

/// How much later a call goes once a server's timer was late, and twice as much each time.
const LATE: Duration = Duration::from_micros(62_500);

/// The part of a call's time on the way by which others are earlier or later. With none, a limit that is the server's
/// own is refused a call in twenty on windows of a second.
const JITTER: u32 = 16;

/// How much slower than it says a server's permits come back once it has refused against its word: other clients
/// take of them as well. Only the first few are counted on: the answers that they bring say what remains. Two clients
/// of one bucket that know nothing of each other have twice as many calls refused with 16; with 32, they leave 9 % of
/// the tokens unused.
const DOUBTED: u32 = 24;

#[derive(Clone, Copy, Debug)]
struct Reset {
    earliest: Nanos,
    latest: Nanos,
    /// By the server's calendar: the same number is the same reset.
    id: Option<Duration>,
}

impl Heard {
    /// Whether our clock shows how far away a reset is: not a date if the server's calendar is not known, and not one
    /// that is too far away.
    fn knows(&self, reset: When) -> bool {
        let is_dated = matches!(reset, When::After(_)) || self.is_dated;
        is_dated && self.wait(reset) < self.max
    }

    /// How long after now a time is, at the latest.
    pub(super) fn wait(&self, when: When) -> Duration {
        when.after(self.calendar).min(self.max)
    }

    fn reset(&self, reset: Option<When>) -> Reset {
        let after = self.wait(reset.unwrap_or(When::After(NO_RESET)));
        let latest = self.now.saturating_add(after);
        let (earliest, id) = match (reset, self.is_dated) {
            (Some(When::After(_)), _) => {
                let rounded = if after.subsec_nanos() == 0 { ROUNDED } else { Duration::ZERO };
                (self.sent.saturating_add(after.saturating_sub(rounded)), None)
            }
            (Some(When::At(at)), true) => {
                // A time from now on is nearer than a difference of two dates.
                let is_near = |&named: &Duration| named <= after && after <= named + 3 * ROUNDED;
                if let Some(named) = self.named.filter(is_near) {
                    let named = self.reset(Some(When::After(named)));
                    return Reset { id: Some(at), ..named };
                }
                let earliest = self.sent.saturating_add(after);
                (earliest.saturating_sub(ROUNDED + OLD), Some(at))
            }
            (Some(When::At(at)), false) => (latest, Some(at)),
            // As good as any.
            (None, _) => (Nanos::ZERO, None),
        };
        Reset { earliest, latest, id }
    }
}

/// The part of `all` in which what is missing of `cost` comes back, if the whole limit does in `all`.
fn share(all: Duration, meter: Meter, cost: u64) -> Duration {
    let (limit, remaining) = (meter.limit.unwrap_or(0), meter.remaining.unwrap_or(0));
    let (missing, of) = (cost.max(1).saturating_sub(remaining), limit.saturating_sub(remaining));
    let nanos = all.as_nanos().saturating_mul(missing.min(of).into()) / u128::from(of.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// What was said last.
#[derive(Clone, Copy, Debug)]
struct Told {
    remaining: u64,
    limit: Option<u64>,
    at: Nanos,
    /// From when on it remains: later than `at` if the server has refused a call until then.
    since: Nanos,
    reset: Reset,
}

/// An answer with which that to a call sent later is compared.
#[derive(Clone, Copy, Debug)]
struct Mark {
    remaining: u64,
    sent: Nanos,
    at: Nanos,
    /// What calls cost that were sent before it came, and were answered after.
    besides: u64,
}

/// The earliest reset of those that answers of this window have named: what was used then is back. And what calls cost
/// that were answered since, which is not.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    reset: Nanos,
    used: u64,
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
    /// Permits come back steadily until the reset, not all of them at it.
    rises: bool,
    /// What answers have shown of that. Else it is as the dialect says.
    is_steady: Option<bool>,
    mark: Option<Mark>,
    /// More remained than after a call that was sent then: it may have been a new window.
    risen: Option<Nanos>,
    /// That they come back steadily was seen of what remains.
    slides: bool,
    first: First,
    /// It has refused a call although by what it said permits were there.
    is_distrusted: bool,
    /// When the answer to the first call of this window came.
    began: Option<Nanos>,
    /// How long a window is that begins with its first call, in whole seconds: what is tried.
    length: Option<Duration>,
    /// A window was seen to be no shorter.
    is_least: bool,
}

impl Window {
    /// When the quota is there again, if the server has said so.
    pub(super) fn reset(&self) -> Option<Nanos> {
        let told = self.told?;
        let latest = told.reset.latest;
        if self.is_distrusted || self.rises {
            return Some(latest);
        }
        let by_length = self.began.zip(self.length).map(|(began, span)| began.saturating_add(span));
        let by_length = by_length.filter(|&end| end > told.since).unwrap_or(latest);
        Some(latest.min(self.first.reset).min(by_length))
    }

    /// Whether a call that was sent then came too early only as times are rounded.
    pub(super) fn is_early(&self, sent: Nanos) -> bool {
        let Some(Told { reset: Reset { earliest, latest, .. }, .. }) = self.told else {
            return false;
        };
        let slack = latest.since(earliest);
        self.has_ended(sent) && sent < latest.saturating_add(slack) && !self.rises
    }

    /// A call came too early: the window is longer than was tried. If it was not, or not shorter than a second, the server's
    /// timers are late.
    pub(super) fn miss(&mut self) {
        let later = |length: Duration| match Duration::from_nanos(length.subsec_nanos().into()) {
            _ if !self.is_least && length > ROUNDED => Some(length + ROUNDED),
            Duration::ZERO => Some(length + LATE),
            late => Some(length + late).filter(|_| late < ROUNDED / 2),
        };
        self.length = self.length.and_then(later);
        self.is_least = true;
    }

    /// A window has begun, with this call if `is_first`. Dates in whole seconds say when it ends but roughly. So it is
    /// taken for one that begins with its first call and lasts for whole seconds, by one less each time until that is too
    /// early.
    fn begin(&mut self, heard: &Heard, reset: &Reset, is_first: bool) {
        let was_tried = self.began.is_some() && !self.is_least;
        self.began = is_first.then_some(heard.now);
        let is_whole = reset.id.is_some_and(|at| at.subsec_nanos() == 0);
        if !is_first || !is_whole || !heard.is_dated {
            return;
        }
        let most = Duration::from_secs(reset.latest.since(heard.sent).as_secs());
        let next = self.length.map(
            |length| {
                if was_tried { length.saturating_sub(ROUNDED) } else { length }
            },
        );
        self.length = if self.is_least {
            self.length
        } else {
            Some(next.unwrap_or(most).min(most).max(ROUNDED))
        };
    }

    /// Whether the server has said anything of it that may still hold.
    pub(super) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// How much remained when the server last said so.
    pub(super) fn remaining(&self, now: Nanos) -> Option<u64> {
        self.told.map(|told| if now < told.since { 0 } else { told.remaining })
    }

    /// What is known of a window that lasts.
    pub(super) fn meter(&self, now: Nanos) -> Option<Meter> {
        let told = self.told.filter(|_| !self.has_ended(now))?;
        Some(Meter {
            limit: told.limit,
            remaining: self.remaining(now),
            reset: Some(When::After(told.reset.latest.since(now))),
            window: None,
            is_continuous: self.rises,
        })
    }

    /// Whether more remains from moment to moment.
    pub(super) fn rises(&self) -> bool {
        self.rises
    }

    fn is_steady(&self, meter: Meter) -> bool {
        let is_known = meter.limit.is_some() && meter.reset.is_some();
        is_known && self.is_steady.unwrap_or(meter.is_continuous)
    }

    pub(super) fn has_ended(&self, now: Nanos) -> bool {
        self.reset().is_some_and(|reset| reset <= now)
    }

    /// Hears the answer to a call for `cost` while `out` others are under way.
    pub(super) fn hear(&mut self, heard: &Heard, meter: Meter, cost: u64, out: u64) -> Order {
        let Some(remaining) = meter.remaining else { return Order::Stale };
        let mut reset = heard.reset(meter.reset);
        let order = self.order(heard, reset, remaining);
        self.watch(heard, meter, remaining, reset, (cost, out));
        if order == Order::Stale {
            self.first.used = self.first.used.saturating_add(cost);
            return order;
        }
        let (mut since, mut first) = (heard.now, reset.latest);
        if self.slides {
            // What the server counted after this call is among the calls under way. So it rises from the sending on.
            let (way, span) = (heard.now.since(heard.sent), reset.latest.since(heard.now));
            since = heard.sent.saturating_add(way / JITTER);
            reset.latest = since.saturating_add(span);
            first = heard.sent.saturating_add(way / 2).saturating_add(span);
        }
        if order == Order::First && heard.is_accepted {
            let is_first = meter.limit.is_some_and(|limit| remaining.saturating_add(cost) >= limit);
            self.begin(heard, &reset, is_first);
        }
        let is_known = meter.reset.is_some_and(|reset| heard.knows(reset));
        let is_same = self.slides || order == Order::Newer;
        if is_known && is_same && heard.sent < self.first.reset {
            self.first.reset = self.first.reset.min(first);
            self.first.used = self.first.used.saturating_add(cost);
        } else {
            self.first = First { reset: first, used: 0 };
        }
        let told = Told { remaining, limit: meter.limit, at: heard.now, since, reset };
        let is_new = order == Order::First && self.has_ended(heard.sent);
        if is_new && meter.reset.is_some() && !self.is_distrusted {
            // A window that began with all of its quota will do so again. One that slides may not, nor one whose end
            // the server has not told.
            let all = remaining.saturating_add(cost).saturating_add(out);
            self.opening = meter.limit.filter(|&limit| all >= limit).unwrap_or(1);
        }
        self.opening = self.opening.max(1).min(meter.limit.unwrap_or(u64::MAX).max(1));
        self.rises = self.is_steady(meter);
        self.told = Some(told);
        self.known_since.get_or_insert(heard.now);
        order
    }

    /// Looks whether permits come back before the reset, or the reset moves. Within one window neither is so. If what
    /// is known of the reset does not rule out that another window has begun, it shows nothing if that begins with
    /// all of its quota; else it is believed for now, or, if a refusal has spoken against it, the second time within the
    /// length of a window.
    fn watch(
        &mut self,
        heard: &Heard,
        meter: Meter,
        remaining: u64,
        reset: Reset,
        (cost, out): (u64, u64),
    ) {
        let (Some(limit), Some(span)) = (meter.limit, meter.reset) else { return };
        if meter.is_continuous || self.is_distrusted {
            return;
        }
        let here = Mark { remaining, sent: heard.sent, at: heard.now, besides: 0 };
        let mark = self.mark.get_or_insert(here);
        if heard.sent < mark.at {
            mark.besides = mark.besides.saturating_add(cost);
            return;
        }
        let mark = std::mem::replace(mark, here);
        // Else it is about another window.
        let Some(last) = self.told.filter(|last| last.limit == meter.limit) else { return };
        if !heard.knows(span) {
            return;
        }
        let lasts = heard.now < last.reset.earliest;
        let has_moved = lasts && last.reset.latest < reset.earliest;
        // A call that was taken although nothing remained has taken what came back.
        let is_back = heard.is_accepted && cost > 0 && mark.remaining == 0;
        if remaining <= mark.remaining && !has_moved && !is_back {
            return;
        }
        let before = self.risen.replace(mark.sent);
        let length = match span {
            When::After(length) => length,
            When::At(_) => reset.earliest.since(heard.sent),
        };
        let is_again = before.is_some_and(|before| heard.now.since(before) < length);
        let counted = cost.saturating_add(out).saturating_add(mark.besides);
        let is_part = self.is_steady.is_none() && remaining.saturating_add(counted) < limit;
        if lasts || is_again || is_part {
            (self.is_steady, self.slides) = (Some(true), true);
        }
    }

    /// Whether it was seen that permits come back steadily.
    pub(super) fn slides(&self) -> bool {
        self.slides
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

    /// Whether this is why a call for `cost` was refused: nothing remained, or less than the call needs and the
    /// rest comes soon.
    pub(super) fn was_short(&self, meter: Meter, cost: u64) -> bool {
        meter
            .remaining
            .is_some_and(|remaining| remaining == 0 || remaining < cost && self.is_steady(meter))
    }

    /// How long until `cost` is there, by what a refusal says remains.
    pub(super) fn back(&self, heard: &Heard, meter: Meter, cost: u64) -> Option<Duration> {
        if self.slides {
            return Some(self.cap().reached(cost.max(1)).since(heard.now));
        }
        let all = match meter.reset? {
            // It has not passed, so it was rounded down.
            When::At(at) if at <= heard.calendar => heard.wait(When::At(at + ROUNDED)),
            reset => heard.wait(reset),
        };
        Some(if self.is_steady(meter) { share(all, meter, cost) } else { all })
    }

    /// The server has refused a call for `cost` of which too little remained, and has named a time until which to
    /// wait, or none. That is seen of how permits come back: before the reset or at it.
    pub(super) fn see(&mut self, heard: &Heard, meter: Meter, cost: u64, named: Option<Duration>) {
        let Some(reset) = meter.reset else { return };
        let all = heard.wait(reset);
        let is_early = named.is_some_and(|named| named <= all / 2);
        // Times are rounded up to whole seconds, and so are both ends of one that is given as a date.
        let is_share = named.is_some_and(|named| {
            let most = share(all, meter, cost).saturating_add(Duration::from_secs(1));
            let least = named.saturating_add(Duration::from_secs(2));
            meter.limit.is_some() && named <= most && least <= all
        });
        if is_early && is_share {
            self.is_steady = Some(true);
        } else if self.was_known(heard.sent) && !self.slides {
            // It was sent by what was known.
            self.is_steady = if is_early { None } else { Some(false) };
        }
    }

    /// The server has refused a call for `cost` until a time. If permits come back steadily, that much is there
    /// then, and all at the reset. Else one call may be.
    pub(super) fn shut(&mut self, heard: &Heard, meter: Meter, cost: u64, until: Nanos) {
        if self.slides && self.cap().reached(cost.max(1)) <= until {
            return;
        }
        let at = heard.now;
        self.rises = self.is_steady(meter);
        self.told = Some(if self.rises {
            let (remaining, limit) = (cost.max(1), meter.limit);
            Told { remaining, limit, at, since: until, reset: heard.reset(meter.reset) }
        } else {
            self.opening = 1;
            self.first = First { reset: until, used: 0 };
            let reset = Reset { earliest: until, latest: until, id: None };
            Told { remaining: 0, limit: meter.limit, at, since: at, reset }
        });
    }

    /// A call that was sent by what was known has been refused: from now on each window begins with one call.
    pub(super) fn distrust(&mut self) {
        if std::mem::take(&mut self.slides) {
            self.is_steady = None;
        }
        (self.opening, self.is_distrusted) = (1, true);
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
        let rises = self.rises;
        let mut reset = told.reset.latest;
        let alone = reset.max(told.since);
        if rises && self.is_distrusted {
            let span = reset.since(told.since);
            reset = told.since.saturating_add(span.saturating_mul(DOUBTED));
        }
        // One less of a long window that slides: some servers block for all of it after a call that is a moment early.
        let spare = u64::from(self.slides && reset.since(told.since) > 2 * ROUNDED);
        let opening =
            if rises { told.limit.unwrap_or(1).saturating_sub(spare).max(1) } else { self.opening };
        let first = self.first;
        let (knee, at_knee) = if !rises {
            // A call tries.
            (self.reset().unwrap_or(reset), told.remaining.saturating_add(1).min(opening))
        } else if self.slides && told.since < first.reset && first.reset < reset {
            (first.reset, opening.saturating_sub(first.used))
        } else {
            (reset, opening)
        };
        let at_knee = at_knee.max(told.remaining);
        Cap { cap: told.remaining, opening, knee, at_knee, since: told.since, reset, alone, rises }
    }
}
