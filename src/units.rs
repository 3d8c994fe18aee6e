//! The two quantities used everywhere else: a point in time and a rate.

mod invalid;
mod rate;
#[cfg_attr(not(feature = "config"), allow(dead_code))] // a rate is read without it, too
pub(crate) mod text;

use std::time::Duration;

pub use invalid::InvalidLimit;
pub use rate::Rate;

/// A point in time: nanoseconds since the origin of a [`Clock`](crate::Clock).
///
/// Policies are pure arithmetic on these points and never read a clock. A `u64` of nanoseconds spans 584
/// years; clocks stop at [`Nanos::END`], which leaves room above it for charges booked ahead.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Nanos;
///
/// let t = Nanos::new(1_500).saturating_add(Duration::from_nanos(500));
/// assert_eq!(t.get(), 2_000);
/// assert_eq!(t.since(Nanos::new(500)), Duration::from_nanos(1_500));
/// assert_eq!(Nanos::new(500).since(t), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The last time that a clock shows: 2^63 - 1 ns, 292 years after its origin.
    pub const END: Self = Self(u64::MAX >> 1);

    /// The longest time that one request may take or one pause may last: 2^62 ns, 146 years.
    pub const HORIZON: Duration = Duration::from_nanos(1 << 62);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The point `duration` after this one; saturates at the greatest value.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// The point `duration` before this one; saturates at the origin.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }

    /// The time from `earlier` to this point; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration as whole nanoseconds, `u64::MAX` if it is longer than 584 years.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// In whole milliseconds, to be read.
pub(crate) fn to_millis(duration: Duration) -> Duration {
    let millis = Duration::from_micros(500).saturating_add(duration).as_millis();
    u64::try_from(millis).map_or(duration, Duration::from_millis)
}
