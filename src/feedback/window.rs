//! The state of one quota of a server: how much of one unit remains, and until when.
//!
//! **Which answer is newer.** Answers overtake each other. If a call was sent after another answer had arrived, its
//! answer is newer. If both calls were in flight together, the answer with the later reset is newer; with the same reset
//! the one with less remaining, as `remaining` only falls within a window.
//!
//! **When the quota is back.** A reset is an interval of our clock, because the server wrote the answer at some time
//! between the sending of the call and its arrival. A date in whole seconds means the begin of that second, and a time
//! in whole seconds was rounded up. What was used before a reset is back at that reset, even if later answers name later
//! ones: in a sliding window each answer names the time at which its own call expires. So a call tries at the earliest reset
//! of the window.
//!
//! **How it comes back.** [`Window::detect_refill`] compares answers to see whether permits return before the reset. If they
//! do, [`OwnCalls`] tells a sliding window, which gives each call back one window later, from a bucket.

mod own_calls;
#[cfg(all(test, not(tollgate_loom)))]
pub(super) mod tests;

use std::time::Duration;

use self::own_calls::OwnCalls;
use super::answer::Meter;
use super::gate::Cap;
use super::places::Sent;
use super::text::When;
use crate::units::Nanos;

/// An answer: when its call was sent, when it arrived, and the calendar time then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) sent: Sent,
    pub(super) now: Nanos,
    /// The server's calendar, or else ours, since the epoch.
    pub(super) calendar: Duration,
    /// Whether `calendar` is the server's.
    pub(super) is_dated: bool,
    pub(super) is_accepted: bool,
    /// A time from now on that the answer named beside its reset, such as `Retry-After`.
    pub(super) named: Option<Duration>,
    /// The longest time to a reset that is believed.
    pub(super) max: Duration,
}

/// How far a server's calendar is ahead of our clock. A `Date` is cut to its second and may be old, so the one that is
/// furthest ahead is the best estimate. It decays slowly, because clocks drift, and is dropped if a date is too old for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calendar(Option<(i128, Nanos)>);

/// Clocks drift by less than one part of this.
const DRIFT: i128 = 8192;

impl Calendar {
    /// The calendar time now, from a new date and the dates before it.
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

/// When to try again if the server names no reset.
const NO_RESET: Duration = Duration::from_secs(1);

/// A time in whole seconds was rounded by less than this.
pub(super) const ROUNDED: Duration = Duration::from_secs(1);

/// A date may be older by this: some servers update theirs once a second.
const OLD: Duration = Duration::from_secs(1);

/// The extra wait after a server's timer was late. It doubles each time.
const LATE: Duration = Duration::from_micros(62_500);

/// How much slower than stated permits are taken to return once the server has refused a call that should have fitted:
/// other clients use the same quota. The first few calls bring answers that say what remains. With 16, two clients of
/// one bucket have twice as many calls refused; with 32, they leave 9 % of the tokens unused.
const DOUBTED: u32 = 24;

#[derive(Clone, Copy, Debug)]
struct Reset {
    earliest: Nanos,
    latest: Nanos,
    /// The reset as a date of the server: equal dates are the same reset.
    id: Option<Duration>,
    /// It is a time from now on that was named beside a date.
    is_named: bool,
}

impl Observation {
    /// Whether the distance of a reset is known: a date needs the server's calendar, and a reset beyond `max` is ignored.
    fn knows(&self, reset: When) -> bool {
        let is_dated = matches!(reset, When::After(_)) || self.is_dated;
        is_dated && self.wait(reset) < self.max
    }

    /// The time from now until `when`, at most `max`.
    pub(super) fn wait(&self, when: When) -> Duration {
        when.after(self.calendar).min(self.max)
    }

