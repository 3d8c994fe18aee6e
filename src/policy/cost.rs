//! What a caller asks for.

use std::fmt::Debug;

/// What a caller asks for: `u32` permits, or a tuple of costs for a tuple of policies. The default is
/// zero permits. The trait is sealed.
///
/// ```
/// use tollgate::Cost;
///
/// assert!(0.is_zero());
/// assert_eq!(5.permits(), 5);
/// assert_eq!(5.saturating_sub(7), 0);
/// ```
pub trait Cost:
    sealed::Sealed + Copy + Debug + Default + PartialEq + Send + Sync + 'static
{
    /// Many of these together.
    type Sum: Copy + Debug + Default + Send + Sync + 'static;

    /// `sum` and this.
    fn add_to(self, sum: Self::Sum) -> Self::Sum;

    /// `sum` without this, which is part of it.
    fn take_from(self, sum: Self::Sum) -> Self::Sum;

    /// Whether this asks for nothing: granted at once, and takes nothing.
    fn is_zero(self) -> bool;

    /// How many permits this counts for in a line bounded by permits.
    fn permits(self) -> u64;

    /// What is left of this when `other` is taken away; nothing if `other` is larger.
    #[must_use]
    fn saturating_sub(self, other: Self) -> Self;
}

pub(super) mod sealed {
    /// Keeps [`Cost`](super::Cost) to this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for u32 {}

impl Cost for u32 {
    type Sum = u64;

    fn add_to(self, sum: u64) -> u64 {
        sum.saturating_add(u64::from(self))
    }

    fn take_from(self, sum: u64) -> u64 {
        sum.saturating_sub(u64::from(self))
    }

    fn is_zero(self) -> bool {
        self == 0
    }

    fn permits(self) -> u64 {
        u64::from(self)
    }

    fn saturating_sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}
