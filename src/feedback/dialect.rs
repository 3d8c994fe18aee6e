//! How each API names what it says about its limits: one [`Dialect`] a server, as data.
//!
//! **A new server** is a row of [`KNOWN`] and a test in `tests/outbound/feedback/tables.rs`.

use std::borrow::Cow;
use std::time::Duration;

use super::answer::{Answer, Unit, Verdict};
use super::grpc;
use super::headers::{Headers, Judged};
use super::ietf;
use super::quota::{Field, Reader};
use super::text::When;

/// What one API says about its limits, and how.
///
/// One that is not in the [table](super) takes a few lines:
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Dialect, Dialects, Field, Unit, When};
///
/// let fields = &[
///     ("acme-calls-left", Field::Remaining(Unit::Requests)),
///     ("acme-window-ends", Field::ResetMillis(Unit::Requests)),
/// ];
/// // A 403 is a refusal if it names a time or nothing remains.
/// let acme = Dialect { refused_if_limited: &[403], ..Dialect::new("acme", fields) };
/// let dialects = Dialects::default().with(acme);
/// let answer = dialects.read(403u16, &[("Acme-Calls-Left", "0"), ("Acme-Window-Ends", "1500")]);
/// assert!(answer.is_refused());
/// let reset = answer.meter(Unit::Requests).unwrap().reset;
/// assert_eq!(reset, Some(When::After(Duration::from_millis(1500))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its name.
    pub name: &'static str,
    /// Its header fields. Names are in lower case. It applies to responses with one of them, or without fields to all.
    pub fields: &'static [(&'static str, Field)],
    /// Where other APIs have the same fields: it applies to responses with one of these instead.
    pub marks: &'static [&'static str],
    /// Statuses that are refusals, beside 429, of responses to which this dialect applies.
    pub refused: &'static [u16],
    /// Statuses that are refusals if they name a time to wait or nothing remains: where the server has other uses for them.
    pub refused_if_limited: &'static [u16],
    /// Statuses of a server that is overloaded, beside 503.
    pub unavailable: &'static [u16],
    /// The least time to wait after a refusal that gives no time.
    pub least_wait: Option<Duration>,
    /// Permits come back steadily until the reset, as in a token bucket. If you do not know, `false`: it is noticed.
    pub is_continuous: bool,
}

