//! A clock that counts permits: the exact arithmetic of the policies with one steady rate.
//!
//! One 128-bit multiplication converts time into *units*: `position(t) = floor(t x multiplier / 2^63)`. A permit is a power
//! of two of units. So a cost is a whole number of units, and sums of costs never round. Only the conversion of a time
//! rounds: down, by less than a unit, and always from the clock's origin, so the error does not accumulate. The rate
//! determines the unit, between half a nanosecond and one nanosecond. The multiplier has 64 significant bits, so the rate
//! is off by less than 1 part in 2^62. Grants are rounded up to whole nanoseconds.

use super::ready::Ready;
use super::refund_levels::RefundLevels;
use crate::error::ExceedsCapacity;
use crate::units::{Nanos, Rate};
use std::time::Duration;

/// Converts times into positions for one rate, and charges costs against a bounded store. This is the whole
/// rule of each policy with one steady rate, except the one that warms up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Schedule {
    /// Units per nanosecond, times 2^63: at least 2^63, so one to two units a nanosecond.
    pub(crate) multiplier: u64,
    /// Nanoseconds per unit, times 2^63, rounded down. A division would take longer than the rest of a
    /// decision.
    pub(crate) inverse: u64,
    /// A permit is 2^shift units.
    pub(crate) shift: u8,
    /// The maximum that may be stored, in units.
    pub(crate) burst: u64,
    /// The maximum number of permits of one request.
    pub(crate) most: u64,
    /// Whether all permits of a request must be stored. If not, a request waits only for those before it.
    pub(crate) strict: bool,
    /// Whether no more permits may be owed and queued than one request may have.
    pub(crate) is_queue: bool,
    /// The nanoseconds from one step to the next; zero if permits come continuously.
    pub(crate) period: u64,
}

/// The decision of a call by a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<G> {
    Granted(G),
    /// Ready at this time.
    ReadyAt(Nanos),
    /// It takes the whole state, under its lock.
    Undecided,
}

/// Below this a slot of time is not worth a visit to the mutex.
const SHORTEST_SLOT: Duration = Duration::from_millis(1);

/// The receipt of a charge of [`SmoothBursty`](crate::SmoothBursty), [`TokenBucket`](crate::TokenBucket),
/// [`Gcra`](crate::Gcra) or [`LeakyBucket`](crate::LeakyBucket).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    pub(crate) permits: u64,
    /// The nanoseconds that the permits took, at the price of the time of the charge.
    pub(crate) span: u64,
    /// The state's [`mark`](RateState::mark) right after the charge.
    pub(crate) mark: u64,
}

/// The state of a policy with one steady rate: the position up to which its permits are taken. For
/// [`SmoothBursty`](crate::SmoothBursty) this is the next free ticket, for a
/// [`TokenBucket`](crate::TokenBucket) the time at which it was empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateState {
    pub(crate) position: i128,
    /// The distance by which refunds and changes have moved the position. With it a mark identifies one receipt,
    /// although positions can repeat.
    pub(crate) moved: i64,
    /// The end of the last pause.
    pub(crate) resumed: Nanos,
    /// The time from which steps are counted.
    pub(crate) origin: Nanos,
    /// How much of each charge can come back.
    lows: RefundLevels,
}

impl RateState {
    pub(crate) fn new(position: i128) -> Self {
        let (resumed, origin) = (Nanos::ZERO, Nanos::ZERO);
        Self { position, moved: 0, resumed, origin, lows: RefundLevels::NONE }
    }

    /// Distinguishes the last receipt from all others that could still be given back. The low bits are
    /// sufficient for this.
    #[inline]
    fn mark(&self) -> u64 {
        low_bits(self.position + i128::from(self.moved))
    }

    /// Moves the position without changing the mark.
    fn move_to(&mut self, position: i128) {
        let moved = low_bits(self.position - position).cast_signed();
        self.moved = self.moved.wrapping_add(moved);
        self.position = position;
    }

    /// Nothing is charged now, but no charge so far can give back more than `level`.
    fn bound(&mut self, level: i128) {
        self.lows.bound(self.mark(), level);
    }
}