    fn reset(&self, reset: Option<When>) -> Reset {
        let after = self.wait(reset.unwrap_or(When::After(NO_RESET)));
        let latest = self.now.saturating_add(after);
        let (earliest, id) = match (reset, self.is_dated) {
            (Some(When::After(_)), _) => {
                let rounded = if after.subsec_nanos() == 0 { ROUNDED } else { Duration::ZERO };
                (self.sent.at.saturating_add(after.saturating_sub(rounded)), None)
            }
            (Some(When::At(at)), true) => {
                // A time from now on is more exact than the difference of two dates, but not one that was cut to zero.
                let is_near = |&named: &Duration| {
                    !named.is_zero() && named <= after && after <= named + 3 * ROUNDED
                };
                if let Some(named) = self.named.filter(is_near) {
                    let named = self.reset(Some(When::After(named)));
                    return Reset { id: Some(at), is_named: true, ..named };
                }
                let earliest = self.sent.at.saturating_add(after);
                (earliest.saturating_sub(ROUNDED + OLD), Some(at))
            }
            (Some(When::At(at)), false) => (latest, Some(at)),
            // Any other reset is the same or a better one.
            (None, _) => (Nanos::ZERO, None),
        };
        Reset { earliest, latest, id, is_named: false }
    }
}

/// How round a number of seconds is: windows are seldom of 59.
fn roundness(seconds: u64) -> usize {
    let round = [5, 10, 30, 60, 3600];
    usize::from(seconds == 1) + round.iter().filter(|&&of| seconds.is_multiple_of(of)).count()
}

/// The time in which the permits that `cost` lacks return, if all that is missing from the limit returns in `all`.
fn share(all: Duration, meter: Meter, cost: u64) -> Duration {
    let (limit, remaining) = (meter.limit.unwrap_or(0), meter.remaining.unwrap_or(0));
    let (missing, of) = (cost.max(1).saturating_sub(remaining), limit.saturating_sub(remaining));
    let nanos = all.as_nanos().saturating_mul(missing.min(of).into()) / u128::from(of.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The newest answer.
#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    remaining: u64,
    limit: Option<u64>,
    at: Nanos,
    /// From when on `remaining` holds: later than `at` after a refusal until then.
    since: Nanos,
    reset: Reset,
}

/// The answer that the next one is compared with.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    remaining: u64,
    sent: Nanos,
    at: Nanos,
    /// The cost of calls that were sent before this answer arrived, and answered after it.
    besides: u64,
}

/// An answer, compared with the newest one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The first of a window.
    First,
    /// Newer, or with less remaining, of the same window.
    Newer,
    /// Overtaken by another answer.
    Stale,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// What a sliding window of the server counts of our calls.
    own: OwnCalls,
    last_answer: Option<LastAnswer>,
    /// When the first answer of this unit arrived.
    known_since: Option<Nanos>,
    /// The permits at the begin of a window, as far as answers have shown: at first one.
    opening: u64,
    /// Permits return steadily until the reset, not all of them at it.
    is_refilling: bool,
    /// Whether answers have shown that permits return steadily. `None`: as the dialect says.
    is_steady: Option<bool>,
    baseline: Option<Baseline>,
    /// The first reset of a window, until then.
    oldest: Option<Reset>,
    /// When a call was sent after which more remained, in the same window or a new one.
    risen: Option<Nanos>,
    /// The steady return was detected from `remaining`, and not stated.
    pub(super) is_sliding: bool,
    /// The earliest reset that answers of this window named.
    first: Nanos,
    /// The server has refused a call that should have fitted.
    is_distrusted: bool,
    /// When the answer to the first call of this window arrived.
    began: Option<Nanos>,
    /// The length that is tried for a window that begins with its first call, in whole seconds.
    length: Option<Duration>,
    /// A shorter `length` was refused.
    is_least: bool,
}

impl Window {
    /// When the quota is back, if that is known.
    pub(super) fn reset(&self) -> Option<Nanos> {
        let last = self.last_answer?;
        let latest = last.reset.latest;
        if self.is_distrusted || self.is_refilling {
            return Some(latest);
        }
        let by_length = self.end_by_length(last.since).unwrap_or(latest);
        Some(latest.min(self.first).min(by_length))
    }

    /// When the window ends by the length that it is taken to have, if that is later than `after`.
    fn end_by_length(&self, after: Nanos) -> Option<Nanos> {
        let end = self.began?.saturating_add(self.length?);
        Some(end).filter(|&end| end > after)
    }

    /// Whether a call that was sent at `sent` may have been too early because times are rounded.
    pub(super) fn is_early(&self, sent: Nanos) -> bool {
        let Some(LastAnswer { reset: Reset { earliest, latest, .. }, .. }) = self.last_answer
        else {
            return false;
        };
        let slack = latest.since(earliest);
        let is_ended = self.has_ended(sent) || self.cap().alone <= sent;
        is_ended && sent < latest.saturating_add(slack) && !self.is_refilling
    }

    /// A call was too early: the window is longer than `length`. If no shorter one was tried, the server's timer is late.
    pub(super) fn was_early(&mut self) {
        if !self.is_log() {
            self.own.was_early();
        }
        let later = |length: Duration| match Duration::from_nanos(length.subsec_nanos().into()) {
            _ if !self.is_least && length > ROUNDED => Some(length + ROUNDED),
            Duration::ZERO => Some(length + LATE),
            late => Some(length + late).filter(|_| late < ROUNDED / 2),
        };
        self.length = self.length.and_then(later);
        self.is_least = true;
    }

