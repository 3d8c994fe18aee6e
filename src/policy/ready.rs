//! The time at which a cost is ready.

use std::time::Duration;

use crate::units::Nanos;

/// The time at which a cost is ready.
///
/// ```
/// use tollgate::{InFlight, Nanos, Policy, Ready};
///
/// let policy = InFlight::new(1);
/// let now = Nanos::ZERO;
/// let mut state = policy.start(now);
/// assert_eq!(policy.ready_at(&state, now, 1)?, Ready::At(now));
/// policy.charge(&mut state, now, 1);
/// // Time alone does not help: a permit has to be given back first.
/// assert_eq!(policy.ready_at(&state, now, 1)?, Ready::NotBefore(now));
/// # Ok::<(), tollgate::ExceedsCapacity>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ready {
    /// Ready from this time on. A time in the past means "now".
    At(Nanos),
    /// Not ready before this time, and not before a permit is given back, at an unpredictable time.
    NotBefore(Nanos),
}

impl Ready {
    /// The time before which the cost is certainly not ready.
    #[inline]
    #[must_use]
    pub fn earliest(self) -> Nanos {
        match self {
            Self::At(time) | Self::NotBefore(time) => time,
        }
    }

    /// Combines this with `other`: the later time, unpredictable if either is.
    ///
    /// ```
    /// use tollgate::{Nanos, Ready};
    ///
    /// let (soon, later) = (Nanos::new(5), Nanos::new(7));
    /// assert_eq!(Ready::At(soon).and(Ready::At(later)), Ready::At(later));
    /// assert_eq!(Ready::NotBefore(soon).and(Ready::At(later)), Ready::NotBefore(later));
    /// ```
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let latest = self.earliest().max(other.earliest());
        match (self, other) {
            (Self::At(_), Self::At(_)) => Self::At(latest),
            _ => Self::NotBefore(latest),
        }
    }

    /// The wait from `now`, if it is known.
    pub(crate) fn wait(self, now: Nanos) -> Option<Duration> {
        match self {
            Self::At(time) => Some(time.since(now)),
            Self::NotBefore(_) => None,
        }
    }

    /// Whether the cost is ready at `now`.
    #[inline]
    pub(crate) fn has_come(self, now: Nanos) -> bool {
        matches!(self, Self::At(time) if time <= now)
    }
}
