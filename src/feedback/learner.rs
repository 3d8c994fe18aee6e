//! The rate that a server bears, found from what it does with calls: arithmetic, without a clock or a lock.
//!
//! ```text
//!                    a refusal           6 in a row, or 3 after 8 good calls
//!  only counts calls ---------> RATE --------------------------------------> WINDOW USED UP
//!   |                           ^ ^ |  a refusal: - 25 .. - 6 %               one call after 1, 1.6, 2.6 .. 16 s
//!   |                           | | |  good calls: + 0.8 .. 20 % a second       |
//!   |                           | +------------------------------------------- a good call: the rate is what it took
//!   |      they do not fall,    |   3 of 20 fail, twice in a row
//!   |      the old rate is back +------ TRIAL: 90 % of what came through for about 20 calls
//!   |                           |          | fewer fail: from now on a failure is a refusal
//!   | 9 failures in a row       | 13 good calls
//!   +----------------------> OUTAGE: one call after 1, 2, 4 .. 16 s
//! ```
//!
//! **The ten seconds after a bare 429**, the first one:
//!
//! 1. [`Learner::refused`] sets the rate to twice what the server took a second, over the last one or two minutes with their
//!    idle times, and to 2/s at least: a steady client is not slowed. In the first second it is twice the number of calls
//!    that it took: often 2/s, far too little. Later refusals take 6 to 25 % of the rate. The
//!    bucket of the [gate](super::gate) is emptied. Calls that had passed it and were not sent go back.
//! 2. Calls go at the rate, evenly spaced; from the next answer on faster, if many wait ([`Learner::set_pace`]). After
//!    a later refusal they first wait for a random time: at most the time of two calls (after a cut of a quarter), and a second.
//!    Refusals of calls that were sent before the first one change nothing.
//! 3. Good calls that waited for the rate raise it ([`Learner::good`]). If the 429 came within a second, the rate more than
//!    doubles each second until the next. At 10/s without a burst: 2/s at 0.5 s, refused at 11/s at 1.3 s, and from then on
//!    8 to 10 calls a second (`second_by_second` in `tests/learner`).
//! 4. If the next call is refused too, the rate falls by another quarter, and calls go one at a time. Six refusals in a row
//!    are a window that is used up: single calls probe until one is taken ([`Learner::end_row`]).
//!
//! A refusal takes less after many good calls: one in a hundred says "a little too much". Good calls raise the rate by
//! calls and by time, whichever is slower; the longer none is refused, the faster.
//!
//! A failure (a 5xx without a time, a broken connection) says nothing of the rate, unless fewer calls fail at a lower pace:
//! that is a limit, and failures are refusals then. A broken route does not heal so, and an outage has no good calls.
//! Whether it is one is a sequential test (Wald, 1945): each answer at the lower pace makes one of both likelier. While more
//! than half of the calls fail at any pace, the pace is twice what comes through (as the SRE book's client-side
//! throttling).
//!
//! What was not used is not known (RFC 7661): the first refusal, and an outage, leave at most twice what was
//! delivered before.
//!
//! The constants were found by simulation, one to 1,000 clients that know nothing of each other before servers of
//! all usual kinds.

#[cfg(all(test, not(tollgate_loom)))]
pub(super) mod tests;

use std::ops::Range;
use std::time::Duration;

use crate::units::{Nanos, Rate};

/// A learner that knows nothing, and the first refusal, leave at least this rate; all else half a permit a second.
const LEAST_FOUND: f64 = 2.0;
const LEAST_LEFT: f64 = 0.5;

/// A refusal takes `1 / (CUT_PARTS + good / GOOD_CALLS)` of the rate, and at least `LEAST_CUT`.
const CUT_PARTS: f64 = 4.0;
const GOOD_CALLS: f64 = 5.0;
const LEAST_CUT: f64 = 0.06;

/// The growth in a second; doubled for each `DOUBLE_CALLS` good calls and `DOUBLE_SECONDS` without a refusal, at most
/// `DOUBLINGS` times. `SEARCH` before the first refusal: the rate doubles in less than a second.
const GROWTH: f64 = 0.025;
const DOUBLE_CALLS: f64 = 6.0;
const DOUBLE_SECONDS: f64 = 2.0;
const DOUBLINGS: f64 = 3.0;
const SEARCH: f64 = 1.0;