impl Schedule {
    /// A store of `max_burst` of unused time, for requests that wait only for those before them.
    pub(crate) fn new(rate: Rate, max_burst: Duration) -> Self {
        let (permits, nanos) = rate.fraction();
        let (permits_zeros, nanos_zeros) =
            (u128::from(permits).leading_zeros(), nanos.leading_zeros());
        // Both operands have their top bit set, so the quotient has 64 or 65 bits. It is rounded up, so
        // that an interval of whole nanoseconds stays exact.
        let quotient =
            (u128::from(permits) << permits_zeros).div_ceil((nanos << nanos_zeros) >> 64);
        let (multiplier, shift) = match u64::try_from(quotient) {
            Ok(multiplier) => (multiplier, permits_zeros + 1 - nanos_zeros),
            Err(_) => (saturating(quotient.div_ceil(2)), permits_zeros - nanos_zeros),
        };
        let inverse = saturating((1 << 126) / u128::from(multiplier));
        let shift = u8::try_from(shift).unwrap_or(u8::MAX); // at most 47
        let (strict, is_queue, period) = (false, false, 0);
        let schedule =
            Self { multiplier, inverse, shift, burst: 0, most: 0, strict, is_queue, period };
        let burst = Nanos::ZERO.saturating_add(max_burst.min(Nanos::HORIZON));
        let burst = saturating(schedule.position_at(burst).cast_unsigned());
        Self { burst, most: schedule.whole_permits(schedule.horizon()), ..schedule }
    }

    /// A store of `capacity` permits, for requests that wait until all their permits are stored. The store
    /// holds at most the permits of the horizon.
    pub(crate) fn bucket(rate: Rate, capacity: u32) -> Self {
        let mut schedule = Self::new(rate, Duration::ZERO);
        if schedule.shift == 0 {
            // A billion a second. A permit must be more than a unit, by which a position may be too early. It
            // takes a nanosecond then, but for the first one of the clock: see `empty_at`.
            (schedule.multiplier, schedule.inverse, schedule.shift) = (u64::MAX, 1 << 62, 1);
        }
        let burst = schedule.units(u64::from(capacity)).min(schedule.horizon());
        let most = schedule.whole_permits(burst);
        Self { burst: saturating(burst.cast_unsigned()), most, strict: true, ..schedule }
    }

    /// Requests that are granted one after another, while no more than `permits` are owed and queued.
    pub(crate) fn queue(rate: Rate, permits: u32) -> Self {
        let schedule = Self::new(rate, Duration::ZERO);
        Self { most: schedule.most.min(u64::from(permits)), is_queue: true, ..schedule }
    }

    /// The last step before `now`, or `now` if there are no steps.
    #[inline]
    pub(crate) fn last_step(&self, state: &RateState, now: Nanos) -> Nanos {
        if self.period == 0 { now } else { self.last_of_steps(state, now) }
    }

    // Not inlined, because few limiters have steps.
    #[inline(never)]
    fn last_of_steps(&self, state: &RateState, now: Nanos) -> Nanos {
        let past = now.get().saturating_sub(state.origin.get()) % self.period;
        Nanos::new(now.get() - past.min(now.get()))
    }

    /// The first step at which the permit clock has reached its position at `time`.
    pub(crate) fn next_step(&self, state: &RateState, time: Nanos) -> Nanos {
        let last = self.last_step(state, time);
        if last == time { time } else { Nanos::new(last.get().saturating_add(self.period)) }
    }

    /// The position of an empty store. At a billion a second the clock's first nanosecond is a unit short, so a
    /// store that begins there has it in advance.
    fn empty_at(&self, now: Nanos) -> i128 {
        self.position_at(now) - i128::from(now == Nanos::ZERO && self.multiplier == u64::MAX)
    }

    /// A state with nothing stored.
    pub(crate) fn empty(&self, now: Nanos) -> RateState {
        RateState::new(self.empty_at(now))
    }

    /// A state with a full store.
    pub(crate) fn full(&self, now: Nanos) -> RateState {
        RateState::new(self.empty_at(now) - i128::from(self.burst))
    }

