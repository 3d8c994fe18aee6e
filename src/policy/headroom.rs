//! A margin below a quota.
//!
//! A limiter counts a call when it leaves, the server when it arrives. Latency varies, so calls arrive closer together than
//! they left. A delay moves a whole burst, so fewer permits in the same window do not help: 19 at the end of one window and
//! 19 at the start of the next still arrive within one. What helps is time between them: a window becomes longer by the
//! delay that it has to absorb, and a rate slower. For rules with a rate `r` and a burst `c`, a span `t` of arrivals is a
//! span `t + d` of departures, and `c (1 - s) + r (1 - s) (t + d) <= c + r t` for each delay `d` up to `s c / r`.
//!
//! The share is rounded up to millionths; then rates are exact. Windows are rounded up to a round time, and numbers of
//! permits down, but not to zero.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use crate::units::text::rounded_up;
use crate::units::{Rate, saturating_nanos};
use std::fmt;
use std::time::Duration;

/// Leaves a share of a quota unused, for the client of an API.
///
/// A server counts calls as they arrive, and the network delays some more than others. Write the quota as the
/// API states it, and leave 5 % of it:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Headroom, Rate, Rated, SlidingWindowLog, TokenBucket};
///
/// let log = SlidingWindowLog::new(60, Duration::from_secs(60)).headroom(0.05)?;
/// assert_eq!(log, SlidingWindowLog::new(60, Duration::from_millis(63_158)));
/// let bucket = TokenBucket::new(Rate::per_minute(100.0), 30).headroom(0.05)?;
/// assert_eq!(bucket, TokenBucket::new(Rate::per_minute(95.0), 28));
/// # Ok::<(), tollgate::InvalidHeadroom>(())
/// ```
///
/// Rates, all policies of this crate and their compositions have it, and with `AllOf` and `AnyPolicy` so do limits
/// from a file.
///
/// # What changes, and what is then certain
///
/// Calls are delayed on the way by up to `d`. A server that enforces the limit in its strictest reading refuses
/// none of them while `d` is at most the share of a time that depends on the rule: with 5 % of a window of one
/// second, 50 ms.
///
/// | | what changes | the strictest server | `d` is up to the share of |
/// |---|---|---|---|
/// | a [`Rate`] | it is slower, but not below one a day | | |
/// | [`SmoothBursty`](crate::SmoothBursty), [`SmoothWarmingUp`](crate::SmoothWarmingUp), [`LeakyBucket::new`](crate::LeakyBucket::new) | the rate | grants `rate x (t + max_burst)` and one request in any span `t` | `max_burst`, or the time of one permit if that is longer |
/// | [`TokenBucket`](crate::TokenBucket), [`Gcra`](crate::Gcra), [`LeakyBucket::meter`](crate::LeakyBucket::meter) | the rate, and the size of the bucket | grants `capacity + rate x t` in any span `t` | the time in which the bucket fills |
/// | [`SlidingWindowLog`](crate::SlidingWindowLog) | the window is longer | counts any window | the window |
/// | [`SlidingWindowCounter`](crate::SlidingWindowCounter) | the window is longer | counts any `1 - 1/buckets` of a window | the time that it counts |
/// | [`FixedWindow`](crate::FixedWindow) | the window is longer | counts any window, but only if the permits of a window leave together at its start | the window |
/// | [`FixedWindow::aligned`](crate::FixedWindow::aligned) | fewer permits, on the same grid | counts the windows of the grid, but only if no more than the share of the limit leaves in the last `d` of a window | the window |
/// | [`LockOut`](crate::LockOut), tuples, [`Same`](crate::Same), [`AllOf`](crate::AllOf), [`AnyPolicy`](crate::AnyPolicy) | their parts | is one for each part | each part's time |
/// | [`Unlimited`](crate::Unlimited) | nothing | | |
/// | [`InFlight`](crate::InFlight) | nothing: a call is in flight for the client for longer than for the server | counts the calls that it works at | any `d` |
///
/// An evenly spaced rate of `n` in a window also satisfies a server that counts any window, with a `d` of up to
/// the share of the window. The queue of a [`LeakyBucket`](crate::LeakyBucket) and the time of a [`LockOut`](crate::LockOut) stay. Lateness that
/// [`catch_up`](crate::state::Facts::catch_up) credits counts as a part of `d`.
///
/// The permits of a fixed window leave together if callers wait for them. Otherwise calls late in one window and
/// early in the next can be twice the limit at once, with or without headroom. Take a [`SlidingWindowLog`](crate::SlidingWindowLog) then.
///
/// A window becomes longer by the factor `1 / (1 - share)`, rounded up to a round time by less than a thousandth
/// (1 s to 1053 ms), up to the [horizon](crate::Nanos::HORIZON). Numbers of permits are rounded down, but not to
/// zero: a bucket of one stays a bucket of one.
pub trait Headroom: Sized {
    /// Leaves `share` unused: 0.05 is 5 %. Zero changes nothing. 0.1 twice leaves 19 %, a little
    /// more where a window is rounded.
    ///
    /// # Errors
    ///
    /// [`InvalidHeadroom`] if the share is negative, one or more, or not a number.
    fn headroom(self, share: f64) -> Result<Self, InvalidHeadroom> {
        let rest = Rest::of(share)?;
        Ok(if rest.0 == WHOLE { self } else { self.keep(rest) })
    }