/// After `KNOWN` good calls since the last refusal the rate that the server bears is known to a tenth. While the pace divided
/// by it is in `NEAR`, the pace grows by `CALM` a second; in `ABOVE`, by `STEADY`.
const KNOWN: u32 = 12;
const NEAR: Range<f64> = 0.9..1.2;
const CALM: f64 = 0.008;
const ABOVE: Range<f64> = 1.2..1.7;
const STEADY: f64 = 0.02;

/// `WINDOW_AFTER` refusals in a row are a window that is used up, and not a rate. From then on each pause is `LONGER` times
/// the last one.
const WINDOW_AFTER: u32 = 6;
const LONGER: f64 = 1.6;
/// After `MANY` good calls, `WINDOW_AFTER_MANY` refusals are one.
const MANY: u32 = 8;
const WINDOW_AFTER_MANY: u32 = 3;

/// More failures in a row are no chance. The share is of about this many calls.
const CHANCE: u32 = 8;
const SHARE_OF: f64 = 20.0;

/// At least `FEW` of `SAMPLE` calls must fail, twice in a row, before a limit is suspected. A gap between two answers counts
/// for at most `LONGEST_GAP` seconds: the rest was idleness.
const SAMPLE: u32 = 20;
const FEW: u32 = 3;
const LONGEST_GAP: f64 = 2.0;
/// Then calls go at this part of what came through. At a limit the share that fails falls, say to a quarter.
const TRIED: f64 = 0.9;
const FALLS_TO: f64 = 0.25;
/// How much likelier a limit is than none once it is believed, or not, as a logarithm.
const LIMIT: f64 = 4.0;
const NO_LIMIT: f64 = -6.0;
/// Each wrong suspicion multiplies the calls before the next one by `SPARES`.
const SPARES: u32 = 4;

/// The longest time between two probes, in seconds: 1,000 clients then send 62 a second.
const LONGEST_PROBE: f64 = 16.0;

/// Where the search begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// In permits a second; infinite: at the first refusal.
    pub(super) start: f64,
    /// Of the random numbers that keep clients out of step; zero: another one each time.
    pub(super) seed: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self { start: f64::INFINITY, seed: 0 }
    }
}

/// Good calls of this period of 69 s and the last: what was used of the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    began: Nanos,
    minute: u32,
    counts: [u32; 2],
}

impl Recent {
    pub(super) fn new(now: Nanos) -> Self {
        Self { began: now, minute: Self::minute(now), counts: [0; 2] }
    }

    /// Of 2^36 ns, 69 seconds.
    fn minute(now: Nanos) -> u32 {
        u32::try_from(now.get() >> 36).unwrap_or(u32::MAX)
    }

    pub(super) fn count(&mut self, now: Nanos) {
        let minute = Self::minute(now);
        if minute != self.minute {
            let is_next = minute == self.minute.wrapping_add(1);
            self.counts = [0, if is_next { self.counts[0] } else { 0 }];
            self.minute = minute;
        }
        self.counts[0] = self.counts[0].saturating_add(1);
    }

    /// How many, and since when.
    fn read(&self, now: Nanos) -> (u32, Nanos) {
        let minute = Self::minute(now);
        let (count, first) = match minute.wrapping_sub(self.minute) {
            0 => (self.counts[0].saturating_add(self.counts[1]), minute.saturating_sub(1)),
            1 => (self.counts[0], self.minute),
            _ => (0, minute),
        };
        (count, self.began.max(Nanos::new(u64::from(first) << 36)))
    }

    /// A second.
    fn rate(&self, now: Nanos) -> f64 {
        let (count, since) = self.read(now);
        f64::from(count) / seconds(now, since)
    }
}

/// From `earlier` to `now`; never zero, as others are divided by it.
fn seconds(now: Nanos, earlier: Nanos) -> f64 {
    now.since(earlier).as_secs_f64().max(1e-3)
}

fn after(now: Nanos, seconds: f64) -> Nanos {
    now.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Nanos::HORIZON))
}

