//! Reads the text of a limit: `100/min burst 20`.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use super::draft::{Draft, Kind};
use super::error::InvalidLimit;
use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::units::Rate;
use crate::units::text::{Cursor, Fault};

/// An option of a limit, by its words.
struct Words {
    words: &'static str,
    /// The kind of policy that it makes of the limit.
    kind: Option<Kind>,
    field: &'static str,
    read: Read,
}

/// What stands behind the words.
enum Read {
    Permits(fn(&mut Draft, u32)),
    Span(fn(&mut Draft, Duration)),
    Number(fn(&mut Draft, f64)),
    /// A time, or the clock's own time since the epoch.
    Epoch,
    Nothing,
}

const fn makes(words: &'static str, kind: Kind, field: &'static str, read: Read) -> Words {
    Words { words, kind: Some(kind), field, read }
}

const fn sets(words: &'static str, field: &'static str, read: Read) -> Words {
    Words { words, kind: None, field, read }
}

const OPTIONS: &[Words] = &[
    makes("burst", Kind::TokenBucket, "capacity", Read::Permits(|it, n| it.capacity = Some(n))),
    sets("initial", "initial", Read::Permits(|it, n| it.initial = Some(n))),
    sets("refill every", "refill_every", Read::Span(|it, span| it.refill_every = Some(span))),
    makes("fixed window", Kind::FixedWindow, "window", Read::Nothing),
    sets("aligned", "aligned", Read::Epoch),
    makes("sliding window", Kind::SlidingWindowLog, "window", Read::Nothing),
    sets("buckets", "buckets", Read::Permits(|it, n| it.buckets = Some(n))),
    makes(
        "max burst",
        Kind::SmoothBursty,
        "max_burst",
        Read::Span(|it, span| it.max_burst = Some(span)),
    ),
    makes(
        "warm up",
        Kind::SmoothWarmingUp,
        "warm_up",
        Read::Span(|it, span| it.warm_up = Some(span)),
    ),
    sets("cold factor", "cold_factor", Read::Number(|it, number| it.cold_factor = Some(number))),
    makes("gcra", Kind::Gcra, "burst", Read::Permits(|it, n| it.burst = Some(n))),
    makes("queue", Kind::LeakyBucket, "capacity", Read::Permits(|it, n| it.capacity = Some(n))),
    makes(
        "meter",
        Kind::LeakyBucket,
        "capacity",
        Read::Permits(|it, n| {
            (it.capacity, it.meter) = (Some(n), Some(true));
        }),
    ),
    sets("catch up", "catch_up", Read::Span(|it, span| it.catch_up = Some(span))),
    sets(LOCK_OUT, "duration", Read::Span(|it, span| it.duration = Some(span))),
];

pub(super) const LOCK_OUT: &str = "lock out";

/// Each is a rule around the one before, and is dropped by recursion.
const MAX_LOCK_OUTS: usize = 8;

/// The words of places in flight; the first is written.
pub(super) const IN_FLIGHT: [&str; 2] = ["in flight", "at once"];

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

/// A field that is set, with the words that set it, and where these and the value stand.
struct Set {
    field: &'static str,
    words: &'static str,
    words_at: Range<usize>,
    value_at: Range<usize>,
}

/// The options of one limit.
#[derive(Default)]
struct Options {
    draft: Draft,
    /// The kind, and the words that made it that.
    kind: Option<(Kind, &'static str)>,
    set: Vec<Set>,
}

impl Options {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let (&Words { words, kind, field, ref read }, at) = option(cursor)?;
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
        let value_at = match read {
            Read::Nothing => at,
            Read::Permits(set) => {
                let (permits, at) = cursor.whole()?;
                set(&mut self.draft, permits);
                at
            }
            Read::Span(set) => {
                let (span, at) = cursor.span()?;
                set(&mut self.draft, span);
                at
            }
            Read::Number(set) => {
                let (number, at) = cursor.decimal()?;
                set(&mut self.draft, number);
                at
            }
            Read::Epoch => {
                let is_given =
                    cursor.peek().starts_with(|character: char| character.is_ascii_digit());
                let epoch = if is_given { cursor.span()?.0 } else { Clock::system().since_epoch() };
                self.draft.aligned = Some(epoch);
                at
            }
        };
        self.set.push(Set { field, words, words_at, value_at });
        Ok(())
    }