    /// The state of a limiter that has been idle for long. Steps are counted from the clock's origin.
    pub(crate) fn idle(&self, now: Nanos) -> RateState {
        let full = self.full(Nanos::ZERO);
        self.full(self.last_step(&full, now))
    }

    /// In 63 bits: the position at which the store is full. `None` if it does not fit, or if a pause is not over. What
    /// only refunds need is left out: there must be no receipt that can be given back.
    #[inline]
    pub(crate) fn pack(&self, state: &RateState, now: Nanos) -> Option<u64> {
        let full = u64::try_from(state.position + i128::from(self.burst)).ok()?;
        (full >> 63 == 0 && state.resumed <= now).then_some(full)
    }

    #[inline]
    pub(crate) fn unpack(&self, word: u64) -> RateState {
        RateState::new(i128::from(word) - i128::from(self.burst))
    }

    /// Decides by a packed state, without steps. With a grant goes the state after it.
    // Numbers below 2^63, so that no sum of two wraps: times before 2^61, words, and what one request may take.
    #[inline(always)]
    pub(crate) fn attempt_packed(
        &self,
        word: u64,
        now: Nanos,
        n: u32,
    ) -> Attempt<(u64, RateReceipt)> {
        let permits = u64::from(n);
        if permits > self.most || now.get() >> 61 != 0 {
            return Attempt::Undecided;
        }
        let Self { multiplier, inverse, burst, .. } = *self;
        let here = position_at(now, multiplier);
        let units = permits << self.shift;
        // The position at which it is ready, and the burst.
        let due = word + if self.strict { units } else { 0 };
        // As `overflow`.
        let next = if here > word + 1 { here } else { word } + units;
        if next >> 63 != 0 {
            return Attempt::Undecided;
        }
        if due > here.saturating_add(burst) {
            return Attempt::ReadyAt(time_of(due.saturating_sub(burst), multiplier, inverse));
        }
        let (span, mark) = (nanos_of(units, inverse), next.wrapping_sub(burst));
        Attempt::Granted((next, RateReceipt { permits, span, mark }))
    }

    /// The time from which the store is full.
    pub(crate) fn full_at(&self, state: &RateState) -> Nanos {
        self.next_step(state, self.time_of(state.position + i128::from(self.burst)))
    }

    /// The position that the permit clock must reach for `permits` to be ready.
    #[inline]
    pub(crate) fn due(&self, position: i128, permits: u64) -> i128 {
        if self.strict { position + self.units(permits) } else { position }
    }

    #[inline]
    pub(crate) fn ready_at(
        &self,
        state: &RateState,
        now: Nanos,
        n: u32,
    ) -> Result<Ready, ExceedsCapacity> {
        if u64::from(n) > self.most {
            return Err(ExceedsCapacity::new(n, self.most));
        }
        let due = self.due(state.position, u64::from(n));
        // Whether it is ready takes less to compute than since when.
        let is_ready = due <= self.position_at(self.last_step(state, now));
        Ok(Ready::At(if is_ready { now } else { self.next_step(state, self.time_of(due)) }))
    }

    /// The time from which `n` permits fit into a queue behind `queued` others. Permits that are granted but not paid
    /// for count too, in a pause only those that are left at its end.
    pub(crate) fn room_at(&self, state: &RateState, now: Nanos, queued: u64, n: u32) -> Nanos {
        let here = self.position_at(now.max(state.resumed));
        let owed = (state.position - here).max(0);
        let all = owed + self.units(queued.saturating_add(u64::from(n)));
        let over = all - self.units(self.most);
        if over > 0 { self.time_of(here + over) } else { now }
    }

    /// The time at which `n` permits are ready behind `ahead` others, without steps.
    pub(crate) fn ready_behind(&self, state: &RateState, now: Nanos, ahead: u64, n: u32) -> Nanos {
        if ahead == 0 {
            return now.max(self.time_of(self.due(state.position, u64::from(n))));
        }
        // A full store overflows until the first permit is ready.
        let first = now.max(self.time_of(self.due(state.position, ahead.min(1))));
        let level = self.level(state.position, self.position_at(first));
        let position = self.overflow(state.position, level) + self.units(ahead);
        first.max(self.time_of(self.due(position, u64::from(n))))
    }

