//! Reads the fields of a response: those of quotas under the names that servers have for them.
//!
//! A name is a prefix, one of a few words, and perhaps the name of the quota before or behind the word:
//! `X-RateLimit-Remaining`, `X-RateLimit-Requests-Reset`, `Rate-Limit-Total`, `X-RateLimit-Remaining-short`. A value
//! is a number or a time, or a list of them if several limiters stand in a chain, each perhaps with parameters.

use std::borrow::Cow;
use std::time::Duration;

use super::answer::{Answer, Meter, Unit};
use super::headers::Judged;
use super::text::{Form, When, permits, times, whole};

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

/// Reads a response. Each field of a quota is read once: by the first dialect that knows its name.
pub(super) struct Reader<'a> {
    pub(super) response: &'a Judged<'a>,
    /// The names of fields that may be of a quota and are not read yet, in lower case.
    unread: Vec<String>,
    /// What one dialect has read, by what each quota counts and by its name.
    quotas: Vec<(Unit, String, Quota)>,
    pub(super) answer: Answer,
}

impl<'a> Reader<'a> {
    pub(super) fn new(status: u16, response: &'a Judged<'a>) -> Self {
        let names = response.fields.iter().map(|(name, _)| name.to_ascii_lowercase());
        let is_of_quota =
            |name: &String| name.contains("limit-") || name.contains(WAIT) && name != WAIT;
        // Each is compared with each.
        let mut unread: Vec<_> = names.filter(is_of_quota).take(64).collect();
        unread.sort();
        // A field that was sent several times is read once.
        unread.dedup();
        let answer = Answer { status, ..Answer::default() };
        Self { response, unread, quotas: Vec::new(), answer }
    }

    // Inlined: most names are not there.
    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut names = self.response.fields.iter().map(|(name, _)| name);
        let is_there = names.any(|other| other.eq_ignore_ascii_case(name));
        if is_there { self.response.field(name) } else { None }
    }

    /// A time: the longest, if the field was sent several times.
    pub(super) fn time(&mut self, name: &str, form: Form) -> Option<When> {
        let times = times(form, &self.get(name)?);
        let now = self.answer.date.unwrap_or_default();
        let time = times.and_then(|times| times.into_iter().max_by_key(|time| time.after(now)));
        self.answer.malformed += u32::from(time.is_none());
        time
    }

    /// The longest time to wait of limiters with names: `Retry-After-short` of `NestJS`, `X-RateLimit-Retry-After` of
    /// Symfony, `LLM_Provider-Retry-After` of `LiteLLM`.
    pub(super) fn named_wait(&mut self) -> Option<When> {
        let waits = self.unread.iter();
        let waits = waits.filter(|name| name.contains(WAIT) && !name.ends_with("-ms")).cloned();
        let waits: Vec<_> = waits.collect();
        waits.iter().filter_map(|name| self.time(name, Form::Any)).max()
    }

    pub(super) fn has_family(&self, prefix: &str) -> bool {
        self.unread.iter().any(|name| name.strip_prefix(prefix).and_then(split).is_some())
    }

    /// Reads the fields whose names begin so, the ones with the more exact words first.
    pub(super) fn family(&mut self, prefix: &str) {
        let split = |name: &String| Some((split(name.strip_prefix(prefix)?)?, name.clone()));
        let mut found: Vec<_> = self.unread.iter().filter_map(split).collect();
        found.sort();
        for ((word, of), name) in found {
            if let Some(unit) = unit(&of) {
                self.quota(&name, unit, &format!("{prefix}{of}"), WORDS[word].1);
            }
        }
    }

    /// Reads a part of the quota `of`.
    pub(super) fn quota(&mut self, name: &str, unit: Unit, of: &str, part: Part) {
        let Some(text) = self.get(name) else { return };
        self.unread.retain(|unread| !unread.eq_ignore_ascii_case(name));
        let at = self.quotas.iter().position(|(other, name, _)| (*other, &**name) == (unit, of));
        let at = at.unwrap_or_else(|| {
            self.quotas.push((unit, of.to_owned(), Quota::default()));
            self.quotas.len() - 1
        });
        self.answer.malformed += u32::from(self.quotas[at].2.read(part, &text).is_none());
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
    window: Option<Duration>,
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
    fn read(&mut self, part: Part, text: &str) -> Option<()> {
        let counts = || text.split(',').map(permits).collect::<Option<Vec<_>>>();
        match part {
            Part::Limit => match counts() {
                Some(limit) => fill(&mut self.limit, limit),
                // Some servers have the window in this place: `15m`.
                None => self.window = Some(Form::Duration.parse(text)?.after(Duration::ZERO)),
            },
            Part::Remaining => fill(&mut self.remaining, counts()?),
            Part::Used => {
                let (used, limit) = text.split_once('/')?;
                let (used, limit) = (whole(used.trim())?, whole(limit.trim())?);
                fill(&mut self.limit, vec![limit]);
                fill(&mut self.remaining, vec![limit.saturating_sub(used)]);
            }
            Part::Reset(form) => fill(&mut self.reset, times(form, text)?),
        }
        Some(())
    }

    fn meters(&self, is_continuous: bool) -> impl Iterator<Item = Meter> {
        let Self { limit, remaining, reset, window } = self;
        // Lists of one length are of the same limiters. Else the later reset counts, and the first limit: what follows it are
        // the policies of drafts of the IETF.
        let length = remaining.len().max(1);
        (0..length).map(move |at| Meter {
            limit: limit.get(if limit.len() == length { at } else { 0 }).copied(),
            remaining: remaining.get(at).copied(),
            reset: if reset.len() == length { reset.get(at) } else { reset.iter().max() }.copied(),
            window: *window,
            is_continuous,
        })
    }
}
