//! The rate, and how it grows and falls: arithmetic, without a clock or a limiter.

use std::time::Duration;

use crate::units::{Nanos, Rate};

/// How the rate of an [`Adaptive`](super::Adaptive) grows and falls.
///
/// ```
/// use tollgate::adaptive::Algorithm;
///
/// assert_eq!(Algorithm::default(), Algorithm::Aimd);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Additive increase, multiplicative decrease: a throttled call takes a tenth of the rate. Then it grows by a
    /// twentieth, a second, of the rate that was too much. After ten seconds without a throttled call the quota is
    /// probably a greater one: from then on the rate grows by a tenth of itself a second.
    #[default]
    Aimd,
    /// The cubic curve of TCP CUBIC (RFC 9438), as the adaptive retries of the AWS SDKs use it: a throttled
    /// call takes 15 % of the rate. The rate comes back quickly to what was too much, stays there for some
    /// time, and then grows faster and faster: `0.4 (t - K)^3` permits a second, `t` seconds after the
    /// throttled call, and less below 20 permits a second. AWS takes 30 % of the rate, which leaves more of a
    /// steady quota unused.
    Cubic,
}

/// The part of the rate that remains after a throttled call.
const AIMD_KEEPS: f64 = 0.9;
const CUBIC_KEEPS: f64 = 0.85;

/// AIMD: the growth in a second, as a part of the rate that was too much; and of the rate, after a time without a
/// throttled call.
const STEP: f64 = 0.05;
const SEARCH_STEP: f64 = 0.1;
const SEARCH_AFTER: f64 = 10.0;

/// CUBIC: the curve, in permits a second per second cubed; at most this part of the rate, because a few calls a
/// second tell little.
const SCALE: f64 = 0.4;
const SCALE_OF_LOW: f64 = 0.02;

/// The limiter's rate is set when it is off by this part.
const NOTICEABLE: f64 = 0.01;

/// The options of an [`Adaptive`](super::Adaptive). Rates are in permits a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) algorithm: Algorithm,
    pub(super) floor: f64,
    pub(super) ceiling: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { algorithm: Algorithm::default(), floor: 0.5, ceiling: 1e9 }
    }
}

#[derive(Debug)]
pub(super) struct Control {
    limits: Limits,
    rate: f64,
    /// The limiter's rate.
    set: f64,
    /// The rate of the last throttled call.
    too_much: Option<f64>,
    /// The seconds since then in which callers waited for the rate, and the time of the last success of such a
    /// caller.
    busy: f64,
    last: Option<Nanos>,
    /// How many times the rate has fallen.
    cuts: u64,
}

impl Control {
    pub(super) fn new(limits: Limits, rate: f64) -> Self {
        let ceiling = limits.ceiling.max(limits.floor);
        let limits = Limits { ceiling, ..limits };
        let set = rate;
        let rate = rate.clamp(limits.floor, ceiling);
        Self { limits, rate, set, too_much: None, busy: 0.0, last: None, cuts: 0 }
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// A call has succeeded. `waited`: whether it had to wait, so that the rate was the limit.
    pub(super) fn on_success(&mut self, now: Nanos, waited: bool) {
        if !waited {
            return;
        }
        // A longer time is not one in which callers waited: it is a second, or the time of two calls.
        let most = (2.0 / self.rate).max(1.0);
        let span = self.last.map_or(Duration::ZERO, |last| now.since(last)).as_secs_f64().min(most);
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        self.busy += span;
        let rate = match (self.too_much, self.limits.algorithm) {
            (None, _) => self.rate * span.exp2(),
            (Some(_), Algorithm::Aimd) if self.busy > SEARCH_AFTER => {
                self.rate * (1.0 + SEARCH_STEP * span)
            }
            (Some(too_much), Algorithm::Aimd) => self.rate + STEP * too_much * span,
            (Some(too_much), Algorithm::Cubic) => {
                let scale = SCALE.min(too_much * SCALE_OF_LOW);
                let back = (too_much * (1.0 - CUBIC_KEEPS) / scale).cbrt();
                too_much + scale * (self.busy - back).powi(3)
            }
        };
        // At most doubled, as CUBIC of a low rate may be far steeper than the calls that it is learned from.
        self.rate = rate.min(2.0 * self.rate).clamp(self.limits.floor, self.limits.ceiling);
    }

    /// A call was throttled that was granted when the rate had fallen `cuts` times: what was sent before the last
    /// time says nothing about the rate since.
    pub(super) fn on_throttled(&mut self, cuts: u64) {
        if cuts != self.cuts {
            return;
        }
        let keeps = match self.limits.algorithm {
            Algorithm::Aimd => AIMD_KEEPS,
            Algorithm::Cubic => CUBIC_KEEPS,
        };
        self.too_much = Some(self.rate);
        self.rate = (self.rate * keeps).max(self.limits.floor);
        self.busy = 0.0;
        self.last = None;
        self.cuts += 1;
    }

    /// The rate that the limiter should have, if it has another one.
    pub(super) fn take_change(&mut self) -> Option<Rate> {
        let is_at_bound = self.rate == self.limits.floor || self.rate == self.limits.ceiling;
        let difference = (self.rate - self.set).abs();
        if difference > NOTICEABLE * self.set || is_at_bound && difference > 0.0 {
            self.set = self.rate;
            return Rate::try_per_second(self.rate).ok();
        }
        None
    }
}
