//! `SmoothWarmingUp` in Guava's own formulas, in permits and floating point.
//!
//! All times stay below 2^47 ns, where an `f64` counts 1/64 ns; a store holds at most some thousand
//! permits and its area is off by less than 2^-40 of the warm-up. Together with rounding up to
//! whole nanoseconds the two sides stay within 8 ns of each other.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::SmoothWarmingUp;

use crate::oracle::{Conforms, Fraction, Oracle, Setup, TICKS, Time, fractions, related, time};

#[derive(Clone, Copy, Debug)]
pub(crate) struct WarmingUp {
    stored: f64,
    /// The next free ticket, in nanoseconds.
    ticket: f64,
    stable: f64,
    warm_up: f64,
    cold_factor: f64,
    paused_until: f64,
}

/// What a charge came to, and the state before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    steady: f64,
    ticket: f64,
    stored: f64,
    max: f64,
}

impl WarmingUp {
    /// Cold, as Guava starts.
    pub(crate) fn new(rate: Fraction, warm_up: Duration, cold_factor: f64) -> Self {
        let mut cold = Self {
            stored: 0.0,
            ticket: 0.0,
            stable: interval(rate),
            warm_up: float(i128::try_from(warm_up.as_nanos()).expect("a warm-up")),
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

    /// How long a permit takes with so many stored: the height of the trapezoid.
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
            let cool_down = self.warm_up / self.max();
            self.stored = (self.stored + idle / cool_down).min(self.max());
            self.ticket = float(now);
        }
    }
}

impl Oracle for WarmingUp {
    type Price = Price;

    fn due(&self) -> Time {
        whole(self.ticket.ceil())
    }

    fn charge(&mut self, at: Time, n: u32) -> Price {
        let before = *self;
        self.settle(at);
        let permits = f64::from(n);
        let from_store = permits.min(self.stored);
        let area = self.area(self.stored - from_store, self.stored);
        self.stored -= from_store;
        self.ticket += area + (permits - from_store) * self.stable;
        let WarmingUp { ticket, stored, .. } = before;
        Price { steady: permits * self.stable, ticket, stored, max: self.max() }
    }

    fn refund(&mut self, now: Time, at: Time, price: Price, last: bool) {
        if last {
            // The rate may have changed meanwhile; see `set_rate`.
            self.stored = price.stored * self.max() / price.max;
            self.ticket = price.ticket;
        } else {
            // The warmth stays.
            self.ticket -= (float(at) + price.steady - float(now)).clamp(0.0, price.steady);
        }
        self.ticket = self.ticket.max(self.paused_until);
    }

    fn pause(&mut self, now: Time, until: Time) {
        self.settle(now);
        self.paused_until = self.paused_until.max(float(until));
        self.ticket = self.ticket.max(float(until));
    }

    fn set_rate(&mut self, now: Time, rate: Fraction) {
        self.settle(now);
        let old_max = self.max();
        self.stable = interval(rate);
        self.stored *= self.max() / old_max;
    }
}

impl Conforms for SmoothWarmingUp {
    type Oracle = WarmingUp;

    fn setups() -> BoxedStrategy<Setup> {
        let cold_factors = prop_oneof![Just(1.0), Just(3.0), 1.0f64..20.0];
        (related(fractions(), 2u64..20), 1u64..200, cold_factors, any::<bool>())
            .prop_map(|(rates, quarters, cold_factor, lenient)| {
                let warm_up = rates[0].nanos * quarters / rates[0].permits / 4;
                Setup {
                    rates,
                    max_burst: Duration::ZERO,
                    warm_up: Duration::from_nanos(warm_up.max(1)),
                    cold_factor,
                    catch_up: if lenient { Duration::from_millis(2) } else { Duration::ZERO },
                    tolerance: 8,
                }
            })
            .boxed()
    }

    fn policy(setup: &Setup) -> Self {
        Self::new(setup.rates[0].rate(), setup.warm_up)
            .cold_factor(setup.cold_factor)
            .with_catch_up(setup.catch_up)
    }

    fn oracle(setup: &Setup) -> WarmingUp {
        WarmingUp::new(setup.rates[0], setup.warm_up, setup.cold_factor)
    }

    fn stored_time(_: &Setup) -> Time {
        0
    }

    fn ramp(setup: &Setup) -> Time {
        3 * time(setup.warm_up)
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
