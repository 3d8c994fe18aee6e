//! All rules of one steady rate in exact fractions: `SmoothBursty`, the buckets, and the queue.
//!
//! `v` is the time up to which permits are taken. A charge of `n` at `t` makes it
//! `max(v, t - store) + n x interval`. The level is what is missing from a full store, `v - (t - store)`; a
//! refund returns at most the lowest level since its charge, so that the history is the one with the true
//! cost. A caller waits until `v`, or, if all permits must be
//! available, until `v + n x interval`. All times are whole numbers of ticks, so only the time of a
//! grant is rounded.

use crate::measure;
use crate::oracle::{Oracle, TICKS, Time, When};

/// The state that a change of the policy keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Keeps {
    /// The time for which permits are stored.
    Time,
    /// The number of permits stored.
    Number,
    /// The number of permits that are missing.
    Missing,
}

/// One version of the rule. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) interval: i128,
    /// The most that may be stored.
    pub(crate) store: i128,
    /// The capacity, if all permits asked for must be available.
    pub(crate) strict: Option<u32>,
    /// The most permits queued and not yet leaked.
    pub(crate) room: Option<u32>,
    /// Permits come at the multiples of this only.
    pub(crate) step: Option<i128>,
    pub(crate) keeps: Keeps,
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    versions: Vec<Terms>,
    terms: Terms,
    v: i128,
    /// No credit accrues before this: the end of the last pause.
    paused_until: i128,
    charges: Vec<Charge>,
    /// Levels that bound what the charges before them can return, the latest last: how many charges there were
    /// then, and the level. Those that are not lower than all later ones are left out.
    lows: Vec<(usize, i128)>,
    /// There were more than four of them, which is where the crate begins to return less.
    was_crowded: bool,
    /// A refund was bounded by them.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug)]
struct Charge {
    id: usize,
    at: Time,
    n: u32,
    price: i128,
}

impl Bucket {
    /// A bucket with `permits` in it.
    pub(crate) fn new(versions: Vec<Terms>, permits: u32) -> Self {
        let terms = versions[0];
        let v = -(terms.interval * i128::from(permits)).min(terms.store);
        let (charges, lows, paused_until) = (Vec::new(), Vec::new(), i128::MIN);
        let (was_crowded, is_doubtful) = (false, false);
        Self { versions, terms, v, paused_until, charges, lows, was_crowded, is_doubtful }
    }

    /// A store never exceeds its capacity. Grants fall on whole nanoseconds; the time lost by
    /// rounding is not idle time, or an empty store would lose it at each grant.
    fn spill(&mut self, now: i128) {
        let full = now - self.terms.store;
        if full - self.v > TICKS {
            self.v = full;
        }
    }

    fn settle(&mut self, now: i128) {
        self.spill(now);
        self.note(self.v - (now - self.terms.store));
    }

    fn note(&mut self, level: i128) {
        let level = level.max(0);
        self.lows.retain(|&(_, lower)| lower < level);
        self.lows.push((self.charges.len(), level));
        // The lowest one is kept, however many there were.
        self.was_crowded = self.lows.len() > 4 || self.was_crowded && self.lows.len() > 1;
    }

    /// The last moment at which permits came.
    fn came(&self, at: Time) -> i128 {
        let at = at * TICKS;
        self.terms.step.map_or(at, |step| at - at.rem_euclid(step))
    }

    fn price(&self, n: u32) -> i128 {
        self.terms.interval * i128::from(n)
    }
}

/// A change keeps a multiple of this number of ticks.
const KEPT: i128 = if measure::ROUNDS_CHANGES { TICKS } else { 1 };

fn round_up(ticks: i128, to: i128) -> i128 {
    -round_down(-ticks, to)
}

fn round_down(ticks: i128, to: i128) -> i128 {
    ticks.div_euclid(to) * to
}

