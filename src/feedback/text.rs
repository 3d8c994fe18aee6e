//! Numbers, durations and dates, as servers write them in header fields.
//!
//! Strict: what is not of the form is `None`, which the caller counts. Numbers that are too large saturate; the
//! bounds of what a server may ask for are set elsewhere.

use std::time::{Duration, UNIX_EPOCH};

/// A time that a server gave. A time from now is the greater one, as it needs no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At this time since the Unix epoch, by the server's clock.
    At(Duration),
    /// This long after the response was made.
    After(Duration),
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

/// A time in any of the forms that [`Field`](super::Field) lists.
pub(super) fn time(text: &str) -> Option<When> {
    let text = text.trim();
    let Some(time) = seconds(text) else {
        let date = || rfc3339(text).or_else(|| http_date(text)).map(When::At);
        // Seconds saturate.
        let duration = clock(text).or_else(|| seconds(text.strip_suffix('s')?));
        let duration = duration.or_else(|| humantime::parse_duration(text).ok());
        return duration.map(When::After).or_else(date);
    };
    Some(match time.as_secs().checked_ilog10().unwrap_or(0) {
        0..=8 => When::After(time),
        9..=11 => When::At(time),
        12..=14 => When::At(time / 1_000),
        15..=17 => When::At(time / 1_000_000),
        _ => When::At(time / 1_000_000_000),
    })
}

/// The times of a field that several limiters or several fields have made a list, whose parameters are left out.
pub(super) fn times(text: &str, is_millis: bool) -> Option<Vec<When>> {
    let mut times = Vec::new();
    let mut parts = text.split(',').map(|part| part.split(';').next().unwrap_or_default());
    while let Some(part) = parts.next() {
        times.push(match is_millis {
            true => When::After(seconds(part.trim())? / 1000),
            // A date of HTTP has a comma of its own.
            false => time(part).or_else(|| time(&format!("{part},{}", parts.next()?)))?,
        });
    }
    Some(times)
}

/// A whole number without a sign.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A number without a sign or an exponent, to the nanosecond.
fn seconds(text: &str) -> Option<Duration> {
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let (seconds, _) = (whole(number)?, whole(fraction)?);
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0, |nanos, digit| 10 * nanos + u32::from(digit - b'0'));
    Some(Duration::new(seconds, nanos))
}

/// A number of permits, without its decimals and what follows: parameters (`76;w=21600`) or the window (`100/30m`). Less
/// than none is none.
pub(super) fn permits(text: &str) -> Option<u64> {
    let number = text.split([';', '/']).next()?.trim();
    let positive = number.strip_prefix('-');
    let count = seconds(positive.unwrap_or(number))?.as_secs();
    Some(if positive.is_some() { 0 } else { count })
}

/// As .NET prints durations: `00:01:30`, or `1.02:03:04.5` with a day.
fn clock(text: &str) -> Option<Duration> {
    let parts: Vec<_> = text.split(':').collect();
    let &[hours, minutes, rest] = &*parts else { return None };
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let minutes = whole(minutes).filter(|&minutes| minutes < 60)?;
    let seconds = seconds(rest).filter(|rest| rest.as_secs() < 60)?;
    let hours = whole(days)?.saturating_mul(24).saturating_add(whole(hours)?);
    let before = hours.saturating_mul(3600).saturating_add(60 * minutes);
    Some(Duration::from_secs(before).saturating_add(seconds))
}

fn http_date(text: &str) -> Option<Duration> {
    let date = ["UTC", "+0000", "-0000"].iter().find_map(|zone| text.strip_suffix(zone));
    let text = date.map_or(text.to_owned(), |date| format!("{date}GMT"));
    httpdate::parse_http_date(&text).ok()?.duration_since(UNIX_EPOCH).ok()
}

/// With an offset, which the parser knows as `Z` or none only.
fn rfc3339(text: &str) -> Option<Duration> {
    let (date, offset) = match text.len().checked_sub(6).and_then(|at| text.split_at_checked(at)) {
        Some((date, offset)) if offset.starts_with(['+', '-']) => (format!("{date}Z"), offset),
        _ => (text.to_ascii_uppercase(), "+00:00"),
    };
    let time = humantime::parse_rfc3339_weak(&date.replace('t', "T")).ok()?;
    let time = time.duration_since(UNIX_EPOCH).ok()?;
    let (hours, minutes) = offset[1..].split_once(':').filter(|(hours, _)| hours.len() == 2)?;
    let offset_by = 3600 * whole(hours)?.min(24) + 60 * whole(minutes)?.min(60);
    let offset_by = Duration::from_secs(offset_by);
    if offset.starts_with('-') { time.checked_add(offset_by) } else { time.checked_sub(offset_by) }
}