/// What the gate does with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Calls a second; infinite if it does not limit them.
    pub(super) rate: f64,
    /// Nothing goes before.
    pub(super) until: Nanos,
    /// How much earlier, or later, than one call after the other the next one goes, as a part of a call.
    pub(super) jitter: f32,
    /// A greater number than before: what was stored is void.
    pub(super) cuts: u32,
}

impl Pace {
    pub(super) const NONE: Self =
        Self { rate: f64::INFINITY, until: Nanos::ZERO, jitter: 0.0, cuts: 0 };

    pub(super) fn is_none(&self) -> bool {
        self.rate == f64::INFINITY
    }
}

/// A number of calls, how many of them failed, and the seconds that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    calls: u32,
    bad: u32,
    span: f64,
}

impl Sample {
    /// A few calls that went well, of all that did in `seconds`.
    fn before(good: u32, seconds: f64) -> Self {
        let calls = good.min(FEW);
        let gap = (seconds / f64::from(good.max(1))).min(LONGEST_GAP);
        Self { calls, bad: 0, span: gap * f64::from(calls) }
    }
}

/// Failures that may be a limit.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// The share of the calls that failed before, and the rate.
    share: f64,
    rate: f64,
    /// The pace that is tried.
    tried: f64,
    /// How much likelier a limit is than none, as a logarithm.
    odds: f64,
    /// It was seen to be one.
    is_limit: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Learner {
    search: Search,
    recent: Recent,
    /// It learns, from the first refusal or failure on. Before that calls are only counted.
    is_on: bool,
    /// As learned; the pace is what follows from it. Infinite until the first refusal, if no rate was given.
    rate: f64,
    pace: f64,
    until: Nanos,
    /// When the last refusal came that counted, how many did, and the good calls and refusals in a row since.
    cut: Nanos,
    cuts: u32,
    good: u32,
    row: u32,
    /// The last growth.
    grown: Nanos,
    /// Good calls since the quota was last found to be used up, and when that was.
    cycle: u32,
    since: Nanos,
    /// The rate has not been too high yet.
    is_searching: bool,
    /// The share of the last calls that did not fail, and the failures in a row.
    share: f64,
    down: u32,
    sample: Sample,
    /// When the last answer came.
    answered: Nanos,
    /// Too many calls of the last sample failed.
    is_wary: bool,
    suspect: Option<Suspect>,
    /// Calls until failures are suspected again, and how many they were the last time.
    spared: u32,
    spares: u32,
    /// By what the pace is above the rate, as many wait.
    boost: f64,
    /// The good calls before the first refusal of this row, and the pace that the server bore meanwhile. Infinite: not known.
    before: u32,
    borne: f64,
    /// How long the last refusal took.
    slow: f64,
    /// In an outage: the number of the next probe, and when the last one failed.
    probe: u32,
    probed: Nanos,
    jitter: f32,
    random: u64,
}

impl Learner {
    pub(super) fn new(search: Search, now: Nanos) -> Self {
        let mut learner = Self {
            search,
            recent: Recent::new(now),
            rate: search.start,
            pace: search.start,
            is_searching: true,
            share: 1.0,
            spares: SAMPLE,
            boost: 1.0,
            borne: f64::INFINITY,
            random: if search.seed == 0 { any_seed() } else { search.seed },
            ..Self::default()
        };
        if search.start.is_finite() {
            learner.begin(now);
        }
        learner
    }

