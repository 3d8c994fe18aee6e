//! Numbers, times and quotas as people write them: `90_000`, `15min`, `100/min`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// The names of each unit of time, that which is written first. The longest unit is the first.
const UNITS: [(Duration, &[&str]); 7] = [
    (DAY, &["day", "days", "d"]),
    (HOUR, &["h", "hour", "hours", "hr"]),
    (MINUTE, &["min", "m", "minute", "minutes"]),
    (SECOND, &["s", "sec", "second", "seconds"]),
    (Duration::from_millis(1), &["ms", "msec"]),
    (Duration::from_micros(1), &["us", "µs", "usec"]),
    (Duration::from_nanos(1), &["ns", "nsec"]),
];

/// A unit of permits and the slash, in one word.
const PER: [(Duration, &[&str]); 4] = [
    (SECOND, &["rps", "qps", "tps"]),
    (MINUTE, &["rpm", "qpm", "tpm"]),
    (HOUR, &["rph", "qph", "tph"]),
    (DAY, &["rpd", "qpd", "tpd"]),
];

/// What stands for the slash.
const SLASHES: [&str; 6] = ["/", "per", "a", "an", "each", "every"];

/// What is counted, which may stand behind a number.
const COUNTED: [&str; 14] = [
    "requests", "request", "reqs", "req", "r", "calls", "call", "permits", "permit", "tokens",
    "token", "messages", "message", "jobs",
];

/// Whether it is one of these words, in small letters or capitals.
fn is_one_of(names: &[&str], word: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(word))
}

const UNIT_NAMES: &str = "ns, us, ms, s, min, h or day";

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Bytes of the text. Empty at the end, where something is missing.
    pub(crate) at: Range<usize>,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(at: Range<usize>, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }
}

/// A number of permits in a time, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    pub(super) number: Number,
    pub(super) nanos: u128,
    /// Where the number and the whole quota stand.
    pub(crate) number_at: Range<usize>,
    pub(crate) at: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Whole(u64),
    Decimal(f64),
}

impl Quota {
    /// The permits, for a rule that counts them.
    pub(crate) fn count(&self) -> Option<u32> {
        let Number::Whole(number) = self.number else { return None };
        u32::try_from(number).ok()
    }

    pub(crate) fn period(&self) -> Option<Duration> {
        duration(self.nanos)
    }
}

