//! Nanoseconds with 64 binary places, so that adding up intervals does not round.

use crate::units::Nanos;

/// A time or a span of time: nanoseconds times 2^64.
///
/// An interval is off by less than 2^-64 ns; 2^62 of them, a permit each nanosecond for 146 years,
/// add up to less than a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fine(u128);

impl Fine {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const NANOSECOND: Self = Self(1 << 64);

    pub(crate) fn new(nanos: u64) -> Self {
        Self(u128::from(nanos) << 64)
    }

    /// `numerator / denominator` nanoseconds, rounded down; the quotient is below 2^64.
    pub(crate) fn ratio(numerator: u128, denominator: u64) -> Self {
        let denominator = u128::from(denominator);
        let rest = numerator % denominator;
        Self(((numerator / denominator) << 64) | ((rest << 64) / denominator))
    }

    /// Whole nanoseconds, rounded up.
    pub(crate) fn ceil(self) -> Nanos {
        Nanos::new(u64::try_from(self.0.div_ceil(1 << 64)).unwrap_or(u64::MAX))
    }

    /// This many times; stops at the greatest value.
    pub(crate) fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(u128::from(n)))
    }

    /// `fraction / 2^64` of this, rounded down.
    pub(crate) fn scaled(self, fraction: u64) -> Self {
        let (high, low) = (self.0 >> 64, self.0 & u128::from(u64::MAX));
        let fraction = u128::from(fraction);
        Self(high * fraction + ((low * fraction) >> 64))
    }

    /// This over `whole`, which is not less, in units of 2^-64; one itself counts as the greatest
    /// value.
    pub(crate) fn fraction_of(self, whole: Self) -> u64 {
        let up = whole.0.leading_zeros();
        let quotient = (self.0 << up) / (whole.0 << up >> 64).max(1);
        u64::try_from(quotient).unwrap_or(u64::MAX)
    }

    /// How often `other` goes into this, rounded down.
    pub(crate) fn over(self, other: Self) -> u128 {
        self.0 / other.0.max(1)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left when `other` is taken away; nothing if it is more.
    pub(crate) fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
