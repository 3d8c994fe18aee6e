//! Rates.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::invalid::InvalidLimit;
use super::text::{Cursor, DAY, Fault, HOUR, MINUTE, Number, Per, Quota, SECOND};

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
/// # Ok::<(), tollgate::InvalidLimit>(())
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
        Self::valid(Self::from_fraction(n, per.as_nanos()))
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
    /// [`InvalidLimit`] if `n` is not between 1 per day and 1e9 per second.
    pub fn try_per_second(n: f64) -> Result<Self, InvalidLimit> {
        Self::from_float(n, SECOND.as_nanos()).map_err(|rate| rate.asked(&format!("{n:?}/s")))
    }

    /// `n` permits per `per`, for values that come from outside.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the rate is not between 1 per day and 1e9 per second.
    pub fn try_new(n: u64, per: Duration) -> Result<Self, InvalidLimit> {
        let per = per.as_nanos();
        Self::from_fraction(n, per).map_err(|rate| rate.asked(&format!("{n}/{}", Per(per))))
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

    pub(crate) fn of(quota: &Quota) -> Result<Self, OutOfRange> {
        match quota.number {
            Number::Whole(number) => Self::from_fraction(number, quota.nanos),
            Number::Decimal(number) => Self::from_float(number, quota.nanos),
        }
    }

    #[track_caller]
    fn valid(rate: Result<Self, OutOfRange>) -> Self {
        // Without the number: what prints a float is 20 KB, in each program with a rate.
        rate.unwrap_or_else(|_| panic!("{BOUNDS}"))
    }

    /// A float is a fraction over a power of two, and is converted without rounding.
    fn from_float(n: f64, per: u128) -> Result<Self, OutOfRange> {
        #[allow(clippy::cast_precision_loss)] // for a message
        let out_of_range = || OutOfRange(n / (per as f64 / 1e9));
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

    pub(crate) fn from_fraction(permits: u64, nanos: u128) -> Result<Self, OutOfRange> {
        if permits == 0 || nanos == 0 {
            let per_second = if permits == 0 { 0.0 } else { f64::INFINITY };
            return Err(OutOfRange(per_second));
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
        Err(OutOfRange(per_second))
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
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let mut cursor = Cursor::new(text);
        let quota = cursor.quota().and_then(|quota| {
            if cursor.is_at_end() {
                Ok(quota)
            } else {
                Err(Fault::new(cursor.word(), "expected the end"))
            }
        });
        let quota = quota.map_err(|fault| InvalidLimit::new("rate", text, fault))?;
        Self::of(&quota).map_err(|rate| rate.asked(text))
    }
}

const BOUNDS: &str = "a rate must be from 1 per day to 1e9 per second";

/// A rate out of range, in permits a second. It becomes text where it is reported: what prints a float is 20 KB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutOfRange(f64);

impl OutOfRange {
    pub(crate) fn reason(self) -> String {
        format!("{BOUNDS}, not {:?} per second", self.0)
    }

    /// The error of this rate, as it was asked for.
    fn asked(self, text: &str) -> InvalidLimit {
        InvalidLimit::new("rate", text, Fault::new(0..text.len(), self.reason()))
    }
}
