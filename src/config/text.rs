//! The text of a limit, `100/min burst 20`, read and written.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::in_flight::InFlight;
use crate::policy::lock_out::LockOut;
use crate::policy::parameters::{
    Kind, LOCK_OUT, METER, OPTIONS, Parameter, Parameters, QUEUE, Type, Value, Words,
};
use crate::policy::unlimited::Unlimited;
use crate::units::text::{Cursor, Fault, Per, Span};
use crate::units::{InvalidLimit, Rate};

/// The words of places in flight; the first is written.
const IN_FLIGHT: [&str; 3] = ["in flight", "at once", "concurrent"];

/// No limit, where others have one.
const UNLIMITED: &str = "unlimited";

/// Takes these words, if they are next.
fn takes(cursor: &mut Cursor<'_>, words: &str) -> Option<Range<usize>> {
    let mut ahead = cursor.clone();
    let places = words.split(' ').map(|word| {
        let at = ahead.word();
        (ahead.text_at(&at) == word).then_some(at)
    });
    let places = places.collect::<Option<Vec<_>>>()?;
    *cursor = ahead;
    Some(places.first()?.start..places.last()?.end)
}

/// Takes the next option.
fn option(cursor: &mut Cursor<'_>) -> Result<(&'static Words, Range<usize>), Fault> {
    let mut all = OPTIONS.iter();
    let next = all.find_map(|option| Some((option, takes(cursor, option.0)?)));
    next.ok_or_else(|| {
        let options: Vec<_> = OPTIONS.iter().map(|option| option.0).collect();
        let reason = format!("expected {}, a comma or the end", options.join(", "));
        Fault::new(cursor.word(), reason)
    })
}

/// Takes the value of an option.
fn value(cursor: &mut Cursor<'_>, kind: Type) -> Result<(Value, Range<usize>), Fault> {
    match kind {
        Type::Number | Type::Permits => cursor.whole().map(|(it, at)| (Value::Number(it), at)),
        Type::Factor => cursor.decimal().map(|(it, at)| (Value::Factor(it), at)),
        // Without a time it is the clock's own time since the epoch.
        Type::Epoch if !cursor.peek().starts_with(|first: char| first.is_ascii_digit()) => {
            Ok((Value::Epoch(Some(Clock::system().since_epoch())), 0..0))
        }
        Type::Epoch => cursor.span().map(|(it, at)| (Value::Epoch(Some(it)), at)),
        _ => cursor.span().map(|(it, at)| (Value::Time(it), at)),
    }
}

/// The options of one limit.
#[derive(Default)]
struct Options {
    parameters: Parameters,
    /// Each option, where its words stand, and where its value does.
    given: Vec<(&'static Words, Range<usize>, Range<usize>)>,
}

impl Options {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let (option, at) = option(cursor)?;
        let &(words, kind, parameter) = option;
        for ((other, other_kind, _), ..) in &self.given {
            if *other == words {
                return Err(Fault::new(at, format!("{words:?} occurs twice")));
            }
            if other_kind.is_some() && kind.is_some() {
                return Err(Fault::new(at, format!("{words:?} cannot be combined with {other:?}")));
            }
        }
        let mut value_at = at.clone();
        // The quota has the window.
        if parameter != Parameter::Window {
            let (value, at) = value(cursor, parameter.kind())?;
            self.parameters.set(parameter, value);
            value_at = at;
        }
        if words == METER {
            self.parameters.set(Parameter::Meter, Value::Flag(true));
        }
        self.given.push((option, at, value_at));
        Ok(())
    }

    /// The kind, which all options have to go with.
    fn kind(&self) -> Result<Kind, Fault> {
        let made = self.given.iter().find_map(|((words, kind, _), ..)| Some(((*kind)?, *words)));
        let (kind, of) = made.unwrap_or((Kind::SmoothBursty, ""));
        let misfit = self.given.iter().find(|((_, _, parameter), ..)| !kind.has(*parameter));
        let Some(((words, _, parameter), at, _)) = misfit else { return Ok(kind) };
        let has = |option: &&Words| option.1.is_some_and(|kind| kind.has(*parameter));
        let makes = OPTIONS.iter().filter(has).map(|option| format!("{:?}", option.0));
        let makes = makes.collect::<Vec<_>>().join(" or ");
        let not = if of.is_empty() { String::new() } else { format!(", not to {of:?}") };
        Err(Fault::new(at.clone(), format!("{words:?} belongs to {makes}{not}")))
    }
}

/// One limit, up to a comma or the end.
fn limit(cursor: &mut Cursor<'_>) -> Result<AnyPolicy, Fault> {
    if ["", ","].contains(&cursor.peek()) {
        return Err(Fault::new(cursor.word(), "expected a limit, such as 100/min"));
    }
    let policy = match takes(cursor, UNLIMITED) {
        Some(_) => Unlimited.into(),
        None => match in_flight(cursor)? {
            Some(policy) => policy,
            None => by_time(cursor)?,
        },
    };
    let policy = match takes(cursor, LOCK_OUT) {
        Some(_) => LockOut::new(policy, cursor.span()?.0).into(),
        None => policy,
    };
    if !is_over(cursor) {
        let reason = format!("expected {LOCK_OUT:?} once, a comma or the end");
        return Err(Fault::new(cursor.word(), reason));
    }
    Ok(policy)
}

