//! `SmoothWarmingUp` in Guava's own formulas, in permits and floating point.
//!
//! All times stay below 2^47 ns, where an `f64` counts 1/64 ns; a store holds at most some thousand
//! permits and its area is off by less than 2^-40 of the warm-up. Together with rounding up to
//! whole nanoseconds the two sides stay within 8 ns of each other.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::SmoothWarmingUp;

use crate::history::History;
use crate::measure;
use crate::oracle::{Conforms, Fraction, Oracle, Scale, Scales, TICKS, Time, When, nanos, time};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) rate: Fraction,
    pub(crate) warm_up: Time,
    pub(crate) cold_factor: f64,
}

#[derive(Clone, Debug)]
struct WarmingUp {
    versions: Vec<Version>,
    charges: Vec<Charge>,
    /// Whether the last charge was given back, as if it had never been made.
    is_undone: bool,
    stored: f64,
    /// The next free ticket, in nanoseconds.
    ticket: f64,
    stable: f64,
    warm_up: f64,
    cold_factor: f64,
    paused_until: f64,
}

/// The cost of a charge, and the state before it.
#[derive(Clone, Copy, Debug)]
struct Charge {
    id: usize,
    at: Time,
    steady: f64,
    ticket: f64,
    /// The store, as the idle time that fills it.
    idle: f64,
}

impl WarmingUp {
    /// Cold, as Guava starts.
    fn new(versions: &[Version]) -> Self {
        let Version { rate, warm_up, cold_factor } = versions[0];
        let mut cold = Self {
            versions: versions.to_vec(),
            charges: Vec::new(),
            is_undone: false,
            stored: 0.0,
            ticket: 0.0,
            stable: interval(rate),
            warm_up: float(warm_up),
            cold_factor,
            paused_until: f64::MIN,
        };
        cold.stored = cold.max();
        cold
    }

    fn threshold(&self) -> f64 {
        0.5 * self.warm_up / self.stable
    }

    fn max(&self) -> f64 {
        let cold = self.stable * self.cold_factor;
        self.threshold() + 2.0 * self.warm_up / (self.stable + cold)
    }

    /// The idle time for one stored permit.
    fn cool_down(&self) -> f64 {
        self.warm_up / self.max()
    }

    /// The time of one permit with `stored` permits in the store: the height of the trapezoid.
    fn height(&self, stored: f64) -> f64 {
        let above = (stored - self.threshold()).max(0.0);
        let slope = (self.cold_factor - 1.0) * self.stable / (self.max() - self.threshold());
        self.stable + above * slope
    }

    /// The area between two numbers of stored permits: a rectangle up to the threshold, and a
    /// trapezoid above it.
    fn area(&self, from: f64, to: f64) -> f64 {
        let corner = self.threshold().clamp(from, to);
        let (left, right) = (self.height(corner), self.height(to));
        (corner - from) * self.stable + (to - corner) * (left + right) / 2.0
    }

    /// Guava's `resync`. Less than a nanosecond comes from rounding a grant up, not from idling.
    fn settle(&mut self, now: Time) {
        let idle = float(now) - self.ticket;
        if idle >= 1.0 {
            self.stored = (self.stored + idle / self.cool_down()).min(self.max());
            self.ticket = float(now);
        }
    }
}

impl Oracle for WarmingUp {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, _: Time, _: u32) -> When {
        When::At(whole(self.ticket.ceil()))
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        let (ticket, idle) = (self.ticket, self.stored * self.cool_down());
        self.settle(at);
        let permits = f64::from(n);
        let from_store = permits.min(self.stored);
        let area = self.area(self.stored - from_store, self.stored);
        self.stored -= from_store;
        self.ticket += area + (permits - from_store) * self.stable;
        self.is_undone = false;
        self.charges.push(Charge { id, at, steady: permits * self.stable, ticket, idle });
    }

    fn refund(&mut self, id: usize, now: Time) {
        let Some(index) = self.charges.iter().position(|charge| charge.id == id) else { return };
        let is_last = index + 1 == self.charges.len();
        let Charge { at, steady, ticket, idle, .. } = self.charges.remove(index);
        if is_last && (measure::KNOWS_BEFORE_LAST || !self.is_undone) {
            self.is_undone = true;
            self.stored = (idle / self.cool_down()).min(self.max());
            self.ticket = ticket.max(self.paused_until);
        } else {
            // The warmth stays.
            self.ticket -= (float(at) + steady - float(now)).clamp(0.0, steady);
            self.ticket = self.ticket.max(self.paused_until);
        }
    }

    fn pause(&mut self, now: Time, until: Time) {
        self.settle(now);
        self.paused_until = self.paused_until.max(float(until));
        self.ticket = self.ticket.max(float(until));
    }

    /// The store stays the same time.
    fn set_policy(&mut self, index: usize, now: Time) {
        self.settle(now);
        let idle = self.stored * self.cool_down();
        let Version { rate, warm_up, cold_factor } = self.versions[index];
        (self.stable, self.warm_up) = (interval(rate), float(warm_up));
        self.cold_factor = cold_factor;
        self.stored = (idle / self.cool_down()).min(self.max());
    }
}

impl Conforms for SmoothWarmingUp {
    type Policy = Self;
    type Version = Version;

    const CATCHES_UP: bool = true;
    const PREPAID: bool = true;
    const COOLS: bool = true;
    const SCALES: Scales = Scales::Rounded;

    fn version(Scale { rate, span, is_lean, .. }: Scale) -> BoxedStrategy<Version> {
        // The same for all versions, because a refund under another warm-up is only roughly what
        // the oracle says: half a permit to fifty.
        let warm_up = if is_lean { 16 * rate.nanos_each() } else { 4 * span };
        let cold_factor = match span % 3 {
            0 => 1.0,
            1 => 3.0,
            _ => 1.0 + float(span % 190) / 10.0,
        };
        Just(Version { rate, warm_up, cold_factor }).boxed()
    }

    fn policy(version: &Version, catch_up: Duration) -> Self {
        Self::new(version.rate.rate(), nanos(version.warm_up))
            .cold_factor(version.cold_factor)
            .with_catch_up(catch_up)
    }

    fn oracle(versions: &[Version]) -> Box<dyn Oracle> {
        Box::new(WarmingUp::new(versions))
    }

    fn kept(versions: &[Version], history: &History) -> Result<(), String> {
        history.prepaid(|version| versions[version].rate.interval(), |_| 0)
    }

    fn cost(n: u32) -> u32 {
        n
    }

    fn ramp(version: &Version) -> Time {
        3 * version.warm_up
    }

    fn with_thousand(rate: Fraction) -> Option<Version> {
        Some(Version { rate, warm_up: time(Duration::from_secs(1)), cold_factor: 3.0 })
    }
}

#[allow(clippy::cast_precision_loss)] // see the error bound above
fn interval(rate: Fraction) -> f64 {
    rate.interval() as f64 / TICKS as f64
}

#[allow(clippy::cast_precision_loss)]
fn float(time: Time) -> f64 {
    time as f64
}

#[allow(clippy::cast_possible_truncation)] // stops at the ends, where no script comes
fn whole(time: f64) -> Time {
    time as Time
}