    /// The position of the permit clock at `time`.
    #[inline]
    pub(crate) fn position_at(&self, time: Nanos) -> i128 {
        ((u128::from(time.get()) * u128::from(self.multiplier)) >> 63).cast_signed()
    }

    /// The first time at which the permit clock has reached `position`.
    // Not inlined, to keep call sites small: a caller that is ready does not need it.
    #[inline(never)]
    pub(crate) fn time_of(&self, position: i128) -> Nanos {
        let units = position.max(0).cast_unsigned();
        if units >> 65 != 0 {
            // Far beyond what any clock shows.
            return Nanos::new(u64::MAX);
        }
        // The inverse was rounded down, so this is early by a few nanoseconds at most.
        let time = (units * u128::from(self.inverse)) >> 63;
        let mut time = Nanos::new(u64::try_from(time).unwrap_or(u64::MAX));
        while self.position_at(time) < position && time.get() < u64::MAX {
            time = Nanos::new(time.get() + 1);
        }
        time
    }

    /// How much is missing from a full store if the permit clock is at `here`; below zero it has been full.
    #[inline]
    fn level(&self, position: i128, here: i128) -> i128 {
        position - (here - i128::from(self.burst))
    }

    /// The position without permits that a full store has no room for.
    ///
    /// A position that is only a unit too early stays. Due times are rounded up to whole nanoseconds, and with a
    /// burst of zero each grant would lose the difference, which is less than a permit.
    #[inline]
    fn overflow(&self, position: i128, level: i128) -> i128 {
        if level < -1 { position - level } else { position }
    }

    /// Before the parameters change: notes the level under those that end.
    fn settle(&self, state: &mut RateState, here: i128) {
        let level = self.level(state.position, here);
        state.position = self.overflow(state.position, level);
        state.bound(level);
    }

    /// Between two looks at the state permits were charged, at unknown times up to `until`, from the position
    /// `before` on.
    pub(crate) fn note_charges(&self, state: &mut RateState, before: i128, until: Nanos) {
        let level = self.level(before, self.position_at(until));
        state.lows.note(low_bits(state.position - before), state.mark(), level);
    }

    /// The most permits of a request that may go unrecorded for a [slot](Self::slot).
    pub(crate) fn most_in_a_slot(&self) -> u64 {
        if self.slot().is_some() { (self.burst >> self.shift >> 6).max(1) } else { u64::MAX }
    }

    /// A span of time in which little comes, as a part of what the store holds. `None` if nothing that is given
    /// back late could be stored.
    pub(crate) fn slot(&self) -> Option<Duration> {
        let full = Duration::from_nanos(nanos_of(self.burst, self.inverse));
        (full > SHORTEST_SLOT).then(|| SHORTEST_SLOT.max(full / 64))
    }

    #[inline]
    pub(crate) fn units(&self, permits: u64) -> i128 {
        // A multiplication, because a 128-bit shift takes longer.
        (u128::from(permits) * u128::from(self.unit())).cast_signed()
    }

    /// The number of units per permit. At one permit per day it is still less than 2^48.
    #[inline]
    pub(crate) fn unit(&self) -> u64 {
        1 << self.shift
    }

    fn whole_permits(&self, units: i128) -> u64 {
        u64::try_from(units >> self.shift).unwrap_or(u64::MAX)
    }

    fn horizon(&self) -> i128 {
        self.position_at(Nanos::ZERO.saturating_add(Nanos::HORIZON))
    }

    /// Charges `permits` at `at`: the whole rule of a store that fills with time and is drawn first.
    #[inline(always)]
    pub(crate) fn charge(&self, state: &mut RateState, at: Nanos, permits: u64) -> RateReceipt {
        let units = self.units(permits);
        let level = self.level(state.position, self.position_at(self.last_step(state, at)));
        state.position = self.overflow(state.position, level) + units;
        let receipt = RateReceipt { permits, span: self.span_of(units), mark: state.mark() };
        state.lows.note(low_bits(units), receipt.mark, level);
        receipt
    }