    /// A window has begun, with this call if `is_first`. Dates are too coarse for its end. So it is taken to begin with its first
    /// call and to last for whole seconds: a round number, or one less each time, until a call is too early.
    fn begin(&mut self, observed: &Observation, reset: &Reset, is_first: bool) {
        let was_tried = self.began.is_some() && !self.is_least;
        self.began = is_first.then_some(observed.now);
        if !is_first || reset.id.is_none() || !observed.is_dated {
            return;
        }
        let most = reset.latest.since(observed.sent.at).as_secs().max(1);
        let Some(length) = self.length else {
            // A time from now on tells it; otherwise dates may be late by a second each.
            let least = if reset.is_named { most } else { most.saturating_sub(2).max(1) };
            let length = (least..=most).max_by_key(|seconds| (roundness(*seconds), *seconds));
            self.length = length.map(Duration::from_secs);
            self.is_least = reset.is_named;
            return;
        };
        if was_tried && roundness(length.as_secs()) > 0 {
            self.is_least = true;
        } else if was_tried {
            let shorter = length.saturating_sub(ROUNDED);
            self.length = Some(shorter.min(Duration::from_secs(most)).max(ROUNDED));
        }
    }

    /// The state of a window that has not ended.
    pub(super) fn meter(&self, now: Nanos) -> Option<Meter> {
        let last = self.last_answer.filter(|_| !self.has_ended(now))?;
        Some(Meter {
            limit: last.limit,
            remaining: Some(if now < last.since { 0 } else { last.remaining }),
            reset: Some(When::After(last.reset.latest.since(now))),
            is_continuous: self.is_refilling,
        })
    }

    fn is_steady(&self, meter: Meter) -> bool {
        let is_known = meter.limit.is_some() && meter.reset.is_some();
        is_known && self.is_steady.unwrap_or(meter.is_continuous)
    }

    pub(super) fn has_ended(&self, now: Nanos) -> bool {
        self.reset().is_some_and(|reset| reset <= now)
    }

    /// Records the answer to a call for `cost` while `out` others are in flight.
    pub(super) fn record(
        &mut self,
        observed: &Observation,
        meter: Meter,
        cost: u64,
        out: u64,
    ) -> Order {
        let Some(remaining) = meter.remaining else { return Order::Stale };
        let reset = observed.reset(meter.reset);
        let order = self.order(observed, reset, remaining);
        self.detect_refill(observed, meter, remaining, reset, (cost, out));
        let is_near = meter.reset.is_some_and(|reset| observed.knows(reset));
        let reset_after = if is_near { reset.latest.since(observed.now) } else { Duration::ZERO };
        if observed.is_accepted {
            self.own.record((observed.sent.at, observed.now), meter, (cost, out), reset_after);
        }
        if order == Order::Stale {
            return order;
        }
        // A new window: learn its length.
        if order == Order::First && observed.is_accepted {
            let is_first = meter.limit.is_some_and(|limit| remaining.saturating_add(cost) >= limit);
            self.begin(observed, &reset, is_first);
        }
        // Keep the earliest reset of the window.
        let is_same = self.is_sliding || order == Order::Newer;
        let is_earlier = is_near && is_same && observed.sent.at < self.first;
        self.first = if is_earlier { self.first.min(reset.latest) } else { reset.latest };
        // Learn how many permits a window begins with.
        let is_new = order == Order::First && self.has_ended(observed.sent.at);
        if is_new && meter.reset.is_some() && !self.is_distrusted {
            // One that began with all of its quota will do so again, but not a sliding one, or one without a known end.
            let all = remaining.saturating_add(cost).saturating_add(out);
            self.opening = meter.limit.filter(|&limit| all >= limit).unwrap_or(1);
        }
        self.opening = self.opening.max(1).min(meter.limit.unwrap_or(u64::MAX).max(1));
        self.is_refilling = self.is_steady(meter);
        let (limit, at) = (meter.limit, observed.now);
        self.last_answer = Some(LastAnswer { remaining, limit, at, since: at, reset });
        self.known_since.get_or_insert(observed.now);
        order
    }

