//! The text of a limit, `100/min burst 20`, read and written.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::error::InvalidLimit;
use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::lock_out::LockOut;
use crate::policy::parameters::{Kind, Parameter, Parameters, Type, Value};
use crate::policy::unlimited::Unlimited;
use crate::units::Rate;
use crate::units::text::{Cursor, Fault, Per, Span};

/// An option of a limit, by its words. What stands behind them is a value of the parameter.
struct Words {
    words: &'static str,
    /// The kind of policy that it makes of the limit.
    kind: Option<Kind>,
    parameter: Parameter,
    /// Whether a bucket is a meter.
    meter: Option<bool>,
}

const fn makes(words: &'static str, kind: Kind, parameter: Parameter) -> Words {
    Words { words, kind: Some(kind), parameter, meter: None }
}

const fn leaks(words: &'static str, meter: bool) -> Words {
    Words { meter: Some(meter), ..makes(words, Kind::LeakyBucket, Parameter::Capacity) }
}

const fn sets(words: &'static str, parameter: Parameter) -> Words {
    Words { words, kind: None, parameter, meter: None }
}

const OPTIONS: &[Words] = &[
    makes("burst", Kind::TokenBucket, Parameter::Capacity),
    sets("initial", Parameter::Initial),
    sets("refill every", Parameter::RefillEvery),
    makes("fixed window", Kind::FixedWindow, Parameter::Window),
    sets("aligned", Parameter::Aligned),
    makes("sliding window", Kind::SlidingWindowLog, Parameter::Window),
    sets("buckets", Parameter::Buckets),
    makes("max burst", Kind::SmoothBursty, Parameter::MaxBurst),
    makes("warm up", Kind::SmoothWarmingUp, Parameter::WarmUp),
    sets("cold factor", Parameter::ColdFactor),
    makes("gcra", Kind::Gcra, Parameter::Burst),
    leaks("queue", false),
    leaks("meter", true),
    sets("catch up", Parameter::CatchUp),
    sets(LOCK_OUT, Parameter::Duration),
];

const LOCK_OUT: &str = "lock out";

/// Each is a rule around the one before, and is dropped by recursion.
const MAX_LOCK_OUTS: usize = 8;

/// The words of places in flight; the first is written.
const IN_FLIGHT: [&str; 3] = ["in flight", "at once", "concurrent"];

/// No limit, where others have one.
const UNLIMITED: &str = "unlimited";

/// Takes these words, if they are next. Where the last is missing or another, that is the fault.
fn takes(cursor: &mut Cursor<'_>, words: &str) -> Result<Option<Range<usize>>, Fault> {
    let mut ahead = cursor.clone();
    let mut all = words.split(' ');
    let first = ahead.word();
    if all.next() != Some(ahead.text_at(&first)) {
        return Ok(None);
    }
    let mut end = first.end;
    for word in all {
        let at = ahead.word();
        if ahead.text_at(&at) != word {
            return Err(Fault::new(at, format!("expected {word}, as in {words:?}")));
        }
        end = at.end;
    }
    *cursor = ahead;
    Ok(Some(first.start..end))
}

/// Takes the next option.
fn option(cursor: &mut Cursor<'_>) -> Result<(&'static Words, Range<usize>), Fault> {
    // Two options may begin with one word: that which is complete counts, else the fault of the first.
    let mut fault = None;
    for option in OPTIONS {
        match takes(cursor, option.words) {
            Ok(Some(at)) => return Ok((option, at)),
            Ok(None) => {}
            Err(incomplete) => fault = fault.or(Some(incomplete)),
        }
    }
    let at = cursor.word();
    Err(fault.unwrap_or_else(|| match cursor.text_at(&at) {
        "window" => Fault::new(at, "expected \"fixed window\" or \"sliding window\""),
        _ => {
            let options: Vec<_> = OPTIONS.iter().map(|option| option.words).collect();
            Fault::new(at, format!("expected {}, a comma or the end", options.join(", ")))
        }
    }))
}

/// A parameter that is set, with the words that set it, and where these and the value stand.
struct Set {
    parameter: Parameter,
    words: &'static str,
    words_at: Range<usize>,
    value_at: Range<usize>,
}

