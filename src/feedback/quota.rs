//! Reads the fields of quotas, under the names that servers have for them.
//!
//! A name is a prefix, one of a few words, and perhaps the name of the quota before or behind the word:
//! `X-RateLimit-Remaining`, `X-RateLimit-Requests-Reset`, `Rate-Limit-Total`, `X-RateLimit-Remaining-short`. A value
//! is a number or a time, or a list of them if several limiters stand in a chain, each perhaps with parameters.

use std::borrow::Cow;
use std::time::Duration;

use super::answer::{Meter, Unit};
use super::headers::Headers;
use super::text::{Form, When, count, permits, times};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Limit,
    Remaining,
    /// And the limit: `32/40`.
    Used,
    Reset(Form),
}

/// The words. Of two for one part the first counts.
const WORDS: [(&str, Part); 5] = [
    ("remaining", Part::Remaining),
    ("reset-after", Part::Reset(Form::Any)),
    ("reset", Part::Reset(Form::Any)),
    ("limit", Part::Limit),
    ("total", Part::Limit),
];

/// What is tried before a word if the names of the fields cannot be listed.
const USUAL: &str = "x-ratelimit- x-ratelimit-requests- x-rate-limit- ratelimit- rate-limit- \
    anthropic-ratelimit-requests- anthropic-ratelimit-tokens- anthropic-ratelimit-input-tokens- \
    anthropic-ratelimit-output-tokens- x-app-limit-24hour- x-user-limit-24hour-";

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

/// The fields of a response, each of which is read once: by the first dialect that knows its name.
pub(super) struct Fields<'a, H: ?Sized> {
    pub(super) headers: &'a H,
    /// Those that may be of a quota, in lower case.
    names: Vec<String>,
    read: Vec<String>,
}

/// What is counted, the quota, and the part of it that the field with this name has.
type Field = (Unit, String, Part, String);

impl<'a, H: Headers + ?Sized> Fields<'a, H> {
    pub(super) fn new(headers: &'a H) -> Self {
        let usual = || USUAL.split(' ').flat_map(|of| WORDS.map(|(word, _)| format!("{of}{word}")));
        // Most fields of a response are of no quota, and are not copied.
        let is_kept = |name: &&str| {
            let has = |part: &str| {
                name.as_bytes()
                    .windows(part.len())
                    .any(|at| at.eq_ignore_ascii_case(part.as_bytes()))
            };
            has("limit-") || has(WAIT) && !name.eq_ignore_ascii_case(WAIT)
        };
        let mut names: Vec<_> = match headers.names() {
            Some(names) => names.into_iter().filter(is_kept).map(str::to_ascii_lowercase).collect(),
            None => usual().filter(|name| headers.field(name).is_some()).collect(),
        };
        // Each is compared with each.
        names.truncate(64);
        Self { headers, names, read: Vec::new() }
    }

    /// The times to wait of limiters with names: `Retry-After-short` of `NestJS`, `X-RateLimit-Retry-After` of Symfony,
    /// `LLM_Provider-Retry-After` of `LiteLLM`.
    pub(super) fn waits(&self) -> impl Iterator<Item = &String> {
        self.names.iter().filter(|name| name.contains(WAIT) && !name.ends_with("-ms"))
    }

    /// Whether there are any: most responses have none.
    pub(super) fn are_there(&self) -> bool {
        !self.names.is_empty()
    }

    pub(super) fn has_family(&self, prefix: &str) -> bool {
        let is_one = |name: &String| name.strip_prefix(prefix).and_then(split).is_some();
        self.names.iter().any(is_one)
    }

    /// The fields whose names begin so, the ones with the more exact words first.
    pub(super) fn family(&self, prefix: &str) -> Vec<Field> {
        let split = |name: &String| Some((split(name.strip_prefix(prefix)?)?, name.clone()));
        let mut fields: Vec<_> = self.names.iter().filter_map(split).collect();
        fields.sort_by_key(|((word, _), _)| *word);
        let field = |((word, of), name): ((usize, String), _)| {
            Some((unit(&of)?, format!("{prefix}{of}"), WORDS[word].1, name))
        };
        fields.into_iter().filter_map(field).collect()
    }

    /// What these fields say, and those that no dialect has read. One meter for each limiter of a chain.
    pub(super) fn meters(
        &mut self,
        mut fields: Vec<Field>,
        malformed: &mut u32,
    ) -> Vec<(Unit, Meter)> {
        fields.sort_by(|(unit, of, ..), (other, name, ..)| {
            (unit.index(), of).cmp(&(other.index(), name))
        });
        let mut meters = Vec::new();
        for fields in fields.chunk_by(|one, other| (one.0, &one.1) == (other.0, &other.1)) {
            let mut quota = Quota::default();
            for (.., part, name) in fields {
                if let Some(text) = self.take(name) {
                    *malformed += u32::from(quota.read(*part, &text).is_none());
                }
            }
            meters.extend(quota.meters().map(|meter| (fields[0].0, meter)));
        }
        meters
    }

    fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let is_read = self.read.iter().any(|read| read.eq_ignore_ascii_case(name));
        let text = self.headers.field(name).filter(|_| !is_read)?;
        self.read.push(name.to_owned());
        Some(text)
    }
}

/// The values of the fields of one quota. Of several for one part the first counts.
#[derive(Debug, Default)]
struct Quota {
    limit: Option<Vec<u64>>,
    window: Option<Duration>,
    remaining: Option<Vec<u64>>,
    reset: Option<Vec<When>>,
}

impl Quota {
    /// `None`: it is malformed.
    fn read(&mut self, part: Part, text: &str) -> Option<()> {
        let counts = || text.split(',').map(permits).collect::<Option<Vec<_>>>();
        match part {
            Part::Limit => match counts() {
                Some(limit) => _ = self.limit.get_or_insert(limit),
                // Some servers have the window in this place: `15m`.
                None => self.window = Some(Form::Duration.parse(text)?.after(Duration::ZERO)),
            },
            Part::Remaining => _ = self.remaining.get_or_insert(counts()?),
            Part::Used => {
                let (used, limit) = text.split_once('/')?;
                let (used, limit) = (count(used)?, count(limit)?);
                self.limit.get_or_insert(vec![limit]);
                self.remaining.get_or_insert(vec![limit.saturating_sub(used)]);
            }
            Part::Reset(form) => _ = self.reset.get_or_insert(times(form, text)?),
        }
        Some(())
    }

    fn meters(&self) -> impl Iterator<Item = Meter> {
        let (limit, reset) = (self.limit.as_deref(), self.reset.as_deref());
        let (limit, reset) = (limit.unwrap_or_default(), reset.unwrap_or_default());
        let remaining = self.remaining.as_deref().unwrap_or_default();
        // Lists of one length are of the same limiters. Else the later reset counts, and the first limit: what follows it are
        // the policies of drafts of the IETF.
        let is_of_each = |length| length == remaining.len().max(1);
        let (has_limits, has_resets) = (is_of_each(limit.len()), is_of_each(reset.len()));
        (0..remaining.len().max(1)).map(move |at| Meter {
            limit: limit.get(if has_limits { at } else { 0 }).copied(),
            remaining: remaining.get(at).copied(),
            reset: if has_resets { reset.get(at) } else { reset.iter().max() }.copied(),
            window: self.window,
            is_continuous: false,
        })
    }
}