    /// Detects that permits return before the reset: more remains than after an earlier call, or the reset moves. Neither
    /// happens within a fixed window. If another window may have begun meanwhile, it counts only if that began with a part
    /// of its quota, or the second time within the length of a window.
    fn detect_refill(
        &mut self,
        observed: &Observation,
        meter: Meter,
        remaining: u64,
        reset: Reset,
        (cost, out): (u64, u64),
    ) {
        let (Some(limit), Some(span)) = (meter.limit, meter.reset) else { return };
        if meter.is_continuous || self.is_distrusted {
            return;
        }
        // Compare with an answer that had arrived before this call was sent.
        let here = Baseline { remaining, sent: observed.sent.at, at: observed.now, besides: 0 };
        let baseline = self.baseline.get_or_insert(here);
        if observed.sent.at < baseline.at {
            baseline.besides = baseline.besides.saturating_add(cost);
            return;
        }
        let baseline = std::mem::replace(baseline, here);
        // Another limit is another window.
        let Some(last) = self.last_answer.filter(|last| last.limit == meter.limit) else { return };
        if !observed.knows(span) {
            return;
        }
        let lasts = observed.now < last.reset.earliest;
        let oldest = self.oldest.filter(|oldest| observed.now < oldest.earliest).unwrap_or(reset);
        self.oldest = Some(oldest);
        let has_moved = oldest.latest < reset.earliest;
        // A call that was accepted although nothing remained has used a permit that had returned.
        let is_back = observed.is_accepted && cost > 0 && baseline.remaining == 0;
        if remaining <= baseline.remaining && !has_moved && !is_back {
            return;
        }
        // Rule out a new window: the old one lasts, or it rose twice within its length, or the rest is no full quota.
        let before = self.risen.replace(baseline.sent);
        let length = match span {
            When::After(length) => length,
            When::At(_) => reset.earliest.since(observed.sent.at),
        };
        let is_again = before.is_some_and(|before| observed.now.since(before) < length);
        let counted = cost.saturating_add(out).saturating_add(baseline.besides);
        let is_part = self.is_steady.is_none() && remaining.saturating_add(counted) < limit;
        if lasts || is_again || is_part {
            (self.is_steady, self.is_sliding) = (Some(true), true);
        }
    }

    /// Whether the server counts the calls of a sliding window, and is no bucket.
    fn is_log(&self) -> bool {
        self.is_sliding && !self.is_distrusted && !self.own.are_back_early()
    }

    fn order(&self, observed: &Observation, reset: Reset, remaining: u64) -> Order {
        let Some(last) = &self.last_answer else { return Order::First };
        let (later, earlier) = match (reset.id, last.reset.id) {
            (Some(new), Some(old)) => (new > old, new < old),
            _ => (reset.earliest > last.reset.latest, reset.latest < last.reset.earliest),
        };
        let is_over = self.has_ended(observed.now);
        if observed.sent.at >= last.at || observed.sent.at >= last.reset.latest {
            // Sent after the newest answer had arrived.
            if later || is_over { Order::First } else { Order::Newer }
        } else if later && !(self.is_log() && remaining > last.remaining) {
            Order::First
        } else if earlier || remaining > last.remaining {
            Order::Stale
        } else {
            Order::Newer
        }
    }

    /// Counts a call for `cost` whose answer will not arrive: the server may have counted it.
    pub(super) fn count_lost(&mut self, now: Nanos, cost: u64) {
        if cost > 0 {
            self.own.count((now, now), cost);
        }
        if self.has_ended(now) {
            // It counts in the window that has begun since.
            self.opening = self.opening.saturating_sub(cost).max(1);
        }
        if let Some(last) = &mut self.last_answer {
            last.remaining = last.remaining.saturating_sub(cost);
        }
    }

    /// Whether this quota explains the refusal of a call for `cost`: nothing remained, or less than that and the rest returns
    /// steadily.
    pub(super) fn was_short(&self, meter: Meter, cost: u64) -> bool {
        meter
            .remaining
            .is_some_and(|remaining| remaining == 0 || remaining < cost && self.is_steady(meter))
    }

    /// The time until `cost` is available, by what a refusal says remains.
    pub(super) fn back(&self, observed: &Observation, meter: Meter, cost: u64) -> Option<Duration> {
        if self.is_sliding {
            return Some(self.cap().reached(cost.max(1)).since(observed.now));
        }
        let all = match meter.reset? {
            // The date has passed and the window has not: the date was rounded down.
            When::At(at) if at <= observed.calendar => observed.wait(When::At(at + ROUNDED)),
            reset => observed.wait(reset),
        };
        // A shorter length was tried: it is back after the one that is known.
        let by_length = self.end_by_length(observed.now).filter(|_| self.is_least);
        let all = by_length.map_or(all, |end| all.min(end.since(observed.now)));
        Some(if self.is_steady(meter) { share(all, meter, cost) } else { all })
    }

