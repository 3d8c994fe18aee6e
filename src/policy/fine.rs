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

    #[inline]
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
    #[inline]
    pub(crate) fn ceil(self) -> Nanos {
        Nanos::new(u64::try_from(self.0.div_ceil(1 << 64)).unwrap_or(u64::MAX))
    }

    /// This many times; stops at the greatest value.
    #[inline]
    pub(crate) fn times(self, n: u64) -> Self {
        let n = u128::from(n);
        // By halves, which is faster than a multiplication of 128 bits that looks for overflow.
        let (high, low) = ((self.0 >> 64) * n, (self.0 & u128::from(u64::MAX)) * n);
        if high >> 64 == 0 { Self((high << 64).saturating_add(low)) } else { Self(u128::MAX) }
    }

    /// `fraction / 2^64` of this, rounded down.
    #[inline]
    pub(crate) fn scaled(self, fraction: u64) -> Self {
        let (high, low) = (self.0 >> 64, self.0 & u128::from(u64::MAX));
        let fraction = u128::from(fraction);
        Self(high * fraction + ((low * fraction) >> 64))
    }

    /// How often `other` goes into this, rounded down.
    pub(crate) fn over(self, other: Self) -> u128 {
        self.0 / other.0.max(1)
    }

    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left when `other` is taken away; nothing if it is more.
    #[inline]
    pub(crate) fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A span to divide by, prepared so that dividing takes one multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Divisor {
    /// Brings the span's top bit to the top.
    up: u32,
    /// 2^127 over the top 64 bits of the span.
    inverse: u64,
}

impl Divisor {
    /// For a span that is not zero.
    pub(crate) fn new(span: Fine) -> Self {
        let up = span.0.leading_zeros();
        let top = ((span.0 << up) >> 64).max(1);
        Self { up, inverse: u64::try_from((1 << 127) / top).unwrap_or(u64::MAX) }
    }

    /// `part`, which is not more than the span, as a fraction of it in units of 2^-64; the span
    /// itself counts as the greatest value. Grows with `part`; right to about 2^-62.
    #[inline]
    pub(crate) fn fraction(self, part: Fine) -> u64 {
        let fraction = (((part.0 << self.up) >> 64) * u128::from(self.inverse)) >> 63;
        u64::try_from(fraction).unwrap_or(u64::MAX)
    }
}
