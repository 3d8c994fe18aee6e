//! `SmoothBursty` in exact fractions.
//!
//! `v` is the time of the next free ticket. A charge of `n` at `t` makes it
//! `max(v, t - max_burst) + n x interval`. All times are whole numbers of ticks, so nothing is ever
//! rounded but the moment of a grant.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::SmoothBursty;

use crate::oracle::{
    Conforms, Fraction, Oracle, Setup, TICKS, Time, fractions, powers_of_two, related, time,
};

#[derive(Clone, Debug)]
pub(crate) struct Bursty {
    v: i128,
    interval: i128,
    max_burst: i128,
    /// No credit accrues before this: the end of the last pause.
    paused_until: i128,
}

impl Bursty {
    pub(crate) fn new(rate: Fraction, max_burst: Time) -> Self {
        Self {
            v: 0,
            interval: rate.interval(),
            max_burst: max_burst * TICKS,
            paused_until: i128::MIN,
        }
    }

    /// A store is never fuller than `max_burst`. Grants fall on whole nanoseconds; what one loses by
    /// that is not idle time, or a burst of zero would lose it at each.
    fn settle(&mut self, now: Time) {
        if now * TICKS - self.v >= self.max_burst + TICKS {
            self.v = now * TICKS - self.max_burst;
        }
    }
}

impl Oracle for Bursty {
    type Price = i128;

    fn due(&self) -> Time {
        -(-self.v).div_euclid(TICKS)
    }

    fn charge(&mut self, at: Time, n: u32) -> i128 {
        self.settle(at);
        let price = self.interval * i128::from(n);
        self.v += price;
        price
    }

    fn refund(&mut self, now: Time, at: Time, price: i128, last: bool) {
        let left = (at * TICKS + price - now * TICKS).clamp(0, price);
        self.v -= if last { price } else { left };
        self.v = self.v.max(self.paused_until);
    }

    fn pause(&mut self, _: Time, until: Time) {
        self.paused_until = self.paused_until.max(until * TICKS);
        self.v = self.v.max(until * TICKS);
    }

    fn set_rate(&mut self, now: Time, rate: Fraction) {
        self.settle(now);
        self.interval = rate.interval();
    }
}

impl Conforms for SmoothBursty {
    type Oracle = Bursty;

    fn setups() -> BoxedStrategy<Setup> {
        let setup = |rates: Vec<Fraction>, max_burst, lenient: bool, tolerance| Setup {
            rates,
            max_burst: Duration::from_nanos(max_burst),
            warm_up: Duration::ZERO,
            cold_factor: 0.0,
            catch_up: if lenient { Duration::from_millis(2) } else { Duration::ZERO },
            tolerance,
        };
        // A store that is never full: what it rounds to is then never seen.
        let exact =
            (related(powers_of_two(), prop_oneof![Just(2u64), Just(4), Just(32)]), any::<bool>())
                .prop_map(move |(rates, lenient)| setup(rates, 1 << 60, lenient, 0));
        let bursts = prop_oneof![Just(0u64), 1u64..64, Just(400)];
        let rounded = (related(fractions(), 2u64..20), bursts, any::<bool>()).prop_map(
            move |(rates, eighths, lenient)| {
                let burst = rates[0].nanos * eighths / rates[0].permits / 8;
                setup(rates, burst, lenient, 8)
            },
        );
        prop_oneof![exact, rounded].boxed()
    }

    fn policy(setup: &Setup) -> Self {
        Self::new(setup.rates[0].rate()).max_burst(setup.max_burst).with_catch_up(setup.catch_up)
    }

    fn oracle(setup: &Setup) -> Bursty {
        Bursty::new(setup.rates[0], time(setup.max_burst))
    }

    fn stored_time(setup: &Setup) -> Time {
        time(setup.max_burst)
    }

    fn ramp(_: &Setup) -> Time {
        0
    }
}
