//! Guava's `SmoothWarmingUp`.
//!
//! Permits arrive at a steady rate, but more slowly at first after an idle time, so that a cold service is
//! not hit at full rate. Unused permits are stored here too, but drawing a permit costs *more* time the
//! fuller the store is. A new limiter is cold.
//!
//! ```text
//!    time per          cold +                         /
//!    permit                 |                        /:
//!                           |                       / :   area of the trapezoid
//!                           |                      /  :   = warm_up
//!                    stable +---------------------/   :
//!                           |        area         :   :
//!                           |     = warm_up/2     :   :
//!                           +---------------------+---+--> stored permits
//!                           0             threshold   max
//! ```
//!
//! Guava's formulas: `cold = cold_factor x stable`, `threshold = warm_up / 2 / stable`,
//! `max = threshold + 2 warm_up / (stable + cold)`; the store fills from empty to full in one `warm_up`. A
//! caller waits for the next free ticket, and its cost moves the ticket for the next caller. The cost is the
//! area under the curve for the permits drawn from the store, plus `stable` for each other permit.
//!
//! # How it is computed
//!
//! The store is kept as *time*: `s`, the stored idle time, from 0 to `warm_up`. Filling is exact, drawing a permit
//! subtracts `warm_up / max`, and a change of the rate leaves the store, as Guava's scaling does. `n` permits cost
//! `n x stable + ramp(s before) - ramp(s after)`, where
//! `ramp(s) = warm_up x (cold_factor - 1) / (cold_factor + 1) x ((s - threshold) / (max - threshold))^2`
//! (zero below the threshold, all lengths as time). The steady part is an exact multiple, and the ramp cancels between
//! calls: nothing drifts, and `n` permits at once cost the same as `n` single ones.
//!
//! Source: Guava, `SmoothRateLimiter` (`tests/guava/traces.rs` replays it). Units: nanoseconds with 64 fractional
//! bits, so an interval is off by less than 2^-64 ns, and 2^62 of them by less than a nanosecond. Grants are rounded
//! up to whole nanoseconds; the ramp is a float, exact to about 2^-50 of the warm-up.

use super::prelude::*;

/// A time or a span of time: nanoseconds times 2^64.
type Fine = u128;

const NANOSECOND: Fine = 1 << 64;

fn fine(nanos: u64) -> Fine {
    Fine::from(nanos) << 64
}

/// Whole nanoseconds, rounded up.
fn ceil(time: Fine) -> Nanos {
    Nanos::new(u64::try_from(time.div_ceil(NANOSECOND)).unwrap_or(u64::MAX))
}

fn times(span: Fine, n: u32) -> Fine {
    span.saturating_mul(n.into())
}

/// A steady rate that is approached slowly after a pause.
///
/// For services that need time to reach full speed, for example to fill caches or open connections. **The
/// first request is granted at once, however large**, and the next one waits for it. From then on the time
/// between permits falls from `cold_factor x stable` to `stable` over `warm_up`. Idle time cools the limiter
/// again; after `warm_up` without calls it is cold. In any span of time `t` at most `rate x (t + catch_up)`
/// permits plus one request are granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothWarmingUp};
///
/// let clock = ManualClock::auto_advance();
/// let policy = SmoothWarmingUp::new(Rate::per_second(2.0), Duration::from_secs(3));
/// let limiter = RateLimiter::with_clock(policy, clock);
/// let mut waits = Vec::new();
/// for _ in 0..6 {
///     waits.push(limiter.blocking_acquire(1)?.waited().as_millis());
/// }
/// assert_eq!(waits, [0, 1333, 1000, 666, 500, 500]);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothWarmingUp {
    pub(crate) rate: Rate,
    pub(crate) warm_up: Duration,
    pub(crate) cold_factor: f64,
    pub(crate) catch_up: Duration,
    curve: Curve,
}

