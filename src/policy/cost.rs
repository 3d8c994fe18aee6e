//! The cost of a request.

use std::fmt::Debug;

/// The cost of a request: `u32` permits, or a tuple of costs for a tuple of policies. The default is zero
/// permits. The trait is sealed.
///
/// ```
/// use tollgate::Cost;
///
/// assert!(0.is_zero());
/// assert_eq!(5.permits(), 5);
/// assert_eq!(5.saturating_sub(7), 0);
/// ```
#[diagnostic::on_unimplemented(note = "a cost is a `u32`, or a tuple of costs")]
pub trait Cost:
    sealed::Sealed + Copy + Debug + Default + PartialEq + Send + Sync + 'static
{
    /// One permit, of each part of a tuple.
    const ONE: Self;

    /// Whether the cost is zero. Such a request is granted at once and takes no permit.
    #[inline]
    fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// The number of permits that this cost counts for in a queue bounded by permits.
    #[inline]
    fn permits(self) -> u64 {
        self.numbers().map(u64::from).fold(0, u64::saturating_add)
    }

    /// This cost minus `other`; zero if `other` is larger.
    #[inline]
    #[must_use]
    fn saturating_sub(self, other: Self) -> Self {
        self.each(other, u32::saturating_sub)
    }

    /// How many numbers it is made of.
    #[doc(hidden)]
    const NUMBERS: usize;

    /// Replaces each number, in order.
    #[doc(hidden)]
    #[must_use]
    fn map(self, number: &mut impl FnMut(u32) -> u32) -> Self;

    #[doc(hidden)]
    #[inline]
    fn number(self, index: usize) -> u32 {
        let (mut at, mut found) = (0, 0);
        _ = self.map(&mut |number| {
            found = if at == index { number } else { found };
            at += 1;
            number
        });
        found
    }

    #[doc(hidden)]
    #[inline]
    fn from_numbers(number: impl Fn(usize) -> u32) -> Self {
        let mut numbers = (0..).map(number);
        Self::default().map(&mut |_| numbers.next().unwrap_or_default())
    }

    #[doc(hidden)]
    fn numbers(self) -> impl Iterator<Item = u32> {
        (0..Self::NUMBERS).map(move |index| self.number(index))
    }

    /// Combines each number with the same number of `other`.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    fn each(self, other: Self, combine: fn(u32, u32) -> u32) -> Self {
        Self::from_numbers(|index| combine(self.number(index), other.number(index)))
    }
}

pub(super) mod sealed {
    /// Keeps [`Cost`](super::Cost) to this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for u32 {}

impl Cost for u32 {
    const ONE: Self = 1;

    const NUMBERS: usize = 1;

    #[inline]
    fn map(self, number: &mut impl FnMut(u32) -> u32) -> Self {
        number(self)
    }

    #[inline]
    fn number(self, _: usize) -> u32 {
        self
    }
}
