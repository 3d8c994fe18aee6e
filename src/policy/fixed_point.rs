//! Nanoseconds with 64 fractional bits, so that sums of intervals do not round.

use crate::units::Nanos;

/// A time or a span of time: nanoseconds times 2^64.
///
/// An interval is off by less than 2^-64 ns. The errors of 2^62 intervals, one permit per nanosecond for 146
/// years, add up to less than a nanosecond.
// Stored as two halves: a 128-bit load after two 64-bit stores stalls until both stores complete, and a
// `u128` would force its alignment on the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fine {
    nanos: u64,
    fraction: u64,
}

impl Fine {
    pub(crate) const ZERO: Self = Self { nanos: 0, fraction: 0 };
    pub(crate) const NANOSECOND: Self = Self { nanos: 1, fraction: 0 };
    const MAX: Self = Self { nanos: u64::MAX, fraction: u64::MAX };

    #[inline(always)]
    pub(crate) fn new(nanos: u64) -> Self {
        Self { nanos, fraction: 0 }
    }

    #[allow(clippy::cast_possible_truncation)] // each half fits
    #[inline(always)]
    fn of(bits: u128) -> Self {
        Self { nanos: (bits >> 64) as u64, fraction: bits as u64 }
    }

    #[inline(always)]
    fn bits(self) -> u128 {
        u128::from(self.nanos) << 64 | u128::from(self.fraction)
    }

    /// `numerator / denominator` nanoseconds, rounded down; the quotient is below 2^64.
    pub(crate) fn ratio(numerator: u128, denominator: u64) -> Self {
        let denominator = u128::from(denominator);
        let rest = numerator % denominator;
        Self::of(((numerator / denominator) << 64) | ((rest << 64) / denominator))
    }

    /// Whole nanoseconds, rounded up.
    #[inline(always)]
    pub(crate) fn ceil(self) -> Nanos {
        Nanos::new(self.nanos.saturating_add(u64::from(self.fraction != 0)))
    }

    /// This value times `n`; saturates at the greatest value.
    #[inline(always)]
    pub(crate) fn times(self, n: u64) -> Self {
        let n = u128::from(n);
        // Multiplied by halves, which is faster than a 128-bit multiplication with an overflow check.
        let (nanos, fraction) = (u128::from(self.nanos) * n, u128::from(self.fraction) * n);
        if nanos >> 64 == 0 { Self::of((nanos << 64).saturating_add(fraction)) } else { Self::MAX }
    }

    /// `fraction / 2^64` of this, rounded down.
    #[inline(always)]
    pub(crate) fn scaled(self, fraction: u64) -> Self {
        let part = u128::from(fraction);
        Self::of(u128::from(self.nanos) * part + ((u128::from(self.fraction) * part) >> 64))
    }

    /// This value divided by `other`, rounded down.
    pub(crate) fn over(self, other: Self) -> u128 {
        self.bits() / other.bits().max(1)
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self::of(self.bits().saturating_add(other.bits()))
    }

    /// This value minus `other`, for [`plus_signed`](Self::plus_signed): it may be negative.
    #[inline(always)]
    pub(crate) fn wrapping_sub(self, other: Self) -> Self {
        Self::of(self.bits().wrapping_sub(other.bits()))
    }

    /// This value plus a difference; zero if that is negative. Both are of values below 2^63 ns.
    pub(crate) fn plus_signed(self, difference: Self) -> Self {
        let sum = self.bits().wrapping_add(difference.bits());
        if sum.cast_signed() < 0 { Self::ZERO } else { Self::of(sum) }
    }

    /// This value minus `other`; zero if `other` is larger.
    #[inline(always)]
    pub(crate) fn saturating_sub(self, other: Self) -> Self {
        Self::of(self.bits().saturating_sub(other.bits()))
    }
}

/// A span as a divisor, prepared so that a division takes one multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Divisor {
    /// The left shift that moves the span's highest bit to the top.
    up: u32,
    /// 2^127 divided by the top 64 bits of the span.
    inverse: u64,
}

impl Divisor {
    /// The span must not be zero.
    pub(crate) fn new(span: Fine) -> Self {
        let up = span.bits().leading_zeros();
        let top = ((span.bits() << up) >> 64).max(1);
        Self { up, inverse: u64::try_from((1 << 127) / top).unwrap_or(u64::MAX) }
    }