    /// Forgets what it has learned.
    pub(super) fn restart(&mut self, now: Nanos) {
        *self = Self::new(self.search, now);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The first refusal or failure: there is something to learn.
    fn begin(&mut self, now: Nanos) {
        if self.is_on {
            return;
        }
        self.is_on = true;
        (self.cycle, self.since) = self.recent.read(now);
        (self.grown, self.answered) = (now, now);
        self.sample = Sample::before(self.cycle, seconds(now, self.since));
    }

    /// Whether a call that was sent then has nothing to say about the rate since.
    fn is_old(&self, sent: Nanos) -> bool {
        self.cuts > 0 && sent <= self.cut
    }

    /// A server took a call. `waited`: for the pace, and not for a window, a pause or the user's own limit.
    pub(super) fn good(&mut self, now: Nanos, sent: Nanos, waited: bool) {
        self.recent.count(now);
        if !self.is_on {
            return;
        }
        self.tally(now, sent, false);
        self.share += (1.0 - self.share) / SHARE_OF;
        if self.probe == 1 && now.since(self.probed) < Duration::from_secs(1) {
            // No outage, as it ends before the first probe.
            self.probe = 0;
            self.suspect(now);
        } else if self.probe > 0 {
            (self.sample, self.is_wary) = (Sample::default(), false);
        }
        (self.down, self.probe) = (0, 0);
        self.cycle = self.cycle.saturating_add(1);
        self.draw_jitter();
        if self.is_old(sent) {
            return;
        }
        self.end_row(now);
        self.good = self.good.saturating_add(1);
        if waited && !self.fails() && !self.is_trying() {
            // What is longer was idleness.
            let span = now.since(self.grown).as_secs_f64().min(2.0 / self.rate);
            let over = self.rate * self.boost / self.borne;
            let growth = if self.is_searching {
                (SEARCH * span).min(1.0)
            } else if NEAR.contains(&over) {
                CALM * span
            } else if ABOVE.contains(&over) {
                STEADY * span
            } else {
                let calls = f64::from(self.good) / DOUBLE_CALLS;
                let time = now.since(self.cut).as_secs_f64() / DOUBLE_SECONDS;
                GROWTH * span * calls.min(time).min(DOUBLINGS).exp2()
            };
            self.rate *= 1.0 + growth;
        }
        self.grown = now;
    }

    /// A good call ends the refusals in a row. If they were a window that was used up, what was delivered from the end of
    /// the last one to this is its quota.
    fn end_row(&mut self, now: Nanos) {
        let row = std::mem::take(&mut self.row);
        if row >= WINDOW_AFTER || row >= WINDOW_AFTER_MANY && self.before >= MANY {
            let mut delivered = f64::from(self.cycle) / seconds(now, self.since);
            if self.cycle >= MANY {
                self.borne = delivered;
                delivered /= self.boost;
            }
            self.rate = self.rate.min(delivered).max(self.rate / 10.0);
            (self.cycle, self.since) = (0, now);
        }
    }

    /// A server refused a call: the rate was too high. `after_time`: the time that it gave.
    pub(super) fn refused(&mut self, now: Nanos, sent: Nanos, after_time: Option<Duration>) {
        self.begin(now);
        if self.is_old(sent) {
            return;
        }
        let pace = self.rate * self.boost;
        let found = seconds(now, self.since).max(1.0);
        self.row = self.row.saturating_add(1);
        if self.row == 1 {
            let borne = 1.1 * f64::from(self.good) / seconds(now, self.cut);
            self.before = self.good;
            self.borne = if self.good >= KNOWN { pace.min(borne) } else { f64::INFINITY };
        }
        let had_many = self.before >= MANY;
        let good = match self.row {
            1 => self.before,
            _ if had_many => self.before / 2,
            _ => 0,
        };
        let by = (1.0 / (CUT_PARTS + f64::from(good) / GOOD_CALLS)).max(LEAST_CUT);
        let random = self.random();
        // So that a retry does not meet the same empty bucket, nor the retry of a stranger.
        let mut wait = random * (8.0 * by / pace).min(1.0);
        let doubled = |row: u32, times: f64| times.powi(row.min(30).cast_signed());
        if self.row >= WINDOW_AFTER {
            let longer = doubled(self.row - WINDOW_AFTER, LONGER);
            wait = wait.max(longer.min(LONGEST_PROBE) * (0.5 + random));
        } else {
            self.rate *= 1.0 - by;
            if had_many && self.row > 1 {
                // As long as two calls take, then twice as long.
                let longer = doubled(self.row - 2, 2.0) / pace;
                wait = wait.max(longer.min(LONGEST_PROBE) * (0.5 + random));
            }
        }
        if self.is_searching {
            self.rate = self.rate.min((2.0 * f64::from(self.cycle) / found).max(LEAST_FOUND));
            // In less than a second nothing was found.
            self.is_searching = self.row == 1 && seconds(now, self.since) < 1.0;
        }
        self.slow = seconds(now, sent);
        self.void(now);
        self.until =
            self.until.max(after(now.saturating_add(after_time.unwrap_or_default()), wait));
    }

    /// A server asks not to be called before a time: a first call goes then, and more follow.
    pub(super) fn last_answer(&mut self, now: Nanos, until: Nanos) {
        self.begin(now);
        self.leave_used(now, LEAST_FOUND);
        self.void(now);
        self.until = self.until.max(until);
    }

    /// A quota was used up earlier than the server had said, as strangers take of it: what was delivered lately is this
    /// client's share. Of a quota that does not count requests, calls take more or less, so it leaves twice as much. Not
    /// before `until`, and not at the same time as the strangers.
    pub(super) fn used_up(&mut self, (now, sent, until): (Nanos, Nanos, Nanos), of_requests: bool) {
        self.begin(now);
        if self.is_old(sent) {
            return;
        }
        let share = self.recent.rate(now) * if of_requests { 1.0 } else { 2.0 };
        if share > 0.0 {
            self.rate = self.rate.min(share);
        }
        self.is_searching = false;
        self.void(now);
        let wait = self.random() * (2.0 / self.rate).min(1.0);
        self.until = self.until.max(after(until, wait));
    }

    /// A server did not answer a call, or not as it should.
    pub(super) fn failed(&mut self, now: Nanos, sent: Nanos) {
        self.begin(now);
        self.tally(now, sent, true);
        if self.suspect.is_some_and(|suspect| suspect.is_limit) {
            self.refused(now, sent, None);
            return;
        }
        self.down = self.down.saturating_add(1);
        let Sample { calls, bad, .. } = self.sample;
        if self.down > CHANCE && self.probe == 0 && bad < calls {
            self.suspect(now);
        }
        if self.suspect.is_some() {
            return;
        }
        let is_known = self.rate < f64::INFINITY;
        if self.probe == 0 && self.down > CHANCE {
            // An outage has begun.
            let was_used = self.recent.rate(now) > 0.0;
            // If nothing is known the search begins at the least rate, and needs no share of that.
            let share = if was_used || is_known { 0.0 } else { 0.5 };
            (self.probe, self.probed, self.share) = (1, now, share);
            self.is_wary = true;
            if was_used || !is_known {
                self.leave_used(now, LEAST_LEFT);
            }
            self.cuts += 1;
        } else if self.probe == 0 {
            self.share *= 1.0 - 1.0 / SHARE_OF;
            if self.fails() && !is_known {
                self.leave_used(now, LEAST_LEFT);
            }
        } else if sent > self.probed {
            // Once for all calls that were under way.
            (self.probe, self.probed) = ((self.probe + 1).min(16), now);
        }
        self.draw_jitter();
    }

    /// Counts an answer, and what it says of failures that are suspected.
    fn tally(&mut self, now: Nanos, sent: Nanos, is_bad: bool) {
        let gap = now.since(self.answered).as_secs_f64().min(LONGEST_GAP);
        self.answered = now;
        let is_old = self.is_old(sent);
        if let Some(suspect) = &mut self.suspect {
            if is_old {
                return;
            }
            let (share, less) = (suspect.share, suspect.share * FALLS_TO);
            let times = if is_bad { less / share } else { (1.0 - less) / (1.0 - share) };
            suspect.odds = (suspect.odds + times.ln()).min(LIMIT);
            if suspect.odds >= LIMIT && !suspect.is_limit {
                suspect.is_limit = true;
                self.rate /= self.boost;
                self.is_searching = true;
                (self.cycle, self.since) = (0, now);
            } else if suspect.odds <= NO_LIMIT {
                self.rate = suspect.rate;
                self.suspect = None;
                (self.spared, self.spares) = (self.spares, self.spares.saturating_mul(SPARES));
            }
            return;
        }
        self.spared = self.spared.saturating_sub(1);
        let Sample { calls, bad, span } = &mut self.sample;
        (*calls, *bad, *span) = (*calls + 1, *bad + u32::from(is_bad), *span + gap);
        if *calls < SAMPLE {
            return;
        }
        let was_wary = std::mem::replace(&mut self.is_wary, *bad >= FEW);
        if self.is_wary && was_wary && *bad < *calls {
            self.suspect(now);
        }
        self.sample = Sample::default();
    }

    /// Tries whether fewer calls fail at a lower pace.
    fn suspect(&mut self, now: Nanos) {
        if self.spared > 0 || self.probe > 0 {
            return;
        }
        let Sample { calls, bad, span } = self.sample;
        // Less by its error, as a sample that looks bad may have been so by chance.
        let (bad, calls) = (f64::from(bad), f64::from(calls));
        let share = bad / calls;
        let share = (share - (share * (1.0 - share) / calls).sqrt()).clamp(0.02, 0.9);
        let good = calls - bad;
        // And at the least that may have come through.
        let good = good - good.sqrt() / 2.0;
        let tried = (TRIED * good / span.max(1e-3)).max(LEAST_FOUND);
        self.suspect = Some(Suspect { share, rate: self.rate, tried, odds: 0.0, is_limit: false });
        self.rate = tried;
        (self.share, self.is_searching) = (1.0, true);
        (self.is_wary, self.sample) = (false, Sample::default());
        self.void(now);
    }

    fn is_trying(&self) -> bool {
        self.suspect.is_some_and(|suspect| !suspect.is_limit)
    }

    /// Twice what was used is known, and what is above that is to be searched again.
    fn leave_used(&mut self, now: Nanos, least: f64) {
        let known = (2.0 * self.recent.rate(now)).max(least);
        if self.rate > known {
            (self.rate, self.is_searching) = (known, true);
        }
    }

    /// What was stored for a burst does not count any more.
    fn void(&mut self, now: Nanos) {
        (self.cut, self.grown, self.good) = (now, now, 0);
        self.cuts += 1;
    }

    fn fails(&self) -> bool {
        self.share < 0.5
    }

    /// Sets the pace for a number of waiters, if it is off by a hundredth: a client with more waiters sends faster. Calls
    /// are no further apart than `longest`, with a random part of half of a call.
    pub(super) fn set_pace(&mut self, waiting: usize, longest: Duration) {
        if !self.is_on {
            return;
        }
        self.rate = self.rate.max(1.5 / longest.as_secs_f64());
        let waiting = u8::try_from(waiting.clamp(1, 25)).unwrap_or(25);
        self.boost = f64::from(waiting).sqrt().sqrt();
        if let Some(suspect) = self.suspect {
            self.rate = self.rate.max(suspect.tried / (2.0 * self.boost));
        }
        let pace = self.next_pace();
        let is_near = (pace / self.pace - 1.0).abs() <= 0.01;
        if !is_near {
            self.pace = pace;
        }
    }

    fn next_pace(&self) -> f64 {
        if self.probe > 0 {
            return self.rate.min(1.0 / f64::from(self.probe - 1).exp2().min(LONGEST_PROBE));
        }
        if self.fails() {
            return self.rate.min((2.0 * self.share * self.rate).max(1.0 / LONGEST_PROBE));
        }
        if self.is_trying() {
            return self.rate;
        }
        self.rate * self.boost
    }

    /// What the gate does.
    pub(super) fn pace(&self) -> Pace {
        let Self { pace, until, jitter, cuts, .. } = *self;
        // After two refusals in a row one call at a time, however slow they are.
        let most = if self.row >= 2 { 1.0 / self.slow } else { f64::INFINITY };
        Pace { rate: pace.min(most), until, jitter, cuts }
    }

    /// The pace, if there is one.
    pub(super) fn rate(&self) -> Option<Rate> {
        Rate::try_per_second(self.pace).ok()
    }

    /// When it was last lowered.
    pub(super) fn lowered(&self) -> Option<Nanos> {
        (self.cuts > 0).then(|| self.cut.max(self.probed))
    }

    /// Whether the last calls failed, for which the pace is less than the rate.
    pub(super) fn is_down(&self) -> bool {
        self.probe > 0 || self.fails()
    }

    /// Probes of many clients do not keep step.
    fn draw_jitter(&mut self) {
        self.jitter = if self.is_down() { self.random_part() - 0.5 } else { 0.0 };
    }

    /// From zero to one.
    fn random(&mut self) -> f64 {
        f64::from(self.random_part())
    }

    fn random_part(&mut self) -> f32 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bits = u16::try_from((z ^ z >> 31) >> 48).unwrap_or_default();
        f32::from(bits) / 65_536.0
    }
}

/// Another one for each learner of each process.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