    /// The kind, and its words. It is known when all options are.
    fn kind(&self) -> (Kind, &'static str) {
        match self.kind {
            Some((Kind::SlidingWindowLog, words)) if self.draft.buckets.is_some() => {
                (Kind::SlidingWindowCounter, words)
            }
            Some(kind) => kind,
            None => (Kind::SmoothBursty, ""),
        }
    }

    fn policy(self) -> Result<AnyPolicy, Fault> {
        let (kind, of) = self.kind();
        if let Some(set) = self.set.iter().find(|set| !kind.has(set.field)) {
            let has = |kind: Kind| {
                kind.has(set.field) || set.field == "buckets" && kind == Kind::SlidingWindowLog
            };
            let makes = OPTIONS.iter().filter(|option| option.kind.is_some_and(has));
            let makes: Vec<_> = makes.map(|option| format!("{:?}", option.words)).collect();
            let not = if of.is_empty() { String::new() } else { format!(", not with {of:?}") };
            let reason = format!("{:?} goes with {}{not}", set.words, makes.join(" or "));
            return Err(Fault::new(set.words_at.clone(), reason));
        }
        let set = self.set;
        self.draft.policy(kind).map_err(|flaw| {
            let at = set.iter().find(|set| set.field == flaw.field).map(|set| set.value_at.clone());
            Fault::new(at.unwrap_or_default(), flaw.reason)
        })
    }
}

/// One limit, up to a comma or the end.
fn limit(cursor: &mut Cursor<'_>) -> Result<AnyPolicy, Fault> {
    if ["", ","].contains(&cursor.peek()) {
        let at = cursor.word();
        return Err(Fault::new(at, "expected a limit, such as 100/min"));
    }
    let mut policy = match in_flight(cursor)? {
        Some(policy) => policy,
        None => by_time(cursor)?,
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
        let draft =
            Draft { of: Some(Box::new(policy)), duration: Some(duration), ..Draft::default() };
        let end = cursor.end();
        policy = draft.policy(Kind::LockOut).map_err(|flaw| Fault::new(end, flaw.reason))?;
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
    for words in IN_FLIGHT {
        if takes(&mut ahead, words)?.is_none() {
            continue;
        }
        let (max, _) = cursor.whole()?;
        let draft = Draft { max: Some(max), ..Draft::default() };
        let policy = draft.policy(Kind::InFlight).map_err(|flaw| Fault::new(at, flaw.reason))?;
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
    if kind.has("window") {
        let counts = || {
            Fault::new(
                quota.number_at.clone(),
                format!("a window counts whole permits, up to {}", u32::MAX),
            )
        };
        options.draft.limit = Some(quota.count().ok_or_else(counts)?);
        let too_long = || Fault::new(quota.at.clone(), "too long");
        options.draft.window = Some(quota.period().ok_or_else(too_long)?);
        options.set.retain(|set| set.field != "window");
        for (field, at) in [("limit", &quota.number_at), ("window", &quota.at)] {
            let (words_at, value_at) = (at.clone(), at.clone());
            options.set.push(Set { field, words: field, words_at, value_at });
        }
    } else {
        let rate =
            Rate::of(&quota).map_err(|error| Fault::new(quota.at.clone(), error.to_string()))?;
        options.draft.rate = Some(rate);
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
///
/// A policy with a rate also has `catch up 0s`. `lock out 30s` at the end of any makes it a
/// [`LockOut`](crate::LockOut). The number may have underscores, and the time a number: `90_000/15min`. A rule of
/// zero permits would grant nothing, and is an error.
///
/// The text of a policy ([`Display`](std::fmt::Display)) is one of these and parses back to an equal policy, unless it
/// is a rule of zero permits.
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