    /// `part` as a fraction of the span, in units of 2^-64; `part` must not exceed the span. For the span itself
    /// the result is the greatest value, or one less. Monotonic in `part`; exact to about 2^-62.
    #[inline(always)]
    pub(crate) fn fraction(self, part: Fine) -> u64 {
        // A span below a nanosecond has no whole part, and takes a separate path: a shift that is known to
        // be short needs a quarter of the instructions.
        let top = if self.up < 64 {
            Fine::of(part.bits() << (self.up % 64)).nanos
        } else {
            self.top(part)
        };
        let fraction = (u128::from(top) * u128::from(self.inverse)) >> 63;
        u64::try_from(fraction).unwrap_or(u64::MAX)
    }

    #[cold]
    fn top(self, part: Fine) -> u64 {
        Fine::of(part.bits() << self.up).nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of any bit length, small and large with equal frequency; and the greatest.
    fn bits() -> impl Strategy<Value = u128> {
        prop_oneof![
            8 => (any::<u128>(), 0..128u32).prop_map(|(bits, down)| bits >> down),
            1 => (0..4u128).prop_map(|less| u128::MAX - less),
            // Whole nanoseconds, and values next to them.
            1 => (any::<u64>(), 0..64u32, 0..3u128).prop_map(|(nanos, down, beside)| {
                (u128::from(nanos >> down) << 64).saturating_add(beside).saturating_sub(1)
            }),
        ]
    }

    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![
            8 => (any::<u64>(), 0..64u32).prop_map(|(number, down)| number >> down),
            1 => (0..4u64).prop_map(|less| u64::MAX - less),
        ]
    }

    /// A nonzero span and a part of it: of similar size, small, or the span itself.
    fn parts() -> impl Strategy<Value = (u128, u128)> {
        (bits().prop_map(|span| span.max(1)), bits(), 0..4u128).prop_map(|(span, part, less)| {
            let near = span.saturating_sub(less);
            (span, if part <= span { part } else { near.min(part % span + less) })
        })
    }

    /// A 192-bit product: the high 64 bits and the low 128 bits, from products of two 64-bit numbers.
    fn product(bits: u128, number: u64) -> (u128, u128) {
        let number = u128::from(number);
        let (high, low) = ((bits >> 64) * number, (bits & u128::from(u64::MAX)) * number);
        let (sum, carry) = (high << 64).overflowing_add(low);
        ((high >> 64) + u128::from(carry), sum)
    }

