//! Reads the fields of a response: those of quotas under the names that servers have for them.
//!
//! A name is a prefix, one of a few words, and perhaps the name of the quota before or behind the word:
//! `X-RateLimit-Remaining`, `X-RateLimit-Requests-Reset`, `Rate-Limit-Total`, `X-RateLimit-Remaining-short`. A value
//! is a number or a time, or a list of them if several limiters stand in a chain, each perhaps with parameters.

use super::answer::{Answer, Meter, Unit};
use super::headers::Judged;
use super::text::{When, permits, time, times, whole};

/// What a header field of a [`Dialect`](super::Dialect) means.
///
/// Numbers may have decimals or parameters. A time is a number of seconds, `1m30s`, `00:01:30`, or a date: RFC 3339, one of
/// HTTP's, or a number from 10^9 on, which is seconds since the epoch, from 10^12, 10^15 and 10^18 on milliseconds,
/// microseconds and nanoseconds.
///
/// ```
/// use tollgate::feedback::{Dialect, Dialects, Field, Unit};
///
/// let beta = Dialect::new("beta", &[("beta-ratelimit", Field::Structured("beta-ratelimit-policy"))]);
/// let answer = Dialects::default().with(beta).read(200u16, &[("Beta-RateLimit", "\"default\";r=50;t=30")]);
/// assert_eq!(answer.meter(Unit::Requests).unwrap().remaining, Some(50));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The quota of a window.
    Limit(Unit),
    /// What remains of it.
    Remaining(Unit),
    /// What was used of it, and the quota: `32/40`.
    Used(Unit),
    /// When the quota is there again.
    Reset(Unit),
    /// The same, in milliseconds from now.
    ResetMillis(Unit),
    /// All fields whose names begin so, followed by `limit`, `remaining`, `reset` or `reset-ms` and perhaps the name of the quota.
    /// A dialect that names one of them itself would split its quota in two.
    Family,
    /// As `RateLimit` of the IETF's current drafts, with the field that is as its `RateLimit-Policy`.
    Structured(&'static str),
    /// The name of the quota.
    Bucket,
    /// The name of a quota that each channel, guild and webhook has for itself.
    BucketOfResource,
    /// `grpc-status`.
    Grpc,
}

type Make = fn(Unit) -> Field;

/// The words. Of two for one part the first counts.
const WORDS: [(&str, Make); 6] = [
    ("remaining", Field::Remaining),
    ("reset-ms", Field::ResetMillis),
    ("reset-after", Field::Reset),
    ("reset", Field::Reset),
    ("limit", Field::Limit),
    ("total", Field::Limit),
];

const WAIT: &str = "retry-after";

/// Splits what stands behind a prefix into the index of its word and the name of the quota.
fn split(rest: &str) -> Option<(usize, String)> {
    WORDS.iter().enumerate().find_map(|(index, (word, _))| {
        let (before, after) = rest.split_once(word)?;
        // hapi writes the last three without a hyphen.
        let is_apart = before.ends_with('-') || ["", "user", "path", "userpath"].contains(&before);
        let is_whole = is_apart && (after.is_empty() || after.starts_with('-'));
        let name = format!("{}{after}", before.trim_end_matches('-'));
        is_whole.then(|| (index, name.trim_start_matches('-').to_owned()))
    })
}

/// What a quota of this name counts. Bytes and calls at the same time are no calls of a window.
fn unit(quota: &str) -> Option<Unit> {
    match quota {
        "input-tokens" => Some(Unit::InputTokens),
        "output-tokens" => Some(Unit::OutputTokens),
        _ if quota.contains("token") => Some(Unit::Tokens),
        _ if quota.contains("byte") || quota.contains("concurren") => None,
        _ => Some(Unit::Requests),
    }
}

/// Reads a response.
pub(super) struct Reader<'a> {
    response: &'a Judged<'a>,
    /// A field of a quota is read once: by the first dialect that knows its name.
    read: Vec<&'a str>,
    /// What one dialect has read, by what each quota counts and by its name.
    quotas: Vec<(Unit, String, Quota)>,
    pub(super) answer: &'a mut Answer,
}

impl<'a> Reader<'a> {
    pub(super) fn new(answer: &'a mut Answer, response: &'a Judged<'a>) -> Self {
        Self { response, read: Vec::new(), quotas: Vec::new(), answer }
    }