fn is_over(cursor: &mut Cursor<'_>) -> bool {
    cursor.is_at_end() || cursor.clone().takes(',')
}

/// `10 in flight`, if that is next.
fn in_flight(cursor: &mut Cursor<'_>) -> Result<Option<AnyPolicy>, Fault> {
    let mut ahead = cursor.clone();
    ahead.word();
    ahead.counted();
    if !IN_FLIGHT.iter().any(|words| takes(&mut ahead, words).is_some()) {
        return Ok(None);
    }
    ahead.counted();
    let (max, at) = cursor.whole()?;
    if max == 0 {
        return Err(Fault::new(at, "must not be zero"));
    }
    *cursor = ahead;
    Ok(Some(InFlight::new(max).into()))
}

/// `100/min` and its options.
fn by_time(cursor: &mut Cursor<'_>) -> Result<AnyPolicy, Fault> {
    let quota = cursor.quota()?;
    let mut options = Options::default();
    while !is_over(cursor) && takes(&mut cursor.clone(), LOCK_OUT).is_none() {
        options.read(cursor)?;
    }
    let mut kind = options.kind()?;
    let Options { mut parameters, given } = options;
    if kind.has(Parameter::Window) {
        let reason = || format!("a window counts whole permits, up to {}", u32::MAX);
        let limit = quota.count().ok_or_else(|| Fault::new(quota.number_at.clone(), reason()))?;
        parameters.set(Parameter::Limit, Value::Number(limit));
        let window = quota.period().ok_or_else(|| Fault::new(quota.at.clone(), "too long"))?;
        parameters.set(Parameter::Window, Value::Time(window));
    } else {
        let rate = Rate::of(&quota);
        let rate = rate.map_err(|rate| Fault::new(quota.at.clone(), rate.reason()))?;
        parameters.set(Parameter::Rate, Value::Rate(rate));
    }
    if kind == Kind::SlidingWindowCounter && parameters.get(Parameter::Buckets).is_none() {
        kind = Kind::SlidingWindowLog;
    }
    kind.checked(&parameters).map_err(|flaw| {
        let value = given.into_iter().find(|(option, ..)| option.2 == flaw.parameter);
        let at = match (flaw.parameter, value) {
            (Parameter::Limit, _) => quota.number_at,
            (Parameter::Window, _) | (_, None) => quota.at,
            (_, Some((.., at))) => at,
        };
        Fault::new(at, flaw.reason)
    })
}

fn at_fault<T>(text: &str, read: Result<T, Fault>) -> Result<T, InvalidLimit> {
    read.map_err(|fault| InvalidLimit::new("limit", text, fault))
}

/// One limit as people write it.
///
/// | text | policy |
/// |---|---|
/// | `100/min` | [`SmoothBursty::evenly_spaced`](crate::SmoothBursty::evenly_spaced) |
/// | `100/min burst 20` | [`TokenBucket`](crate::TokenBucket) of 20; then `initial 5`, `refill every 1s` |
/// | `100/min sliding window` | [`SlidingWindowLog`](crate::SlidingWindowLog); with `buckets 6` a [`SlidingWindowCounter`](crate::SlidingWindowCounter) |
/// | `100/min fixed window` | [`FixedWindow`](crate::FixedWindow); then `aligned` by the wall clock, `aligned 20s` to a time since the epoch at the clock's origin |
/// | `10 in flight`, `10 at once` | [`InFlight`] |
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
/// A policy with a rate also has `catch up 0s`. `lock out 30s` at the end of any makes it a [`LockOut`]. The number may have
/// underscores, and the time a number: `90_000/15min`. A rule of zero permits would grant nothing, and is an error.
///
/// The text of a policy ([`Display`](std::fmt::Display)) is one of these and parses back to an equal policy,
/// unless it is a rule of zero permits, or a `LockOut` in another one.
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
        let all: AllOf = text.parse()?;
        if let [one] = all.parts() {
            return Ok(one.clone());
        }
        let behind = text.find(',').unwrap_or_default()..text.len();
        at_fault(text, Err(Fault::new(behind, "expected one limit, not several")))
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
            Some(Kind::SlidingWindowLog) => Some(Kind::SlidingWindowCounter),
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
        let other = if is_meter { QUEUE } else { METER };
        for &(words, of, parameter) in OPTIONS {
            let is_meant = of.is_none_or(|of| Some(of) == kind) && words != other;
            let Some(value) = parameters.get(parameter).filter(|_| is_meant) else { continue };
            write!(f, " {words}")?;
            match value {
                _ if parameter == Parameter::Window => {}
                Value::Number(number) => write!(f, " {number}")?,
                Value::Time(time) | Value::Epoch(Some(time)) => write!(f, " {}", Span(time))?,
                Value::Factor(factor) => write!(f, " {factor}")?,
                Value::Rate(_) | Value::Epoch(None) | Value::Flag(_) => {}
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
