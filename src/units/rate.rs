//! Rates.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::text::{Cursor, DAY, HOUR, MINUTE, Number, Per, Quota, SECOND};

/// A number of permits per second, minute, hour or day: from 1 per day to 1,000,000,000 per second.
///
/// The value is kept as an exact fraction, so that no rate drifts: three per seven seconds stays three per seven
/// seconds after a million calls. A value that is out of range, zero, negative, not a number or infinite is
/// rejected when the rate is created, so no later code has to check it. Use
/// [`pause_for`](crate::RateLimiter::pause_for) to grant nothing, and `per_second(1e9)` for no limit in practice.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Rate;
///
/// assert_eq!(Rate::per_second(5.0), Rate::every(Duration::from_millis(200)));
/// assert_eq!(Rate::per_minute(90.0), Rate::new(3, Duration::from_secs(2)));
/// assert_eq!("100/min".parse::<Rate>()?, Rate::new(100, Duration::from_secs(60)));
/// assert_eq!("900/15min".parse::<Rate>()?, "1/s".parse::<Rate>()?);
/// assert_eq!(Rate::per_second(5.0).as_per_second(), 5.0);
/// # Ok::<(), tollgate::InvalidRate>(())
/// ```
// Packed, because alignment to 16 bytes would cost each policy with a rate eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(Rust, packed(8))]
pub struct Rate {
    // Permits and nanoseconds, in lowest terms. The nanoseconds need more than 64 bits because an
    // f64 like 0.1 is a fraction over a large power of two.
    permits: u64,
    nanos: u128,
}

impl Rate {
    /// `n` permits per second.
    ///
    /// # Panics
    ///
    /// If `n` is not between 1 per day and 1e9 per second; see [`Rate::try_per_second`].
    #[must_use]
    #[track_caller]
    pub fn per_second(n: f64) -> Self {
        Self::valid(Self::from_float(n, SECOND.as_nanos()))
    }

    /// `n` permits per minute. Panics as [`per_second`](Self::per_second) does.
    #[must_use]
    #[track_caller]
    pub fn per_minute(n: f64) -> Self {
        Self::valid(Self::from_float(n, MINUTE.as_nanos()))
    }

    /// `n` permits per hour. Panics as [`per_second`](Self::per_second) does.
    #[must_use]
    #[track_caller]
    pub fn per_hour(n: f64) -> Self {
        Self::valid(Self::from_float(n, HOUR.as_nanos()))
    }