    /// Gives back `permits` of a receipt, as far as they would be there had they never been charged: no more than
    /// the lowest level since, see [`refund_levels`](super::refund_levels). A store of a number of permits gets
    /// that number back, a store of time the time that they took. A store never holds more than its burst.
    pub(crate) fn refund(
        &self,
        state: &mut RateState,
        now: Nanos,
        permits: u64,
        receipt: RateReceipt,
    ) -> RateReceipt {
        let RateReceipt { permits: charged, span, mark } = receipt;
        let (permits, rest) = (permits.min(charged), charged.saturating_sub(permits));
        let same_price = self.span_of(self.units(charged)) == span;
        let share = |permits: u64| {
            let share = u128::from(span) * u128::from(permits) / u128::from(charged.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let price = if same_price || self.strict {
            self.units(permits)
        } else {
            self.position_at(Nanos::new(share(permits)))
        };
        let back = saturating(price.cast_unsigned()).min(state.lows.since(state.mark(), mark));
        state.lows.lower(mark, back);
        let position = state.position - i128::from(back);
        let here = self.position_at(self.last_step(state, now));
        let position = self.overflow(position, self.level(position, here));
        // Not less than before, which may be a unit above full.
        state.move_to(position.min(state.position));
        let span = if same_price { self.span_of(self.units(rest)) } else { share(rest) };
        RateReceipt { permits: rest, span, mark }
    }

    /// No credit accrues until `until`.
    pub(crate) fn pause(&self, state: &mut RateState, until: Nanos) {
        let end = self.position_at(until);
        state.position = state.position.max(end);
        state.resumed = state.resumed.max(until);
        state.bound(state.position - end);
    }

    /// Converts a state on the clock of `old` into a state on this clock with the same number of permits stored at the
    /// last step, or where the steps change at the earlier one of the last steps; or the same owed time. A step that
    /// has begun yields permits at the rate in force when it ends.
    pub(crate) fn migrate_number(&self, old: &Self, state: &mut RateState, now: Nanos) {
        let now = self.last_step(state, now).min(old.last_step(state, now));
        let here = old.position_at(now);
        let stored = here - state.position;
        if stored < 0 {
            self.migrate(old, state, now);
            if (self.multiplier, self.shift) != (old.multiplier, old.shift) {
                // A charge is worth its number if time has paid off what was owed before, else its time.
                state.bound(0);
            }
            return;
        }
        old.settle(state, here);
        self.convert_number(old, state);
        // Rounded so that no permit is gained. A unit that a full store has no room for is not stored either: at
        // the new rate it can be much longer.
        let stored = (here - state.position).min(i128::from(old.burst));
        let stored = (stored << self.shift) >> old.shift;
        state.move_to(self.empty_at(now) - stored.min(i128::from(self.burst)));
        state.bound(self.level(state.position, self.position_at(now)));
    }

    /// Converts a state on the clock of `old` into a state on this clock with the same number of permits
    /// missing from a full store; in a pause, at its end.
    pub(crate) fn migrate_missing(&self, old: &Self, state: &mut RateState, now: Nanos) {
        old.settle(state, old.position_at(now));
        self.convert_number(old, state);
        let at = now.max(state.resumed);
        let missing = state.position - old.full(at).position;
        // Rounded so that no permit is gained.
        let missing = (((missing.max(0) << self.shift) - 1) >> old.shift) + 1;
        let end = self.position_at(at);
        let position = self.full(at).position + missing;
        // A larger store must not gain permits either: at the end of a pause nothing is stored.
        let is_paused = at > now;
        state.move_to(if is_paused { position.max(end) } else { position });
        state.bound(if is_paused { state.position - end } else { missing });
    }

    /// Converts a state on the clock of `old` into a state on this clock with the same stored or owed *time*: in a
    /// pause at its end, so that what owes nothing then owes no unit of rounding either.
    pub(crate) fn migrate(&self, old: &Self, state: &mut RateState, now: Nanos) {
        old.settle(state, old.position_at(now));
        let at = now.max(state.resumed);
        let level = state.position - old.position_at(at);
        let old_multiplier = u128::from(old.multiplier);
        let scaled = |units: u128| units.saturating_mul(u128::from(self.multiplier));
        state.lows.convert(|level| saturating(scaled(u128::from(level)) / old_multiplier));
        // Rounded so that no permit is gained.
        let level = if level > 0 {
            scaled(level.unsigned_abs()).div_ceil(old_multiplier).cast_signed()
        } else {
            -(scaled(level.unsigned_abs()) / old_multiplier).cast_signed()
        };
        state.move_to(self.position_at(at) + level);
        state.bound(self.level(state.position, self.position_at(now)));
    }

    /// Converts what can come back into the same number of permits on this clock.
    fn convert_number(&self, old: &Self, state: &mut RateState) {
        state.lows.convert(|level| saturating((u128::from(level) << self.shift) >> old.shift));
    }

    /// The number of whole permits stored.
    pub(crate) fn stored(&self, position: i128, now: Nanos) -> u32 {
        let stored = (self.position_at(now) - position).clamp(0, i128::from(self.burst));
        u32::try_from(stored >> self.shift).unwrap_or(u32::MAX)
    }

    /// The nanoseconds that `units` take, rounded down.
    #[inline]
    fn span_of(&self, units: i128) -> u64 {
        nanos_of(u64::try_from(units).unwrap_or(u64::MAX), self.inverse)
    }
}

/// The nanoseconds that `units` take, rounded down. `inverse` is that of a schedule: at most 2^63, so that
/// the result fits.
#[allow(clippy::cast_possible_truncation)]
#[inline]
pub(crate) fn nanos_of(units: u64, inverse: u64) -> u64 {
    ((u128::from(units) * u128::from(inverse)) >> 63) as u64
}

/// [`Schedule::position_at`] for times before 2^63.
#[allow(clippy::cast_possible_truncation)] // the high half of a product
#[inline(always)]
pub(crate) fn position_at(time: Nanos, multiplier: u64) -> u64 {
    ((u128::from(time.get() << 1) * u128::from(multiplier)) >> 64) as u64
}

/// [`Schedule::time_of`] for positions below 2^63, without a loop: a caller that does not look at the time
/// pays nothing for it.
#[allow(clippy::cast_possible_truncation)] // positions below 2^63 are reached before 2^63
#[inline(always)]
pub(crate) fn time_of(position: u64, multiplier: u64, inverse: u64) -> Nanos {
    // The inverse was rounded down by less than one, so the time by less than 1 ns: rounded up, it is
    // right or one too early.
    let time = ((u128::from(position) * u128::from(inverse) + ((1 << 63) - 1)) >> 63) as u64;
    let reached = ((u128::from(time) * u128::from(multiplier)) >> 63) as u64;
    Nanos::new(time + u64::from(reached < position))
}

#[inline]
fn saturating(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The low 64 bits of a position.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // intended
#[inline]
fn low_bits(position: i128) -> u64 {
    position as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rates() -> impl Strategy<Value = Rate> {
        prop_oneof![
            (-4.9f64..9.0).prop_map(|exponent| Rate::per_second(10f64.powf(exponent))),
            (1u64..1_000_000, 1u64..86_400_000_000_000).prop_filter_map("in range", |(n, per)| {
                (n <= per && u128::from(n) * 86_400_000_000_000 >= u128::from(per))
                    .then(|| Rate::new(n, Duration::from_nanos(per)))
            }),
        ]
    }

    proptest! {
        #[test]
        fn time_of_is_the_first_moment_at_a_position(
            rate in rates(), time in 0u64..1 << 63, back in 0i128..1_000_000,
        ) {
            let schedule = Schedule::new(rate, Duration::ZERO);
            prop_assert!(schedule.multiplier >> 63 == 1);
            let position = (schedule.position_at(Nanos::new(time)) - back).max(1);
            let at = schedule.time_of(position);
            prop_assert!(schedule.position_at(at) >= position);
            prop_assert!(schedule.position_at(Nanos::new(at.get() - 1)) < position);
        }

        #[test]
        fn the_rate_is_exact_to_one_part_in_2_to_the_62(rate in rates()) {
            let schedule = Schedule::new(rate, Duration::ZERO);
            let (permits, nanos) = rate.fraction();
            // Checks multiplier / 2^(63 + shift) = permits / nanos by cross-multiplication: with floats first,
            // and exactly where the integers fit.
            if nanos < 1 << 48 && permits < 1 << 32 {
                let ours = u128::from(schedule.multiplier) * nanos;
                let exact = u128::from(permits) << (63 + schedule.shift).min(95);
                if schedule.shift <= 32 {
                    prop_assert!(ours.abs_diff(exact) <= ours >> 62, "{ours} {exact}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_packed_state_decides_as_the_state_does(
            rate in rates(), burst in prop_oneof![Just(0), 0u64..1 << 40, 0u64..=1 << 62],
            capacity in 1u32.., strict: bool,
            now in prop_oneof![0u64..1 << 61, 0u64..1 << 50, 0u64..1000],
            back in prop_oneof![-3i128..4, -(1i128 << 62)..1i128 << 62],
            n in prop_oneof![Just(1u32), 1u32..10, 1u32..],
        ) {
            let schedule = if strict {
                Schedule::bucket(rate, capacity)
            } else {
                Schedule::new(rate, Duration::from_nanos(burst))
            };
            let now = Nanos::new(now);
            let mut state = RateState::new(schedule.position_at(now) - back);
            let packed = schedule.pack(&state, now);
            let is_narrow = (0..1 << 63).contains(&(state.position + i128::from(schedule.burst)));
            prop_assert_eq!(packed.is_some(), is_narrow);
            let Some(word) = packed else { return Ok(()) };
            prop_assert_eq!(&schedule.unpack(word), &state);
            let ready = schedule.ready_at(&state, now, n);
            match schedule.attempt_packed(word, now, n) {
                Attempt::Granted((word, receipt)) => {
                    prop_assert!(ready.is_ok_and(|ready| ready.has_come(now)));
                    let charged = schedule.charge(&mut state, now, u64::from(n));
                    prop_assert_eq!(receipt, charged);
                    prop_assert_eq!(schedule.pack(&state, now), Some(word));
                }
                Attempt::ReadyAt(due) => {
                    prop_assert!(now < due);
                    prop_assert_eq!(ready.ok(), Some(Ready::At(due)));
                }
                Attempt::Undecided => {
                    schedule.charge(&mut state, now, u64::from(n));
                    let is_wide = schedule.pack(&state, now).is_none();
                    prop_assert!(u64::from(n) > schedule.most || is_wide);
                }
            }
        }
    }

    #[test]
    fn a_state_is_packed_when_its_pause_is_over() {
        let schedule = Schedule::bucket(Rate::per_second(1.0), 10);
        let [before, end] = [999, 1_000].map(Nanos::new);
        let mut state = schedule.full(Nanos::ZERO);
        schedule.pause(&mut state, end);
        assert_eq!(schedule.pack(&state, before), None);
        assert!(schedule.pack(&state, end).is_some());
    }

    #[test]
    fn the_ends_of_the_range() {
        let rate = Rate::per_second(1e9);
        let fastest = Schedule::new(rate, Duration::from_nanos(4));
        assert_eq!((fastest.multiplier, fastest.shift), (1 << 63, 0));
        assert_eq!(fastest.burst, 4);
        for position in [(1 << 64) - 1, 1 << 64, (1 << 65) - 1, 1 << 65, i128::MAX] {
            assert_eq!(fastest.time_of(position), Nanos::new(u64::MAX));
        }
        let fastest = Schedule::bucket(rate, 4);
        let position = |nanos| fastest.position_at(Nanos::new(nanos));
        assert_eq!(position(1 << 62) - position(1), fastest.units((1 << 62) - 1));
        assert_eq!(fastest.time_of(position(1 << 62)), Nanos::new(1 << 62));
        let slowest = Schedule::new(Rate::every(Duration::from_secs(86_400)), Duration::MAX);
        assert_eq!(slowest.shift, 47);
        assert_eq!(slowest.most, 53_375);
        assert_eq!(slowest.time_of(slowest.units(1)), Nanos::new(86_400_000_000_000));
    }
}