/// What stands behind the words of an option.
fn read(cursor: &mut Cursor<'_>, kind: Type) -> Result<(Value, Range<usize>), Fault> {
    fn value<T: Into<Value>>((value, at): (T, Range<usize>)) -> (Value, Range<usize>) {
        (value.into(), at)
    }
    match kind {
        Type::Number | Type::Permits => cursor.whole().map(value),
        Type::Factor => cursor.decimal().map(value),
        // Without a time it is the clock's own time since the epoch.
        Type::Epoch if !cursor.peek().starts_with(|first: char| first.is_ascii_digit()) => {
            Ok(value((Clock::system().since_epoch(), 0..0)))
        }
        _ => cursor.span().map(value),
    }
}

/// The options of one limit.
#[derive(Default)]
struct Options {
    parameters: Parameters,
    /// The kind, and the words that made it that.
    kind: Option<(Kind, &'static str)>,
    set: Vec<Set>,
}

impl Options {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let (&Words { words, kind, parameter, meter }, at) = option(cursor)?;
        if self.set.iter().any(|set| set.words == words) {
            return Err(Fault::new(at, format!("{words:?} is there twice")));
        }
        if let Some(kind) = kind {
            if let Some((_, other)) = self.kind {
                return Err(Fault::new(at, format!("{words:?} does not go with {other:?}")));
            }
            self.kind = Some((kind, words));
        }
        let words_at = at.clone();
        // The quota has the window.
        let mut value_at = at;
        if parameter != Parameter::Window {
            let value;
            (value, value_at) = read(cursor, parameter.kind())?;
            self.parameters.set(parameter, value);
        }
        if let Some(meter) = meter {
            self.parameters.set(Parameter::Meter, meter);
        }
        self.set.push(Set { parameter, words, words_at, value_at });
        Ok(())
    }

    /// The kind, and its words. It is known when all options are.
    fn kind(&self) -> (Kind, &'static str) {
        match self.kind {
            Some((Kind::SlidingWindowLog, words))
                if self.parameters.get(Parameter::Buckets).is_some() =>
            {
                (Kind::SlidingWindowCounter, words)
            }
            Some(kind) => kind,
            None => (Kind::SmoothBursty, ""),
        }
    }

    fn policy(self) -> Result<AnyPolicy, Fault> {
        let (kind, of) = self.kind();
        if let Some(set) = self.set.iter().find(|set| !kind.has(set.parameter)) {
            let has = |kind: Kind| {
                let is_buckets = set.parameter == Parameter::Buckets;
                kind.has(set.parameter) || is_buckets && kind == Kind::SlidingWindowLog
            };
            let makes = OPTIONS.iter().filter(|option| option.kind.is_some_and(has));
            let makes: Vec<_> = makes.map(|option| format!("{:?}", option.words)).collect();
            let not = if of.is_empty() { String::new() } else { format!(", not with {of:?}") };
            let reason = format!("{:?} goes with {}{not}", set.words, makes.join(" or "));
            return Err(Fault::new(set.words_at.clone(), reason));
        }
        let set = self.set;
        kind.checked(&self.parameters).map_err(|flaw| {
            let at = set.iter().find(|set| set.parameter == flaw.parameter);
            Fault::new(at.map(|set| set.value_at.clone()).unwrap_or_default(), flaw.reason)
        })
    }
}

/// One limit, up to a comma or the end.
fn limit(cursor: &mut Cursor<'_>) -> Result<AnyPolicy, Fault> {
    if ["", ","].contains(&cursor.peek()) {
        let at = cursor.word();
        return Err(Fault::new(at, "expected a limit, such as 100/min"));
    }
    let mut policy = match takes(cursor, UNLIMITED)? {
        Some(_) => Unlimited.into(),
        None => match in_flight(cursor)? {
            Some(policy) => policy,
            None => by_time(cursor)?,
        },
    };
    let mut locks = 0;
    while !is_over(cursor) {
        let Some(at) = takes(cursor, LOCK_OUT)? else {
            let at = cursor.word();
            return Err(Fault::new(at, format!("expected {LOCK_OUT:?}, a comma or the end")));
        };
        locks += 1;
        if locks > MAX_LOCK_OUTS {
            return Err(Fault::new(at, format!("more than {MAX_LOCK_OUTS} times {LOCK_OUT:?}")));
        }
        let (duration, _) = cursor.span()?;
        policy = LockOut::new(policy, duration).into();
    }
    Ok(policy)
}