    /// `part / span` in units of 2^-64, bit by bit; the quotient is below one.
    fn quotient(part: u128, span: u128) -> u64 {
        let (mut rest, mut quotient) = (part, 0);
        for _ in 0..64 {
            let carry = rest >> 127 == 1;
            rest <<= 1;
            let digit = carry || rest >= span;
            if digit {
                rest = rest.wrapping_sub(span);
            }
            quotient = quotient << 1 | u64::from(digit);
        }
        quotient
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn the_halves_are_one_number_and_are_ordered_as_it_is(one in bits(), other in bits()) {
            let (fine, others) = (Fine::of(one), Fine::of(other));
            prop_assert_eq!(fine.bits(), one);
            prop_assert_eq!(u128::from(fine.nanos), one >> 64);
            prop_assert_eq!(u128::from(fine.fraction), one % (1 << 64));
            prop_assert_eq!(fine.cmp(&others), one.cmp(&other));
            prop_assert_eq!(fine == others, one == other);
            // Also compare values that share one half.
            let beside = Fine { nanos: fine.nanos, ..others };
            prop_assert_eq!(fine.cmp(&beside), one.cmp(&beside.bits()));
            let above = Fine { fraction: fine.fraction, ..others };
            prop_assert_eq!(fine.cmp(&above), one.cmp(&above.bits()));
        }

        #[test]
        fn sums_and_differences_saturate(one in bits(), other in bits()) {
            let (fine, others) = (Fine::of(one), Fine::of(other));
            prop_assert_eq!(fine.plus(others).bits(), one.saturating_add(other));
            prop_assert_eq!(fine.saturating_sub(others).bits(), one.saturating_sub(other));
            if let Some(sum) = one.checked_add(other) {
                prop_assert_eq!(Fine::of(sum).saturating_sub(others), fine);
            }
            if one >> 127 == 0 && other >> 127 == 0 {
                let difference = fine.wrapping_sub(others);
                prop_assert_eq!(others.plus_signed(difference), fine);
                prop_assert_eq!(Fine::ZERO.plus_signed(difference), fine.saturating_sub(others));
            }
        }

        #[test]
        fn products_saturate_at_the_greatest(bits in bits(), n in numbers()) {
            let times = Fine::of(bits).times(n).bits();
            prop_assert_eq!(times, bits.saturating_mul(u128::from(n)));
        }

        /// The greatest product that still fits, and one more.
        #[test]
        fn products_saturate_no_earlier(n in 2u64.., more in 0..2u128) {
            let bits = u128::MAX / u128::from(n) + more;
            let times = Fine::of(bits).times(n).bits();
            prop_assert_eq!(times == u128::MAX, more == 1 || u128::MAX % u128::from(n) == 0);
            prop_assert_eq!(times, bits.saturating_mul(u128::from(n)));
        }

        #[test]
        fn a_scaled_span_is_the_product_rounded_down(bits in bits(), fraction in numbers()) {
            let (high, low) = product(bits, fraction);
            prop_assert_eq!(Fine::of(bits).scaled(fraction).bits(), high << 64 | low >> 64);
        }

        #[test]
        fn whole_nanoseconds_are_rounded_up(bits in bits()) {
            let nanos = (bits >> 64) + u128::from(bits % (1 << 64) != 0);
            let ceil = u128::from(Fine::of(bits).ceil().get());
            prop_assert_eq!(ceil, nanos.min(u128::from(u64::MAX)));
        }

        #[test]
        fn a_quotient_is_rounded_down(one in bits(), other in bits()) {
            let often = Fine::of(one).over(Fine::of(other));
            let other = other.max(1);
            prop_assert!(often.checked_mul(other).is_some_and(|part| part <= one));
            prop_assert!(one - often * other < other);
        }

        #[test]
        fn a_ratio_is_rounded_down(
            denominator in 1u64.., nanos in numbers(), rest in any::<u64>(),
        ) {
            let rest = u128::from(rest % denominator);
            let numerator = u128::from(nanos) * u128::from(denominator) + rest;
            let ratio = Fine::ratio(numerator, denominator);
            prop_assert_eq!(ratio.nanos, nanos);
            let fraction = u128::from(ratio.fraction) * u128::from(denominator);
            prop_assert!(fraction <= rest << 64);
            prop_assert!((rest << 64) - fraction < u128::from(denominator));
        }

        /// For spans of any size, also below a nanosecond: exact to 2^-62, and never smaller for a larger
        /// part.
        #[test]
        fn a_fraction_is_right_and_grows_with_the_part(
            (span, part) in parts(), other in bits(), less in 0..4u128,
        ) {
            let divisor = Divisor::new(Fine::of(span));
            let fraction = |part| divisor.fraction(Fine::of(part));
            // The span itself yields the greatest value, or one less where the inverse was rounded.
            let whole = fraction(span);
            prop_assert!(whole >= u64::MAX - 1, "{whole}");
            for part in [part, part.saturating_sub(less), other.min(span)] {
                let exact = if part == span { u64::MAX } else { quotient(part, span) };
                prop_assert!(fraction(part).abs_diff(exact) <= 4, "{} {exact}", fraction(part));
                prop_assert!(fraction(part) <= whole);
            }
            prop_assert!(fraction(part.saturating_sub(less)) <= fraction(part));
            prop_assert!(fraction(part.min(other)) <= fraction(part));
        }
    }

    /// Spans whose highest bit is just above or just below a nanosecond take different paths.
    #[test]
    fn fractions_of_spans_about_a_nanosecond() {
        for span in [1u128 << 63, (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 1 << 65] {
            let divisor = Divisor::new(Fine::of(span));
            for part in [0, 1, span / 3, span / 2, span - 1] {
                let (told, exact) = (divisor.fraction(Fine::of(part)), quotient(part, span));
                assert!(told.abs_diff(exact) <= 4, "{part} of {span}: {told}, not {exact}");
            }
            assert!(divisor.fraction(Fine::of(span)) >= u64::MAX - 1);
            assert_eq!(divisor.fraction(Fine::ZERO), 0);
        }
        assert_eq!(Divisor::new(Fine::of(1)).fraction(Fine::of(1)), u64::MAX);
    }
}