/// The trapezoid, with lengths as time.
#[derive(Clone, Debug, PartialEq)]
struct Curve {
    /// The time between two permits when warm.
    stable: Fine,
    /// The time that drawing one permit takes from the store.
    refill: Fine,
    /// A full store.
    full: Fine,
    /// The part of the store below the threshold.
    flat: Fine,
    /// The part above it.
    steep: f64,
    /// The whole area of the ramp above `stable`.
    ramp: f64,
    /// The same, as a full store costs it.
    whole: Fine,
    /// The maximum number of permits of one request.
    most: u64,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)] // the ramp is a float
impl Curve {
    fn new(rate: Rate, warm_up: Duration, cold: f64) -> Self {
        let (permits, nanos) = rate.fraction();
        let permits = u128::from(permits);
        let stable = ((nanos / permits) << 64) | (((nanos % permits) << 64) / permits);
        let full = fine(saturating_nanos(warm_up));
        let steep = (full as f64 * 4.0 / (5.0 + cold)) as Fine;
        // `stable x 2 (1 + cold) / (5 + cold)`: with the default cold factor it is `stable`, and exact.
        let more = (stable as f64 * ((cold - 3.0) / (5.0 + cold))) as i128;
        // Without the ramp, which is at most a warm-up and for which the ticket has room.
        let most = fine(saturating_nanos(Nanos::HORIZON)) / stable;
        let ramp = full as f64 * ((cold - 1.0) / (cold + 1.0));
        Self {
            stable,
            refill: stable.saturating_add_signed(more),
            full,
            flat: full - steep,
            steep: steep as f64,
            ramp,
            whole: ramp as Fine,
            most: u64::try_from(most).unwrap_or(u64::MAX),
        }
    }

    /// The part of the ramp in the cost of drawing the store from `stored` to empty. A fuller store costs no less.
    fn ramp_below(&self, stored: Fine) -> Fine {
        // Warm and cold limiters are the most common, and these conversions are most of a charge.
        if stored <= self.flat {
            return 0;
        }
        if stored == self.full {
            return self.whole;
        }
        let part = (stored - self.flat) as f64 / self.steep;
        (self.ramp * part * part) as Fine
    }
}

// The cold factor is never NaN.
impl Eq for SmoothWarmingUp {}

impl SmoothWarmingUp {
    /// `rate`, approached over `warm_up`, from three times the stable interval.
    ///
    /// # Panics
    ///
    /// If `warm_up` is zero, which would mean no warm-up at all (Guava then stops limiting), or
    /// longer than the [horizon](Nanos::HORIZON) of 146 years.
    #[must_use]
    #[track_caller]
    pub fn new(rate: Rate, warm_up: Duration) -> Self {
        assert!(!warm_up.is_zero(), "a warm-up must not be zero; use SmoothBursty for none");
        assert!(warm_up <= Nanos::HORIZON, "a warm-up must not exceed 146 years");
        let cold_factor = 3.0;
        let curve = Curve::new(rate, warm_up, cold_factor);
        Self { rate, warm_up, cold_factor, catch_up: TWO_TICKS, curve }
    }

    /// Sets the factor by which the interval of a cold limiter exceeds the stable one: 3 by default, and 1 for no warm-up.
    ///
    /// # Panics
    ///
    /// If `cold_factor` is not a number from 1 to 1e9.
    #[must_use]
    #[track_caller]
    pub fn cold_factor(self, cold_factor: f64) -> Self {
        assert!(
            (1.0..=1e9).contains(&cold_factor),
            "a cold factor must be from 1 to 1e9, not {cold_factor}"
        );
        Self { cold_factor, curve: Curve::new(self.rate, self.warm_up, cold_factor), ..self }
    }

    /// The maximum wake-up lateness that is credited back, 2 ms by default. At high rates `rate x catch_up`
    /// permits may be granted closer together than the rate allows.
    #[must_use]
    pub fn with_catch_up(self, catch_up: Duration) -> Self {
        Self { catch_up, ..self }
    }
}