fn is_over(cursor: &mut Cursor<'_>) -> bool {
    cursor.is_at_end() || cursor.clone().takes(',')
}

/// `10 in flight`, if that is next.
fn in_flight(cursor: &mut Cursor<'_>) -> Result<Option<AnyPolicy>, Fault> {
    let mut ahead = cursor.clone();
    let at = ahead.word();
    ahead.counted();
    for words in IN_FLIGHT {
        if takes(&mut ahead, words)?.is_none() {
            continue;
        }
        ahead.counted();
        let (max, _) = cursor.whole()?;
        let mut parameters = Parameters::default();
        parameters.set(Parameter::Max, max);
        let policy = Kind::InFlight.checked(&parameters);
        let policy = policy.map_err(|flaw| Fault::new(at, flaw.reason))?;
        *cursor = ahead;
        return Ok(Some(policy));
    }
    Ok(None)
}

/// `100/min` and its options.
fn by_time(cursor: &mut Cursor<'_>) -> Result<AnyPolicy, Fault> {
    let quota = cursor.quota()?;
    let mut options = Options::default();
    while !is_over(cursor) && takes(&mut cursor.clone(), LOCK_OUT)?.is_none() {
        options.read(cursor)?;
    }
    let (kind, _) = options.kind();
    if kind.has(Parameter::Window) {
        let counts = || {
            Fault::new(
                quota.number_at.clone(),
                format!("a window counts whole permits, up to {}", u32::MAX),
            )
        };
        options.parameters.set(Parameter::Limit, quota.count().ok_or_else(counts)?);
        let too_long = || Fault::new(quota.at.clone(), "too long");
        options.parameters.set(Parameter::Window, quota.period().ok_or_else(too_long)?);
        options.set.retain(|set| set.parameter != Parameter::Window);
        for (parameter, words, at) in [
            (Parameter::Limit, "limit", &quota.number_at),
            (Parameter::Window, "window", &quota.at),
        ] {
            let (words_at, value_at) = (at.clone(), at.clone());
            options.set.push(Set { parameter, words, words_at, value_at });
        }
    } else {
        let rate =
            Rate::of(&quota).map_err(|error| Fault::new(quota.at.clone(), error.to_string()))?;
        options.parameters.set(Parameter::Rate, rate);
    }
    options.policy()
}

fn at_fault<T>(text: &str, read: Result<T, Fault>) -> Result<T, InvalidLimit> {
    read.map_err(|fault| InvalidLimit::of_limit(text, fault))
}

/// One limit as people write it.
///
/// | text | policy |
/// |---|---|
/// | `100/min` | [`SmoothBursty::evenly_spaced`](crate::SmoothBursty::evenly_spaced) |
/// | `100/min burst 20` | [`TokenBucket`](crate::TokenBucket) of 20; then `initial 5`, `refill every 1s` |
/// | `100/min sliding window` | [`SlidingWindowLog`](crate::SlidingWindowLog); with `buckets 6` a [`SlidingWindowCounter`](crate::SlidingWindowCounter) |
/// | `100/min fixed window` | [`FixedWindow`](crate::FixedWindow); then `aligned` by the wall clock, `aligned 20s` to a time since the epoch at the clock's origin |
/// | `10 in flight`, `10 at once` | [`InFlight`](crate::InFlight) |
/// | `100/min max burst 1s` | [`SmoothBursty`](crate::SmoothBursty) |
/// | `100/min warm up 3s` | [`SmoothWarmingUp`](crate::SmoothWarmingUp); then `cold factor 9` |
/// | `100/min queue 20`, `meter 20` | [`LeakyBucket`](crate::LeakyBucket) |
/// | `100/min gcra 19` | [`Gcra`](crate::Gcra) with this `max_burst` |
/// | `unlimited` | [`Unlimited`] |
///
/// A quota can be written as people say it: `100 per minute`, `100 requests/min`, `10 calls a second`, `1 every 5s`,
/// `20 rps`, `100rpm`, `15 RPM`, `90_000 tpm`; and places in flight as `10 concurrent requests`. A month is an error, as it has no fixed
/// length: `1000/30d`, or `1000/30d fixed window` for one that is counted from a day on.
///
/// A policy with a rate also has `catch up 0s`. `lock out 30s` at the end of any makes it a
/// [`LockOut`]. The number may have underscores, and the time a number: `90_000/15min`. A rule of
/// zero permits would grant nothing, and is an error.
///
/// The text of a policy ([`Display`](std::fmt::Display)) is one of these and parses back to an equal policy,
/// unless it is a rule of zero permits.
///
/// ```
/// use tollgate::{AnyPolicy, Rate, TokenBucket};
///
/// let policy: AnyPolicy = "100/min burst 20".parse()?;
/// assert_eq!(policy, TokenBucket::new(Rate::per_minute(100.0), 20).into());
/// assert_eq!(policy.to_string(), "100/min burst 20");
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
impl FromStr for AnyPolicy {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let mut cursor = Cursor::new(text);
        let read = limit(&mut cursor).and_then(|policy| match cursor.is_at_end() {
            true => Ok(policy),
            false => {
                let (comma, end) = (cursor.word().start, cursor.end().end);
                Err(Fault::new(comma..end, "expected one limit, not several"))
            }
        });
        at_fault(text, read)
    }
}

