//! A reference model of the `SmoothBursty` and `SmoothWarmingUp` of Guava 31.1, down to the last
//! bit.
//!
//! It is what the traces show, written as code: doubles for permits, whole microseconds for the
//! ticket and the clock, every cost cut toward zero. The order of the operations matters
//! throughout: another one gives other bits. Guava's faults (a zero warm-up that ends in NaN, a
//! cost that wraps, a ticket that saturates and stays) are here on purpose.

use super::trace;

/// A limiter and its fake stopwatch in one.
#[derive(Debug)]
pub(crate) struct Model {
    kind: Kind,
    stored: f64,
    max: f64,
    /// Microseconds a permit.
    interval: f64,
    /// Guava's `nextFreeTicketMicros`.
    ticket: i64,
    now: i64,
}

#[derive(Debug)]
enum Kind {
    Bursty { max_burst_seconds: f64 },
    WarmingUp { warm_up: i64, cold_factor: f64, threshold: f64, slope: f64 },
}

impl Model {
    pub(crate) fn new(limiter: trace::Limiter) -> Self {
        let kind = match limiter.kind {
            trace::Kind::Bursty { max_burst_seconds } => Kind::Bursty { max_burst_seconds },
            trace::Kind::WarmingUp { warm_up_micros, cold_factor } => {
                Kind::WarmingUp { warm_up: warm_up_micros, cold_factor, threshold: 0.0, slope: 0.0 }
            }
        };
        let mut model = Self { kind, stored: 0.0, max: 0.0, interval: 0.0, ticket: 0, now: 0 };
        model.set_rate(limiter.permits_per_second);
        model
    }

    pub(crate) fn advance(&mut self, micros: i64) {
        self.now += micros;
    }

    /// Takes the permits and sleeps until the debt before them is paid. Returns the microseconds
    /// slept.
    pub(crate) fn acquire(&mut self, permits: u32) -> i64 {
        self.resync();
        let slept = self.ticket.wrapping_sub(self.now).max(0);
        self.reserve(f64::from(permits));
        self.now += slept;
        slept
    }

    /// `None` where the debt is longer than the timeout. The subtraction wraps, as in Java.
    pub(crate) fn try_acquire(&mut self, permits: u32, timeout: i64) -> Option<i64> {
        let may = self.ticket.wrapping_sub(timeout.max(0)) <= self.now;
        may.then(|| self.acquire(permits))
    }

    pub(crate) fn set_rate(&mut self, permits_per_second: f64) {
        self.resync();
        self.interval = 1e6 / permits_per_second;
        let old_max = self.max;
        // The store if there was no proportion to keep: (after an infinite maximum, after none).
        let (after_infinite, after_none) = match &mut self.kind {
            Kind::Bursty { max_burst_seconds } => {
                self.max = *max_burst_seconds * permits_per_second;
                (self.max, 0.0)
            }
            Kind::WarmingUp { warm_up, cold_factor, threshold, slope } => {
                let warm_up = double(*warm_up);
                let cold = self.interval * *cold_factor;
                *threshold = (0.5 * warm_up) / self.interval;
                self.max = *threshold + (2.0 * warm_up) / (self.interval + cold);
                *slope = (cold - self.interval) / (self.max - *threshold);
                (0.0, self.max)
            }
        };
        self.stored = if old_max == f64::INFINITY {
            after_infinite
        } else if old_max == 0.0 {
            after_none
        } else {
            (self.stored * self.max) / old_max
        };
    }

    /// The result of `getRate`: not always the rate that was set, because it is computed back from
    /// the interval.
    pub(crate) fn rate(&self) -> f64 {
        1e6 / self.interval
    }

    pub(crate) fn max_permits(&self) -> f64 {
        self.max
    }

    pub(crate) fn state(&self) -> trace::State {
        trace::State {
            stored_permits: self.stored,
            next_free_micros: self.ticket,
            now_micros: self.now,
        }
    }

    /// Credits the idle time, if there was any.
    fn resync(&mut self) {
        if self.now > self.ticket {
            let refill = match self.kind {
                Kind::Bursty { .. } => self.interval,
                Kind::WarmingUp { warm_up, .. } => double(warm_up) / self.max,
            };
            let idle = double(self.now.wrapping_sub(self.ticket));
            self.stored = java_min(self.max, self.stored + idle / refill);
            self.ticket = self.now;
        }
    }

    /// Moves the ticket by the cost: what the store has first, the rest fresh.
    fn reserve(&mut self, permits: f64) {
        let take = java_min(permits, self.stored);
        let fresh = permits - take;
        let cost = self.stored_cost(take).wrapping_add(cut(fresh * self.interval));
        self.ticket = self.ticket.saturating_add(cost);
        self.stored -= take;
    }

    /// The price of permits out of the store: nothing (bursty), or the area under the trapezoid
    /// (warming up).
    fn stored_cost(&self, mut take: f64) -> i64 {
        let Kind::WarmingUp { threshold, slope, .. } = self.kind else {
            return 0;
        };
        let above = self.stored - threshold;
        let mut cost = 0;
        if above > 0.0 {
            let steep = java_min(above, take);
            let price = |permits: f64| self.interval + permits * slope;
            cost = cut((steep * (price(above) + price(above - steep))) / 2.0);
            take -= steep;
        }
        cost.wrapping_add(cut(self.interval * take))
    }
}

/// Java's `Math.min`: NaN if either side is. Rust's `f64::min` would give the other side.
fn java_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

/// Java's cast of a double to a long: toward zero, NaN to 0, else to the nearer end. Rust's `as` is
/// the same.
#[expect(clippy::cast_possible_truncation, reason = "truncated as Guava does")]
fn cut(micros: f64) -> i64 {
    micros as i64
}

/// Java's cast of a long to a double: to the nearest. Rust's `as` is the same.
fn double(micros: i64) -> f64 {
    micros as f64
}