impl Oracle for Bucket {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, _: Time, n: u32) -> When {
        let most = self.terms.strict.or(self.terms.room);
        if most.is_some_and(|most| n > most) {
            return When::Never;
        }
        let due = if self.terms.strict.is_some() { self.v + self.price(n) } else { self.v };
        let step = self.terms.step.unwrap_or(TICKS);
        When::At(-(-due).div_euclid(step) * step / TICKS)
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        self.settle(self.came(at));
        let price = self.price(n);
        self.v += price;
        self.charges.push(Charge { id, at, n, price });
    }

    fn refund(&mut self, id: usize, now: Time) {
        let Some(index) = self.charges.iter().position(|charge| charge.id == id) else { return };
        let Charge { n, price, at, .. } = self.charges[index];
        // A number of permits or, if time is stored, the time that they took.
        let price = if self.terms.strict.is_some() { self.price(n) } else { price };
        let later = self.lows.iter().filter(|low| low.0 > index).map(|low| low.1);
        self.is_doubtful |= self.was_crowded && later.clone().next().is_some();
        let mut back = later.fold(price, i128::min);
        let stores_time = self.terms.strict.or(self.terms.room).is_none();
        let is_last = self.charges[index + 1..].iter().all(|later| later.n == 0);
        if stores_time && !is_last && !measure::KNOWS_STORED_TIME {
            back = (price - (now - at) * TICKS).min(self.terms.store).max(0);
        }
        let before = self.v;
        self.v -= back;
        self.spill(self.came(now));
        self.v = self.v.min(before);
        for low in self.lows.iter_mut().filter(|low| low.0 > index) {
            low.1 -= back;
        }
        let lows = std::mem::take(&mut self.lows);
        let is_low = |at: usize| lows[at + 1..].iter().all(|later| later.1 > lows[at].1);
        self.lows = (0..lows.len()).filter(|&at| is_low(at)).map(|at| lows[at]).collect();
        // It is gone only if nothing came after it, so that indices stay.
        self.charges[index].n = 0;
        self.charges[index].price = 0;
    }

    fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    fn set_policy(&mut self, index: usize, now: Time) {
        let came = self.came(now);
        self.settle(came);
        let old = std::mem::replace(&mut self.terms, self.versions[index]);
        let in_new = |ticks: i128| ticks * self.terms.interval / old.interval;
        let stored = (came - self.v).min(old.store);
        if self.terms.keeps != Keeps::Time {
            // So that no permit is gained.
            self.lows.iter_mut().for_each(|low| low.1 = round_down(in_new(low.1), KEPT));
        }
        if self.terms.keeps == Keeps::Missing {
            // In a pause, at its end.
            let from = came.max(self.paused_until);
            let missing = round_up(in_new((old.store - (from - self.v)).max(0)), KEPT);
            self.v = from - self.terms.store + missing;
            if from > came {
                // Nothing is stored at its end, however much more there is room for.
                self.v = self.v.max(from);
                self.note(self.v - from);
                return;
            }
        } else if self.terms.keeps == Keeps::Number && stored > 0 {
            // So that no permit is gained.
            let kept = round_down(in_new(stored), KEPT);
            self.v = came - kept.min(self.terms.store);
        } else if self.terms.keeps == Keeps::Number
            && stored < 0
            && old.interval != self.terms.interval
        {
            self.note(0);
        }
        self.note(self.v - (came - self.terms.store));
    }

    fn pause(&mut self, _: Time, until: Time) {
        self.paused_until = self.paused_until.max(until * TICKS);
        self.v = self.v.max(until * TICKS);
        self.note(self.v - until * TICKS);
    }

    fn is_bounded(&self) -> bool {
        self.terms.room.is_some()
    }

    /// The permits granted and not yet leaked, those queued and the new ones must fit. Nothing
    /// leaks in a pause.
    fn room(&self, now: Time, queued: &[u32], n: u32) -> Time {
        let Some(room) = self.terms.room else { return Time::MIN };
        let here = (now * TICKS).max(self.paused_until);
        let water = (self.v - here).max(0);
        let waits: i128 = queued.iter().map(|&n| self.price(n)).sum();
        let over = water + waits + self.price(n) - self.price(room);
        round_up(if over > 0 { here } else { now * TICKS } + over, TICKS) / TICKS
    }
}