/// Reads a text from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    pub(crate) fn text_at(&self, at: &Range<usize>) -> &'a str {
        &self.text[at.clone()]
    }

    /// Takes `sign` if it is next.
    pub(crate) fn takes(&mut self, sign: char) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len_utf8() } else { 0 };
        is_next
    }

    /// The next characters that are none of these, after spaces.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> Range<usize> {
        self.skip_space();
        let start = self.at;
        self.at += self.rest().find(ends).unwrap_or(self.rest().len());
        start..self.at
    }

    /// The next word: what stands before a space, a slash or a comma; or that slash or comma. Empty at the end.
    pub(crate) fn word(&mut self) -> Range<usize> {
        let word = self.until(is_end);
        self.at += usize::from(word.is_empty() && !self.rest().is_empty());
        word.start..self.at
    }

    /// The next word, without taking it.
    pub(crate) fn peek(&self) -> &'a str {
        let mut ahead = self.clone();
        let word = ahead.word();
        &self.text[word]
    }

    /// A whole number.
    pub(crate) fn whole(&mut self) -> Result<(u32, Range<usize>), Fault> {
        self.parsed("expected a whole number up to 4294967295")
    }

    /// A number with or without decimals.
    pub(crate) fn decimal(&mut self) -> Result<(f64, Range<usize>), Fault> {
        self.parsed("expected a number")
    }

    fn parsed<T: FromStr>(&mut self, expected: &str) -> Result<(T, Range<usize>), Fault> {
        let at = self.word();
        match digits(self.text_at(&at)).parse() {
            Ok(number) => Ok((number, at)),
            Err(_) => Err(Fault::new(at, expected)),
        }
    }

    /// A whole number and a unit: `20ms`.
    pub(crate) fn span(&mut self) -> Result<(Duration, Range<usize>), Fault> {
        let (nanos, at) = self.nanos(false)?;
        let span = duration(nanos).ok_or_else(|| Fault::new(at.clone(), "too long"))?;
        Ok((span, at))
    }

    /// Takes the name of what is counted, if that is next: it means nothing.
    pub(crate) fn counted(&mut self) {
        let mut ahead = self.clone();
        let word = ahead.word();
        if is_one_of(&COUNTED, ahead.text_at(&word)) {
            *self = ahead;
        }
    }

    /// A number, with a word behind it or none.
    fn number(&mut self) -> Result<(Number, Range<usize>), Fault> {
        let word = self.clone().word();
        let at = self.until(|next| is_end(next) || next.is_alphabetic());
        let number = digits(self.text_at(&at));
        let whole = number.parse().map(Number::Whole);
        let number = whole.or_else(|_| number.parse().map(Number::Decimal));
        Ok((number.map_err(|_| Fault::new(word, "expected a number"))?, at))
    }

    /// A number, a slash, and a time, or other words for them.
    pub(crate) fn quota(&mut self) -> Result<Quota, Fault> {
        let (number, number_at) = self.number()?;
        self.counted();
        let at = self.word();
        let word = self.text_at(&at);
        let (nanos, time_at) = match PER.iter().find(|(_, names)| is_one_of(names, word)) {
            Some((unit, _)) => (unit.as_nanos(), at),
            None if is_one_of(&SLASHES, word) => self.nanos(true)?,
            None => return Err(Fault::new(at, "expected a slash and a time, such as 100/min")),
        };
        Ok(Quota { number, nanos, at: number_at.start..time_at.end, number_at })
    }

    /// A time in nanoseconds, at least one if it `divides`. The number before the unit may be missing then.
    fn nanos(&mut self, divides: bool) -> Result<(u128, Range<usize>), Fault> {
        let count_at = self.until(|next| is_end(next) || next.is_alphabetic());
        let unit_at = self.word();
        let (count, unit) = (self.text_at(&count_at), self.text_at(&unit_at));
        let at = if count.is_empty() { unit_at.clone() } else { count_at.start..unit_at.end };
        let count = match count {
            "" if divides => Some(1),
            count => digits(count).parse::<u128>().ok(),
        };
        let expected =
            || format!("expected a time, such as 20ms or 15min: a whole number and {UNIT_NAMES}");
        let count = count.ok_or_else(|| Fault::new(at.clone(), expected()))?;
        // `M` may be a month, which has no fixed length.
        let known = UNITS.iter().find(|(_, names)| is_one_of(names, unit) && unit != "M");
        let unknown = || Fault::new(unit_at, format!("expected {UNIT_NAMES}"));
        let (unit, _) = known.ok_or_else(unknown)?;
        let nanos = unit.as_nanos().checked_mul(count);
        let nanos = nanos.ok_or_else(|| Fault::new(at.clone(), "too long"))?;
        if divides && nanos == 0 {
            return Err(Fault::new(at, "a time must not be zero"));
        }
        Ok((nanos, at))
    }
}

/// Whether a word ends before this.
fn is_end(next: char) -> bool {
    next.is_whitespace() || "/,".contains(next)
}

/// Without underscores.
fn digits(number: &str) -> String {
    number.replace('_', "")
}

/// `None` if it is longer than a `Duration`.
pub(crate) fn duration(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / SECOND.as_nanos()).ok()?;
    let rest = u32::try_from(nanos % SECOND.as_nanos()).ok()?;
    Some(Duration::new(seconds, rest))
}

/// A time as [`Cursor::span`] reads it: `15min`.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = in_units(self.0.as_nanos());
        write!(f, "{count}{unit}")
    }
}

/// A time in nanoseconds, as it stands behind a slash: `15min` and `min`.
pub(crate) struct Per(pub(crate) u128);

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match in_units(self.0) {
            (1, unit) => f.write_str(unit),
            (count, unit) => write!(f, "{count}{unit}"),
        }
    }
}

/// The longest unit of which it is a multiple, and how many of them.
fn in_units(nanos: u128) -> (u128, &'static str) {
    let of_unit = |unit: Duration| nanos != 0 && nanos.is_multiple_of(unit.as_nanos());
    match UNITS.iter().find(|(unit, _)| of_unit(*unit)) {
        // Only days have a plural.
        Some(&(DAY, names)) if nanos > DAY.as_nanos() => (nanos / DAY.as_nanos(), names[1]),
        Some((unit, names)) => (nanos / unit.as_nanos(), names[0]),
        None => (0, "s"),
    }
}