/// The state of a [`SmoothWarmingUp`] limiter: its next free ticket and its stored idle time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothWarmingUpState {
    ticket: Fine,
    /// The stored idle time: zero when warm, the whole warm-up when cold.
    stored: Fine,
    /// The number of charges, less those refunded as if they had never been made.
    charges: u64,
    /// The end of the last pause: no refund reaches further back.
    resumed: Nanos,
}

impl SmoothWarmingUpState {
    /// Adds the idle time up to `now` to the store. Less than a nanosecond stays in the ticket; otherwise each
    /// grant, rounded up to a whole nanosecond, would lose the fraction.
    #[inline(always)]
    fn settle(&mut self, now: Nanos, full: Fine) {
        let now = fine(now.get());
        let idle = now.saturating_sub(self.ticket);
        if idle >= NANOSECOND {
            self.stored = self.stored.saturating_add(idle).min(full);
            self.ticket = now;
        }
    }
}

/// The receipt of a charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothWarmingUpReceipt {
    permits: u32,
    at: Nanos,
    /// The price of a permit at the time of the charge, without the ramp.
    stable: Fine,
    /// The distance by which the ticket moved, and how much less was stored then; it may be negative. Not the
    /// stored time before: idle time that was stored since stays when the charge is undone.
    moved: Fine,
    drawn: i128,
    charges: u64,
}

impl Policy for SmoothWarmingUp {
    type Cost = u32;
    type State = SmoothWarmingUpState;
    type Receipt = SmoothWarmingUpReceipt;

    fn start(&self, now: Nanos) -> SmoothWarmingUpState {
        let (ticket, stored) = (fine(now.get()), self.curve.full);
        SmoothWarmingUpState { ticket, stored, charges: 0, resumed: Nanos::ZERO }
    }

    /// The time at which the store is full.
    fn idle_at(&self, state: &SmoothWarmingUpState) -> Option<Nanos> {
        let missing = self.curve.full.saturating_sub(state.stored);
        Some(ceil(state.ticket.saturating_add(missing)))
    }

    #[inline]
    fn ready_at(&self, state: &Self::State, _: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
        if u64::from(n) > self.curve.most {
            return Err(ExceedsCapacity::new(n, self.curve.most));
        }
        Ok(Ready::At(ceil(state.ticket)))
    }

    #[inline(always)]
    fn charge(&self, state: &mut Self::State, at: Nanos, permits: u32) -> SmoothWarmingUpReceipt {
        let before = *state;
        state.settle(at, self.curve.full);
        let ramp = self.curve.ramp_below(state.stored);
        let [drawn, steady] = [self.curve.refill, self.curve.stable].map(|one| times(one, permits));
        state.stored = state.stored.saturating_sub(drawn);
        let ramp = ramp - self.curve.ramp_below(state.stored);
        state.ticket = state.ticket.saturating_add(steady).saturating_add(ramp);
        state.charges += 1;
        let SmoothWarmingUpState { ticket, stored, charges, .. } = *state;
        let (moved, stable) = (ticket.saturating_sub(before.ticket), self.curve.stable);
        let drawn = before.stored.cast_signed() - stored.cast_signed();
        SmoothWarmingUpReceipt { permits, at, stable, moved, drawn, charges }
    }