    #[doc(hidden)]
    #[must_use]
    fn keep(self, rest: Rest) -> Self;
}

/// A share that is not from 0 to less than 1; see [`Headroom::headroom`].
///
/// ```
/// use tollgate::{Headroom, Rate};
///
/// let error = Rate::per_second(10.0).headroom(5.0).unwrap_err();
/// assert_eq!(error.to_string(), "a headroom must be a share from 0 to less than 1, such as 0.05, not 5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidHeadroom {
    /// The share.
    pub share: f64,
}

impl fmt::Display for InvalidHeadroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.share;
        write!(f, "a headroom must be a share from 0 to less than 1, such as 0.05, not {share}")
    }
}

impl std::error::Error for InvalidHeadroom {}

/// What is left of a quota, in millionths.
#[derive(Clone, Copy, Debug)]
pub struct Rest(u32);

const WHOLE: u32 = 1_000_000;

impl Rest {
    fn of(share: f64) -> Result<Self, InvalidHeadroom> {
        let invalid = InvalidHeadroom { share };
        if !(0.0..1.0).contains(&share) {
            return Err(invalid);
        }
        let millionths = share * f64::from(WHOLE);
        // A float is not exactly the share that was written.
        let nearest = millionths.round();
        let millionths =
            if (millionths - nearest).abs() < 1e-6 { nearest } else { millionths.ceil() };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to a million
        match WHOLE - millionths as u32 {
            0 => Err(invalid),
            rest => Ok(Self(rest)),
        }
    }

    pub(super) fn of_permits(self, permits: u32) -> u32 {
        let rest = u64::from(permits) * u64::from(self.0) / u64::from(WHOLE);
        u32::try_from(rest).unwrap_or(permits).max(permits.min(1))
    }

    /// The time in which this part of a rate yields what the whole yields in `nanos`. It is a round time, which is
    /// shorter as text and in Redis.
    pub(super) fn of_time(self, nanos: u64, longest: Duration) -> u64 {
        let exact = (u128::from(nanos) * u128::from(WHOLE)).div_ceil(u128::from(self.0));
        let round = u64::try_from(rounded_up(exact)).unwrap_or(u64::MAX);
        round.min(saturating_nanos(longest)).max(nanos)
    }
}

/// What is kept of each.
macro_rules! keep {
    ($($(#[$why:meta])* $policy:ident: |$it:ident, $rest:pat_param| $kept:expr;)+) => {$(
        $(#[$why])*
        impl Headroom for $policy {
            fn keep(self, $rest: Rest) -> Self {
                let $it = self;
                $kept
            }
        }
    )+};
}
pub(crate) use keep;

keep! {
    Rate: |rate, rest| rate.part(rest.0, WHOLE);
}