    /// Whether there is a field of this name, or of this family.
    pub(super) fn has(&self, name: &str, field: Field) -> bool {
        match field {
            Field::Family => self.members(name).next().is_some(),
            _ => self.get(name).is_some(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.response.field(name)
    }

    /// A time: the longest, if the field was sent several times.
    pub(super) fn time(&mut self, name: &str, is_millis: bool) -> Option<When> {
        let times = times(self.get(name)?, is_millis);
        let now = self.answer.date.unwrap_or_default();
        let time = times.and_then(|times| times.into_iter().max_by_key(|time| time.after(now)));
        self.answer.malformed += u32::from(time.is_none());
        time
    }

    /// The time to wait that servers of any kind send with a refusal, the more exact first; else the longest of limiters
    /// with names: `Retry-After-short` of `NestJS`, `X-RateLimit-Retry-After` of Symfony, `LLM_Provider-Retry-After` of
    /// `LiteLLM`.
    pub(super) fn wait(&mut self) -> Option<When> {
        // All are read, to count what is malformed.
        let waits = [("retry-after-ms", true), ("x-ms-retry-after-ms", true), (WAIT, false)]
            .map(|(name, is_millis)| self.time(name, is_millis));
        if let Some(wait) = waits.into_iter().flatten().next() {
            return Some(wait);
        }
        let names = self.response.fields.iter().map(|(name, _)| &**name);
        let named =
            names.filter(|name| name.contains(WAIT) && *name != WAIT && !name.ends_with("-ms"));
        named.filter_map(|name| self.time(name, false)).max()
    }

    /// The fields whose names begin so, each with the index of its word and the name of its quota.
    fn members(&self, prefix: &str) -> impl Iterator<Item = (usize, String, &'a str)> {
        self.response.fields.iter().filter_map(move |(name, _)| {
            let (word, of) = split(name.strip_prefix(prefix)?)?;
            Some((word, of, &**name))
        })
    }

    /// Reads the fields whose names begin so, the ones with the more exact words first.
    pub(super) fn family(&mut self, prefix: &str) {
        let mut found: Vec<_> = self.members(prefix).collect();
        found.sort();
        for (word, of, name) in found {
            if let Some(unit) = unit(&of) {
                self.quota(name, &format!("{prefix}{of}"), WORDS[word].1(unit));
            }
        }
    }

    /// Reads a field of the quota `of`.
    pub(super) fn quota(&mut self, name: &str, of: &str, field: Field) {
        let (Field::Limit(unit)
        | Field::Remaining(unit)
        | Field::Used(unit)
        | Field::Reset(unit)
        | Field::ResetMillis(unit)) = field
        else {
            return;
        };
        let mut fields = self.response.fields.iter();
        let unread = fields.find(|(other, _)| other == name && !self.read.contains(&&**other));
        let Some((name, text)) = unread else { return };
        self.read.push(name);
        let at = self.quotas.iter().position(|(other, name, _)| (*other, &**name) == (unit, of));
        let at = at.unwrap_or_else(|| {
            self.quotas.push((unit, of.to_owned(), Quota::default()));
            self.quotas.len() - 1
        });
        self.answer.malformed += u32::from(self.quotas[at].2.read(field, text).is_none());
    }

    /// A dialect has been read: one meter for each quota, and each limiter of a chain.
    pub(super) fn end_of_dialect(&mut self, is_continuous: bool) {
        for (unit, _, quota) in std::mem::take(&mut self.quotas) {
            self.answer.meters.extend(quota.meters(is_continuous).map(|meter| (unit, meter)));
        }
    }
}

/// The values of the fields of one quota.
#[derive(Debug, Default)]
struct Quota {
    limit: Vec<u64>,
    remaining: Vec<u64>,
    reset: Vec<When>,
}

/// Of several fields for one part the first counts.
fn fill<T>(part: &mut Vec<T>, read: Vec<T>) {
    if part.is_empty() {
        *part = read;
    }
}

impl Quota {
    /// `None`: it is malformed.
    fn read(&mut self, field: Field, text: &str) -> Option<()> {
        let counts = || text.split(',').map(permits).collect::<Option<Vec<_>>>();
        match field {
            Field::Limit(_) => match counts() {
                Some(limit) => fill(&mut self.limit, limit),
                // Some servers have the window in this place: `15m`.
                None => _ = time(text)?,
            },
            Field::Remaining(_) => fill(&mut self.remaining, counts()?),
            Field::Used(_) => {
                let (used, limit) = text.split_once('/')?;
                let (used, limit) = (whole(used.trim())?, whole(limit.trim())?);
                fill(&mut self.limit, vec![limit]);
                fill(&mut self.remaining, vec![limit.saturating_sub(used)]);
            }
            _ => fill(&mut self.reset, times(text, matches!(field, Field::ResetMillis(_)))?),
        }
        Some(())
    }

    fn meters(&self, is_continuous: bool) -> impl Iterator<Item = Meter> {
        let Self { limit, remaining, reset } = self;
        // Lists of one length are of the same limiters. Else the later reset counts, and the first limit: what follows it are
        // the policies of drafts of the IETF.
        let length = remaining.len().max(1);
        (0..length).map(move |at| Meter {
            limit: limit.get(if limit.len() == length { at } else { 0 }).copied(),
            remaining: remaining.get(at).copied(),
            reset: if reset.len() == length { reset.get(at) } else { reset.iter().max() }.copied(),
            is_continuous,
        })
    }
}