impl Dialect {
    /// These header fields, and nothing else.
    pub const fn new(name: &'static str, fields: &'static [(&'static str, Field)]) -> Self {
        Self {
            name,
            fields,
            marks: &[],
            refused: &[],
            refused_if_limited: &[],
            unavailable: &[],
            least_wait: None,
            is_continuous: false,
        }
    }

    /// GitHub: 403 with `Retry-After` or with nothing left is a refusal. One that gives no time asks for a minute.
    pub const GITHUB: Self = Self {
        refused_if_limited: &[403],
        least_wait: Some(Duration::from_secs(60)),
        marks: &["x-ratelimit-resource", "x-github-request-id"],
        ..Self::new(
            "github",
            &[("x-ratelimit-", Field::Family), ("x-ratelimit-resource", Field::Bucket)],
        )
    };

    /// Anthropic: 529 means overloaded. `tokens` is the tightest limit in force, beside `input-tokens` and
    /// `output-tokens`.
    pub const ANTHROPIC: Self = Self {
        unavailable: &[529],
        is_continuous: true,
        marks: &[
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-organization-id",
        ],
        ..Self::new("anthropic", &[("anthropic-ratelimit-", Field::Family)])
    };

    fn applies(&self, reader: &Reader<'_>) -> bool {
        match self.marks {
            [] => self.fields.iter().any(|&(name, field)| reader.has(name, field)),
            marks => marks.iter().any(|name| reader.get(name).is_some()),
        }
    }

    /// Adds what it says to what others have read.
    fn read(&self, reader: &mut Reader<'_>) {
        for &(name, field) in self.fields {
            match field {
                Field::Family => reader.family(name),
                Field::Structured(policies) => ietf::read(reader, name, policies),
                Field::Bucket | Field::BucketOfResource if reader.answer.bucket.is_none() => {
                    reader.answer.bucket = reader.get(name).map(str::to_owned);
                    reader.answer.is_per_resource = field == Field::BucketOfResource;
                }
                Field::Grpc => grpc::read(reader),
                _ => reader.quota(name, "", field),
            }
        }
        reader.end_of_dialect(self.is_continuous);
        reader.answer.least_wait = reader.answer.least_wait.or(self.least_wait);
    }

    /// What a status means besides.
    fn verdict(&self, status: u16, is_limited: bool) -> Option<Verdict> {
        let is_refused = self.refused.contains(&status)
            || is_limited && self.refused_if_limited.contains(&status);
        let is_unavailable = self.unavailable.contains(&status);
        is_refused.then_some(Verdict::Refused).or(is_unavailable.then_some(Verdict::Unavailable))
    }
}

/// What servers send, in the order in which it is read: a field that two rows know is read by the first.
const KNOWN: &[Dialect] = &[
    Dialect::ANTHROPIC,
    // And APIs that follow it.
    Dialect {
        is_continuous: true,
        marks: &["x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"],
        ..Dialect::new("openai", &[("x-ratelimit-", Field::Family)])
    },
    // And others with `x-rate-limit-*`, such as `Yii` and `AspNetCoreRateLimit`.
    Dialect::new(
        "x",
        &[
            ("x-rate-limit-", Field::Family),
            ("x-app-limit-24hour-", Field::Family),
            ("x-user-limit-24hour-", Field::Family),
        ],
    ),
    Dialect {
        marks: &["x-ratelimit-bucket", "x-ratelimit-reset-after", "x-ratelimit-scope"],
        ..Dialect::new(
            "discord",
            &[("x-ratelimit-", Field::Family), ("x-ratelimit-bucket", Field::BucketOfResource)],
        )
    },
    Dialect::GITHUB,
    Dialect::new("shopify", &[("x-shopify-shop-api-call-limit", Field::Used(Unit::Requests))]),
    Dialect::new("ietf", &[("ratelimit", Field::Structured("ratelimit-policy"))]),
    // The drafts up to version 6, and the quota's name of GitLab.
    Dialect::new("ietf-06", &[("ratelimit-", Field::Family), ("ratelimit-name", Field::Bucket)]),
    // `X-RateLimit-Requests-Limit` of Linear and `RapidAPI`, `X-RateLimit-UserReset` of hapi.
    Dialect::new("x-ratelimit", &[("x-ratelimit-", Field::Family), ("rate-limit-", Field::Family)]),
    Dialect::new("grpc", &[("grpc-status", Field::Grpc)]),
];

/// The dialects that are tried, in order.
///
/// All that apply are read, each field once. Of several quotas of a unit the tightest counts: that of which less
/// remains, or which lasts longer. The default has all that this crate knows.
///
/// ```
/// use tollgate::feedback::{Dialect, Dialects};
///
/// // Beside all known dialects: a 403 is a refusal, as of HAProxy's `http-request deny`.
/// let haproxy = Dialect { refused: &[403], ..Dialect::new("haproxy", &[]) };
/// let none: [(&str, &str); 0] = [];
/// assert!(Dialects::default().with(haproxy).read(403u16, &none).is_refused());
/// // The headers of a response to which no dialect applies say nothing of 403.
/// assert!(Dialects::default().read(403u16, &[("retry-after", "60")]).is_accepted());
/// // One that is given alone always applies.
/// assert!(Dialects::only(Dialect::GITHUB).read(403u16, &[("retry-after", "60")]).is_refused());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects(Cow<'static, [Dialect]>);

impl Default for Dialects {
    fn default() -> Self {
        Self(KNOWN.into())
    }
}

impl Dialects {
    /// This one, whose statuses count for every response.
    #[must_use]
    pub fn only(dialect: Dialect) -> Self {
        Self(vec![dialect].into())
    }

    /// Adds one before the others.
    #[must_use]
    pub fn with(mut self, dialect: Dialect) -> Self {
        self.0.to_mut().insert(0, dialect);
        self
    }

    /// Reads a response. Fields that are malformed are ignored and counted. What a response from a cache
    /// (`Age` above zero) says of quotas is old, and ignored, and so is a quota of zero that has just taken a call.
    #[must_use]
    pub fn read(&self, status: impl Into<u16>, headers: &(impl Headers + ?Sized)) -> Answer {
        self.read_response(status.into(), &Judged::new(headers, b""))
    }

    pub(super) fn read_response(&self, status: u16, response: &Judged<'_>) -> Answer {
        let mut answer = Answer { status, ..Answer::default() };
        let mut reader = Reader::new(&mut answer, response);
        let (mut age, mut wait) = (None, None);
        let has_fields = !response.fields.is_empty();
        if has_fields {
            let date = reader.time("date", false);
            reader.answer.date = date.map(|date| date.after(Duration::ZERO));
            age = reader.time("age", false);
            wait = reader.wait();
        }
        let rows = match &self.0 {
            // Each of the known ones needs a field.
            Cow::Borrowed(_) if !has_fields => &[],
            rows => &**rows,
        };
        let mut applying: Vec<&Dialect> = Vec::new();
        for row in rows {
            if rows.len() == 1 || row.fields.is_empty() || has_fields && row.applies(&reader) {
                applying.push(row);
            }
        }
        applying.iter().for_each(|row| row.read(&mut reader));
        answer.dialect = applying.first().map(|dialect| dialect.name);
        answer.wait = answer.wait.or(wait);
        if answer.is_accepted() {
            answer.verdict = match status {
                429 => Verdict::Refused,
                503 => Verdict::Unavailable,
                // A gateway that says when to come back, for instance.
                500..=599 if answer.wait.is_some() => Verdict::Unavailable,
                _ => Verdict::Accepted,
            };
        }
        let remains_nothing = answer.meters.iter().any(|(_, meter)| meter.remaining == Some(0));
        let is_limited = answer.wait.is_some() || remains_nothing;
        let mut verdicts = applying.iter().filter_map(|one| one.verdict(status, is_limited));
        answer.verdict = verdicts.next_back().unwrap_or(answer.verdict);
        if !answer.meters.is_empty() {
            answer.keep_tightest(age.is_some_and(|age| age != When::After(Duration::ZERO)));
        }
        grpc::read_body(response.body, &mut answer);
        answer
    }
}