    fn refund(
        &self,
        state: &mut Self::State,
        now: Nanos,
        part: u32,
        receipt: SmoothWarmingUpReceipt,
    ) -> SmoothWarmingUpReceipt {
        let rest = receipt.permits.saturating_sub(part);
        let is_same_price = rest == 0 || receipt.stable == self.curve.stable;
        if state.charges == receipt.charges && is_same_price {
            // As if only the rest had been charged, or nothing.
            let resumed = fine(state.resumed.get()).min(state.ticket);
            state.ticket = state.ticket.saturating_sub(receipt.moved).max(resumed);
            state.stored = state.stored.saturating_add_signed(receipt.drawn).min(self.curve.full);
            state.charges -= 1;
            if rest > 0 {
                return self.charge(state, receipt.at, rest);
            }
        } else if receipt.at >= state.resumed {
            // There is a later charge, or another rate. Refund at the price that was paid, without the ramp, but at most the
            // part that time has not restored yet, and nothing across a pause: see `Schedule::refund`.
            let price = |permits| times(receipt.stable, permits);
            let until = fine(receipt.at.get()).saturating_add(price(receipt.permits));
            let left = until.saturating_sub(fine(now.get()));
            state.ticket = state.ticket.saturating_sub(price(part).min(left));
        }
        let moved = receipt.moved.saturating_sub(times(receipt.stable, part));
        SmoothWarmingUpReceipt { permits: rest, moved, ..receipt }
    }

    fn event(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        if let RuleEvent::Paused(until) = event {
            state.settle(now, self.curve.full);
            state.ticket = state.ticket.max(fine(until.get()));
            state.resumed = state.resumed.max(until);
        }
        now
    }

    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos) {
        state.settle(now, old.curve.full);
        state.stored = state.stored.min(self.curve.full);
    }

    fn available(&self, state: &SmoothWarmingUpState, now: Nanos) -> u32 {
        let mut state = *state;
        state.settle(now, self.curve.full);
        if ceil(state.ticket) > now {
            return 0;
        }
        u32::try_from(state.stored / self.curve.refill).unwrap_or(u32::MAX)
    }

    #[inline]
    fn facts(&self, _: usize) -> Facts {
        let facts = Facts::rate(self.rate);
        Facts { kind: Some(Kind::SmoothWarmingUp), catch_up: self.catch_up, ..facts }
    }
}

impl Rated for SmoothWarmingUp {
    fn rate(&self) -> Rate {
        self.rate
    }

    fn with_rate(self, rate: Rate) -> Self {
        Self { rate, curve: Curve::new(rate, self.warm_up, self.cold_factor), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST: u64 = 1 << 62;

    /// All rates, including the ends of the range.
    fn rates() -> impl Strategy<Value = Rate> {
        (-4.95f64..=9.05)
            .prop_map(|exponent| Rate::per_second(10f64.powf(exponent).clamp(1.0 / 86_400.0, 1e9)))
    }

    /// From a nanosecond to 146 years, all sizes with equal frequency.
    fn warm_ups() -> impl Strategy<Value = Duration> {
        (0..=62u32, any::<u64>()).prop_map(|(size, rest)| {
            let least = 1 << size;
            Duration::from_nanos((least + rest % least).min(LONGEST))
        })
    }

    fn policies() -> impl Strategy<Value = SmoothWarmingUp> {
        let cold_factors = prop_oneof![
            1 => Just(1.0),
            1 => Just(3.0),
            1 => Just(1e9),
            5 => (0.0..=9f64).prop_map(|exponent| 10f64.powf(exponent).min(1e9)),
        ];
        (rates(), warm_ups(), cold_factors).prop_map(|(rate, warm_up, cold_factor)| {
            SmoothWarmingUp::new(rate, warm_up).cold_factor(cold_factor)
        })
    }

    /// Nanoseconds of all sizes, and the fractional bits.
    fn spans() -> impl Strategy<Value = Fine> {
        (0..=62u32, any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
            |(size, rest, fraction, is_whole)| {
                fine(rest % (1 << size)) + if is_whole { 0 } else { fraction.into() }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// A store that is less full costs no more.
        #[test]
        fn the_ramp_rises_with_the_store(policy in policies(), stored in spans(), less in spans()) {
            let curve = &policy.curve;
            let stored = stored.min(curve.full);
            let lower = stored.saturating_sub(less);
            prop_assert!(curve.ramp_below(lower) <= curve.ramp_below(stored));
        }
    }
}