    /// Records the refusal of a call for `cost` for which too little remained. The time that it named, compared with the reset,
    /// shows whether permits return before the reset.
    pub(super) fn record_refusal(
        &mut self,
        observed: &Observation,
        meter: Meter,
        cost: u64,
        named: Option<Duration>,
    ) {
        let Some(reset) = meter.reset else { return };
        let all = observed.wait(reset);
        let is_early = named.is_some_and(|named| named <= all / 2);
        // Is it the share of one permit? Times, and both ends of a date, are rounded up to whole seconds.
        let is_share = named.is_some_and(|named| {
            let most = share(all, meter, cost).saturating_add(Duration::from_secs(1));
            let least = named.saturating_add(Duration::from_secs(2));
            meter.limit.is_some() && named <= most && least <= all
        });
        if is_early && is_share {
            self.is_steady = Some(true);
        } else if self.was_known(observed.sent.at) && !self.is_sliding {
            // The call should have fitted.
            self.is_steady = if is_early { None } else { Some(false) };
        }
    }

    /// Closes the window until a time, after a refusal of a call for `cost`. If permits return steadily, `cost` is back then
    /// and all at the reset. Otherwise one call may try.
    pub(super) fn close_until(
        &mut self,
        observed: &Observation,
        meter: Meter,
        cost: u64,
        until: Nanos,
    ) {
        if self.is_sliding && self.cap().reached(cost.max(1)) <= until {
            return;
        }
        let at = observed.now;
        self.is_refilling = self.is_steady(meter);
        self.last_answer = Some(if self.is_refilling {
            let (remaining, limit) = (cost.max(1), meter.limit);
            LastAnswer { remaining, limit, at, since: until, reset: observed.reset(meter.reset) }
        } else {
            self.opening = 1;
            self.first = until;
            let reset = Reset { earliest: until, latest: until, id: None, is_named: false };
            LastAnswer { remaining: 0, limit: meter.limit, at, since: at, reset }
        });
    }

    /// A call that should have fitted was refused: from now on each window begins with one call.
    /// `is_news`: it was sent after the last refusal had arrived.
    pub(super) fn distrust(&mut self, is_news: bool) {
        if self.is_log() && (!is_news || self.own.was_early()) {
            return;
        }
        if std::mem::take(&mut self.is_sliding) {
            self.is_steady = None;
        }
        (self.opening, self.is_distrusted) = (1, true);
    }

    /// Whether an answer had arrived when a call was sent.
    pub(super) fn was_known(&self, sent: Nanos) -> bool {
        self.known_since.is_some_and(|since| since <= sent)
    }

    /// Forgets the newest answer.
    pub(super) fn open(&mut self) {
        self.last_answer = None;
    }

    /// The bound on calls in flight that the gate enforces.
    pub(super) fn cap(&self) -> Cap {
        let Some(last) = &self.last_answer else { return Cap::UNKNOWN };
        let (remaining, reset) = (last.remaining, last.reset.latest);
        let limit = last.limit.unwrap_or(1).max(1);
        let alone = reset.max(last.since);
        let all_back = self.own.all_back().unwrap_or(reset);
        if self.is_log()
            && let Some(left) = self.own.leave(limit, last.at)
        {
            // Each of our calls is back one window after it was counted, whatever the reset was rounded to.
            let left = left.min(remaining);
            let first_back = self.own.next_back(last.at).unwrap_or(reset);
            let more = self.own.leave(limit, first_back).unwrap_or(left).max(left);
            let steps = [(last.since, left), (first_back, more), (all_back, limit)];
            let alone = if self.own.is_shown() { first_back } else { alone.min(first_back) };
            return Cap { steps, alone, is_refilling: false };
        }
        if self.is_refilling {
            let doubted =
                last.since.saturating_add(reset.since(last.since).saturating_mul(DOUBTED));
            let full = (if self.is_distrusted { doubted } else { reset }, limit.max(remaining));
            let steps = [(last.since, remaining), full, full];
            return Cap { steps, alone, is_refilling: true };
        }
        // By then a call that is counted is one window old, if no other client uses the quota: one call tries, as far as the reset
        // was rounded up.
        let by_age = self.own.full_until(limit).filter(|_| !self.is_distrusted);
        let by_age = by_age.map_or(alone, |back| back.max(last.reset.earliest));
        // At the reset one call tries. The others follow when its answer shows that all is back, or when a sliding window has
        // given it back.
        let one_more = remaining.saturating_add(1).min(self.opening).max(remaining);
        let first = (self.reset().unwrap_or(reset), one_more);
        let all = (reset.max(all_back), self.opening.max(remaining));
        let steps = [(last.since, remaining), first, all];
        Cap { steps, alone: alone.min(by_age).max(last.since), is_refilling: false }
    }
}