    /// `n` permits per `per`: `Rate::new(3, Duration::from_secs(7))` is three permits per seven seconds.
    ///
    /// # Panics
    ///
    /// If the rate is not between 1 per day and 1e9 per second; see [`Rate::try_new`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Rate;
    /// assert_eq!(Rate::new(900, Duration::from_secs(15 * 60)), Rate::per_second(1.0));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(n: u64, per: Duration) -> Self {
        Self::valid(Self::try_new(n, per))
    }

    /// One permit per `interval`.
    ///
    /// # Panics
    ///
    /// If the interval is below a nanosecond (zero) or above a day.
    #[must_use]
    #[track_caller]
    pub fn every(interval: Duration) -> Self {
        Self::new(1, interval)
    }

    /// `n` permits per second, for values that come from outside.
    ///
    /// # Errors
    ///
    /// [`InvalidRate`] if `n` is not between 1 per day and 1e9 per second.
    pub fn try_per_second(n: f64) -> Result<Self, InvalidRate> {
        Self::from_float(n, SECOND.as_nanos())
    }

    /// `n` permits per `per`, for values that come from outside.
    ///
    /// # Errors
    ///
    /// [`InvalidRate`] if the rate is not between 1 per day and 1e9 per second.
    pub fn try_new(n: u64, per: Duration) -> Result<Self, InvalidRate> {
        Self::from_fraction(n, per.as_nanos())
    }

    /// This rate in permits per second.
    #[must_use]
    pub fn as_per_second(self) -> f64 {
        self.as_per(SECOND)
    }

    /// In permits per `span`, which is at most a day.
    #[allow(clippy::cast_precision_loss)] // to the nearest float
    fn as_per(self, span: Duration) -> f64 {
        // A rate made from a float must return the same float. So the division uses integers, without
        // their powers of two, and rounds once.
        let permits = u128::from(self.permits) * span.as_nanos();
        let up = permits.leading_zeros();
        let wider_than_64_bits = 64u32.saturating_sub(self.nanos.leading_zeros());
        let down = self.nanos.trailing_zeros().max(wider_than_64_bits);
        let (permits, nanos) = (permits << up, self.nanos >> down);
        let sticky = u128::from(!permits.is_multiple_of(nanos));
        // Not by `powi`, which promises no precision.
        ((permits / nanos) | sticky) as f64 / (1u128 << up) as f64 / (1u128 << down) as f64
    }

    /// The rate as a fraction in lowest terms: permits, and the nanoseconds in which they come.
    ///
    /// ```
    /// # use tollgate::Rate;
    /// assert_eq!(Rate::per_minute(90.0).fraction(), (3, 2_000_000_000));
    /// ```
    #[must_use]
    pub const fn fraction(self) -> (u64, u128) {
        (self.permits, self.nanos)
    }

    /// The permits in `span`, if they are a whole number.
    fn permits_in(self, span: Duration) -> Option<u64> {
        let permits = u128::from(self.permits) * span.as_nanos();
        permits.is_multiple_of(self.nanos).then_some(permits / self.nanos)?.try_into().ok()
    }

    pub(crate) fn of(quota: &Quota) -> Result<Self, InvalidRate> {
        match quota.number {
            Number::Whole(number) => Self::from_fraction(number, quota.nanos),
            Number::Decimal(number) => Self::from_float(number, quota.nanos),
        }
    }

    #[track_caller]
    fn valid(rate: Result<Self, InvalidRate>) -> Self {
        // Without the number: what prints a float is 20 KB, in each program with a rate.
        rate.unwrap_or_else(|_| panic!("{BOUNDS}"))
    }

    /// A float is a fraction over a power of two, and is converted without rounding.
    fn from_float(n: f64, per: u128) -> Result<Self, InvalidRate> {
        #[allow(clippy::cast_precision_loss)] // for a message
        let out_of_range = || InvalidRate::OutOfRange { per_second: n / (per as f64 / 1e9) };
        // No rate is below one a day, and no usual span longer than a year.
        if !(1e-6..=1e14).contains(&n) {
            return Err(out_of_range());
        }
        let (mut permits, mut scale) = (n, 1u128);
        while permits.fract() != 0.0 {
            (permits, scale) = (2.0 * permits, 2 * scale);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole, and below 2^53
        Self::from_fraction(permits as u64, per.checked_mul(scale).ok_or_else(out_of_range)?)
    }

    pub(crate) fn from_fraction(permits: u64, nanos: u128) -> Result<Self, InvalidRate> {
        if permits == 0 || nanos == 0 {
            let per_second = if permits == 0 { 0.0 } else { f64::INFINITY };
            return Err(InvalidRate::OutOfRange { per_second });
        }
        let divisor = greatest_common_divisor(u128::from(permits), nanos);
        let rate = Self {
            // The divisor divides `permits`, so it is no larger and the quotient fits.
            permits: u64::try_from(u128::from(permits) / divisor).unwrap_or(permits),
            nanos: nanos / divisor,
        };
        // The float nearest to 1/86400 is less by 1 in 2^53 at most, and counts as one per day.
        let at_least_one_a_day =
            rate.nanos - (rate.nanos >> 52) <= u128::from(rate.permits) * DAY.as_nanos();
        let at_most_one_a_nanosecond = u128::from(rate.permits) <= rate.nanos;
        if at_least_one_a_day && at_most_one_a_nanosecond {
            return Ok(rate);
        }
        #[allow(clippy::cast_precision_loss)] // for a message
        let per_second = permits as f64 / (nanos as f64 / 1e9);
        Err(InvalidRate::OutOfRange { per_second })
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Uses the unit in which the rate is a whole number, else one in which it is a float, else the fraction:
/// `100/min`, `0.1/s`, `3/7s`. The text parses back to the same rate.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(SECOND, "s"), (MINUTE, "min"), (HOUR, "h"), (DAY, "day")];
        for (span, unit) in units {
            if let Some(whole) = self.permits_in(span) {
                return write!(f, "{whole}/{unit}");
            }
        }
        for (span, unit) in units {
            let number = self.as_per(span);
            if Self::from_float(number, span.as_nanos()) == Ok(*self) {
                return write!(f, "{number}/{unit}");
            }
        }
        write!(f, "{}/{}", { self.permits }, Per(self.nanos))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate({self})")
    }
}

/// The faster rate is the greater one.
impl Ord for Rate {
    fn cmp(&self, other: &Self) -> Ordering {
        // Compares nanoseconds per permit: whole nanoseconds first, then the remainders, whose products fit.
        let parts = |rate: &Self| {
            let permits = u128::from(rate.permits);
            (rate.nanos / permits, rate.nanos % permits, permits)
        };
        let ((whole, rest, permits), (its_whole, its_rest, its_permits)) =
            (parts(self), parts(other));
        (its_whole, its_rest * permits).cmp(&(whole, rest * its_permits))
    }
}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A number, a slash, and a time: `5/s`, `0.5/sec`, `100/min`, `900/15min`, `1/5s`, `90_000/h`, `1/200ms`.
///
/// The time is a unit (`ns`, `us`, `ms`, `s`, `min`, `h`, `day`, or its other usual names), with a whole number
/// before it or none. Also as people say it: `100 per minute`, `100 requests/min`, `1 every 5s`, `20 rps`, `100rpm`.
impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let mut cursor = Cursor::new(text);
        let quota = cursor.quota().ok().filter(|_| cursor.is_at_end());
        let quota = quota.ok_or_else(|| InvalidRate::Malformed { text: text.to_owned() })?;
        Self::of(&quota)
    }
}

/// The error of an invalid [`Rate`].
///
/// ```
/// use tollgate::{InvalidRate, Rate};
///
/// let error = "100 per fortnight".parse::<Rate>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "not a rate: \"100 per fortnight\" (expected a number, a slash and a time, such as 100/min or 1/5s)"
/// );
/// assert!(matches!(Rate::try_per_second(0.0), Err(InvalidRate::OutOfRange { .. })));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidRate {
    /// Zero, negative, not a number, infinite, below one per day or above 1e9 per second.
    OutOfRange {
        /// The requested rate, in permits per second.
        per_second: f64,
    },
    /// The text is not a rate.
    Malformed {
        /// The text.
        text: String,
    },
}

const BOUNDS: &str = "a rate must be from 1 per day to 1e9 per second";

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { per_second } => {
                write!(f, "{BOUNDS}, not {per_second:?} per second")
            }
            Self::Malformed { text } => write!(
                f,
                "not a rate: {text:?} (expected a number, a slash and a time, such as 100/min or 1/5s)"
            ),
        }
    }
}

impl std::error::Error for InvalidRate {}
