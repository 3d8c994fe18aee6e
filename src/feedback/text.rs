//! Numbers, durations and dates, as servers write them in header fields.
//!
//! Strict: what is not of the form is `None`, which the caller counts. Numbers that are too large saturate; the
//! bounds of what a server may ask for are set elsewhere.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a field gives a time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Form, When};
///
/// assert_eq!(Form::Duration.parse("6m0s"), Some(When::After(Duration::from_secs(360))));
/// assert_eq!(Form::Epoch.parse("1372700873"), Some(When::At(Duration::from_secs(1_372_700_873))));
/// assert_eq!(Form::Any.parse("-1"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// Seconds from now, with or without decimals.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since the Unix epoch, with or without decimals.
    Epoch,
    /// A time from now as `1h2m3.5s`, `6m0s`, `20ms`; a bare number is seconds.
    Duration,
    /// A date and time as RFC 3339 has them.
    Rfc3339,
    /// A date as HTTP has it, in one of its three forms.
    HttpDate,
    /// Whichever of these it is: a number from 10^9 on is seconds since the epoch, from 10^12 on milliseconds.
    Any,
}

/// A time that a server gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// This long after the response was made.
    After(Duration),
    /// At this time since the Unix epoch, by the server's clock.
    At(Duration),
}

impl When {
    /// How long after `now`, a time since the Unix epoch by the same clock; zero if it has passed.
    #[must_use]
    pub fn after(self, now: Duration) -> Duration {
        match self {
            Self::After(duration) => duration,
            Self::At(time) => time.saturating_sub(now),
        }
    }
}

impl Form {
    /// The time in `text`; `None` if it is not of this form.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<When> {
        let text = text.trim();
        match self {
            Self::Seconds => seconds(text).map(When::After),
            Self::Millis => seconds(text).map(|time| When::After(time / 1000)),
            Self::Epoch => seconds(text).map(When::At),
            Self::Duration => duration(text).map(When::After),
            Self::Rfc3339 => rfc3339(text).map(When::At),
            Self::HttpDate => http_date(text).map(When::At),
            Self::Any => match seconds(text) {
                Some(time) if time.as_secs() >= 1_000_000_000_000 => Some(When::At(time / 1000)),
                Some(time) if time.as_secs() >= 1_000_000_000 => Some(When::At(time)),
                Some(time) => Some(When::After(time)),
                None => Self::Duration
                    .parse(text)
                    .or_else(|| Self::Rfc3339.parse(text))
                    .or_else(|| Self::HttpDate.parse(text)),
            },
        }
    }
}

/// The longest time of a field that may have been sent several times, as their values are joined by commas. `now`
/// is the server's clock.
pub(super) fn longest(form: Form, text: &str, now: Option<Duration>) -> Option<When> {
    let mut longest = None;
    let mut parts = text.split(',');
    while let Some(part) = parts.next() {
        // A date of HTTP has a comma of its own.
        let time = form.parse(part).or_else(|| form.parse(&format!("{part},{}", parts.next()?)))?;
        longest = longest
            .into_iter()
            .chain([time])
            .max_by_key(|time| time.after(now.unwrap_or_default()));
    }
    longest
}

/// The whole part and the nanosecond fraction of a number without a sign or an exponent.
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let whole = whole.parse().unwrap_or(u64::MAX);
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some((whole, digits.fold(0, |nanos, digit| 10 * nanos + u32::from(digit - b'0'))))
}

/// A number of permits: decimals are cut off.
pub(super) fn count(text: &str) -> Option<u64> {
    decimal(text.trim()).map(|(whole, _)| whole)
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, nanos) = decimal(text)?;
    Some(Duration::new(whole, nanos))
}

/// As Go prints durations.
fn duration(mut text: &str) -> Option<Duration> {
    if let Some(seconds) = seconds(text) {
        return Some(seconds);
    }
    if text.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(end);
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let (whole, nanos) = decimal(number)?;
        // In nanoseconds: no unit is longer than a day, so the product has room.
        let nanos = u128::from(whole) * 1_000_000_000 + u128::from(nanos);
        let nanos = match unit {
            "d" => nanos * 86_400,
            "h" => nanos * 3_600,
            "m" => nanos * 60,
            "s" => nanos,
            "ms" => nanos / 1_000,
            "us" | "µs" | "μs" => nanos / 1_000_000,
            "ns" => nanos / 1_000_000_000,
            _ => return None,
        };
        let nanos = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        total = total.saturating_add(nanos);
        text = rest;
    }
    Some(total)
}

fn http_date(text: &str) -> Option<Duration> {
    since_epoch(httpdate::parse_http_date(text).ok()?)
}

/// With an offset, which the parser knows as `Z` only.
fn rfc3339(text: &str) -> Option<Duration> {
    let (date, offset) = match text.len().checked_sub(6).and_then(|at| text.split_at_checked(at)) {
        Some((date, offset)) if offset.starts_with(['+', '-']) => (format!("{date}Z"), offset),
        _ => (text.to_ascii_uppercase(), "+00:00"),
    };
    let time = since_epoch(humantime::parse_rfc3339(&date.replace('t', "T")).ok()?)?;
    let (hours, minutes) = offset[1..].split_once(':')?;
    let offset_seconds = match (hours.len(), minutes.len()) {
        (2, 2) => 3600 * count(hours)?.min(24) + 60 * count(minutes)?.min(60),
        _ => return None,
    };
    let offset_by = Duration::from_secs(offset_seconds);
    if offset.starts_with('-') { time.checked_add(offset_by) } else { time.checked_sub(offset_by) }
}

fn since_epoch(time: SystemTime) -> Option<Duration> {
    time.duration_since(UNIX_EPOCH).ok()
}