/// Several limits as people write them, with commas between them: `10/s, 1000/h, 5 in flight`. Each is the text of
/// an [`AnyPolicy`].
///
/// ```
/// use tollgate::AllOf;
///
/// let policy: AllOf = "10/s, 1000/h, 5 in flight".parse()?;
/// assert_eq!(policy.parts().len(), 3);
/// assert_eq!(policy.to_string(), "10/s, 1000/h, 5 in flight");
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
impl FromStr for AllOf {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        at_fault(text, all(&mut Cursor::new(text)))
    }
}

macro_rules! from_text {
    ($($text:ty,)+) => {$(
        /// The text of limits; see [`FromStr`](#impl-FromStr-for-AllOf).
        impl TryFrom<$text> for AllOf {
            type Error = InvalidLimit;

            fn try_from(text: $text) -> Result<Self, InvalidLimit> {
                text.parse()
            }
        }
    )+};
}
from_text! { &str, &String, String, }

fn all(cursor: &mut Cursor<'_>) -> Result<AllOf, Fault> {
    let mut parts = Vec::new();
    loop {
        if parts.len() == AllOf::MAX_PARTS {
            let reason = format!("more than {} limits", AllOf::MAX_PARTS);
            return Err(Fault::new(cursor.word(), reason));
        }
        parts.push(limit(cursor)?);
        if !cursor.takes(',') {
            return Ok(AllOf::new(parts));
        }
    }
}

/// The text that parses back to this policy; see [`FromStr`](#impl-FromStr-for-AnyPolicy).
impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight(policy) => return write!(f, "{} {}", policy.max, IN_FLIGHT[0]),
            Self::Unlimited(_) => return f.write_str(UNLIMITED),
            Self::LockOut(policy) => {
                return write!(f, "{} {LOCK_OUT} {}", policy.policy, Span(policy.duration));
            }
            _ => {}
        }
        let kind = match self.kind() {
            Some(Kind::SlidingWindowCounter) => Some(Kind::SlidingWindowLog),
            kind => kind,
        };
        let parameters = self.parameters(false);
        if let Some(Value::Rate(rate)) = parameters.get(Parameter::Rate) {
            write!(f, "{rate}")?;
        }
        if let Some(Value::Number(limit)) = parameters.get(Parameter::Limit) {
            write!(f, "{limit}")?;
        }
        if let Some(Value::Time(window)) = parameters.get(Parameter::Window) {
            write!(f, "/{}", Per(window.as_nanos()))?;
        }
        let is_meter = parameters.get(Parameter::Meter).is_some();
        for option in OPTIONS {
            let is_meant = option.kind.is_none_or(|of| Some(of) == kind)
                && option.meter.is_none_or(|meter| meter == is_meter);
            let Some(value) = parameters.get(option.parameter).filter(|_| is_meant) else {
                continue;
            };
            write!(f, " {}", option.words)?;
            match value {
                _ if option.parameter == Parameter::Window => {}
                Value::Number(number) => write!(f, " {number}")?,
                Value::Time(time) => write!(f, " {}", Span(time))?,
                Value::Factor(factor) => write!(f, " {factor}")?,
                Value::Rate(_) | Value::Flag(_) => {}
            }
        }
        Ok(())
    }
}

/// The texts of its parts, with commas between them; see [`FromStr`](#impl-FromStr-for-AllOf).
impl fmt::Display for AllOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{part}")?;
        }
        Ok(())
    }
}
