//! How each API names what it says about its limits.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::answer::{Answer, Unit, Verdict};
use super::grpc;
use super::headers::{Headers, Judged};
use super::ietf;
use super::quota::{Part, Reader};
use super::text::{Form, When};

type Name = Cow<'static, str>;

/// The names and forms of one API's fields.
///
/// One that is not in the [table](super) takes a few lines:
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Dialect, Dialects, Form, Unit, When};
///
/// let acme = Dialect::new("acme")
///     .remaining(Unit::Requests, "acme-calls-left")
///     .reset(Unit::Requests, "acme-window-ends", Form::Millis);
/// let dialects = Dialects::default().with(acme);
/// let answer = dialects.read(200u16, &[("Acme-Calls-Left", "3"), ("Acme-Window-Ends", "1500")]);
/// let meter = answer.meter(Unit::Requests).unwrap();
/// assert_eq!(meter.remaining, Some(3));
/// assert_eq!(meter.reset, Some(When::After(Duration::from_millis(1500))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a dialect does nothing until it is one of the `Dialects` of a `Feedback`"]
pub struct Dialect {
    name: Name,
    /// If there are any, it applies only to responses with one of these.
    marks: Vec<(Name, Means)>,
    fields: Vec<(Name, Means)>,
    /// Of each whether it holds only with `Retry-After`, or if nothing remains.
    statuses: Vec<(u16, bool, Verdict)>,
    least_wait: Option<Duration>,
    is_continuous: bool,
}

/// What a field of a dialect means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Means {
    /// That the dialect applies.
    Mark,
    Quota(Unit, Part),
    /// The name is a prefix: see [`quota`](super::quota).
    Family,
    /// As `RateLimit`, with the name of `RateLimit-Policy`.
    Structured(Name),
    Wait(Form),
    Bucket,
    /// A bucket that each channel, guild and webhook has for itself.
    BucketOfResource,
    Global,
    /// `grpc-status`.
    Grpc,
}

impl Dialect {
    /// A dialect without fields, which applies to every response; with fields, to those that have any of them.
    ///
    /// ```
    /// use tollgate::feedback::{Dialect, Dialects, Verdict};
    ///
    /// // Beside all known dialects: a 403 is a refusal, as of HAProxy's `http-request deny`.
    /// let dialects = Dialects::default().with(Dialect::new("haproxy").status(403, Verdict::Refused));
    /// let none: [(&str, &str); 0] = [];
    /// assert!(dialects.read(403u16, &none).is_refused());
    /// ```
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            marks: Vec::new(),
            fields: Vec::new(),
            statuses: Vec::new(),
            least_wait: None,
            is_continuous: false,
        }
    }

    fn field(mut self, name: impl Into<Name>, means: Means) -> Self {
        self.fields.push((name.into(), means));
        self
    }

    /// Applies it only to responses with this field, or with another one given by this method. Use it for field
    /// names that other APIs share.
    pub fn marked_by(mut self, name: impl Into<Name>) -> Self {
        self.marks.push((name.into(), Means::Mark));
        self
    }

    /// The field with the quota of a window.
    pub fn limit(self, unit: Unit, name: impl Into<Name>) -> Self {
        self.field(name, Means::Quota(unit, Part::Limit))
    }

    /// The field with what remains of it.
    pub fn remaining(self, unit: Unit, name: impl Into<Name>) -> Self {
        self.field(name, Means::Quota(unit, Part::Remaining))
    }

    /// The field with what was used of the quota, and the quota: `32/40`.
    pub fn used(self, unit: Unit, name: impl Into<Name>) -> Self {
        self.field(name, Means::Quota(unit, Part::Used))
    }

    /// The field with its reset. Of several, the first that is there counts.
    pub fn reset(self, unit: Unit, name: impl Into<Name>, form: Form) -> Self {
        self.field(name, Means::Quota(unit, Part::Reset(form)))
    }

    /// Fields with these names, in the form of `RateLimit` and `RateLimit-Policy` of the IETF's current drafts: such as
    /// `Beta-RateLimit` and `Beta-RateLimit-Policy`.
    ///
    /// ```
    /// use tollgate::feedback::{Dialect, Dialects, Unit};
    ///
    /// let beta = Dialect::new("beta").structured("beta-ratelimit", "beta-ratelimit-policy");
    /// let answer = Dialects::default().with(beta).read(200u16, &[("Beta-RateLimit", "\"default\";r=50;t=30")]);
    /// assert_eq!(answer.meter(Unit::Requests).unwrap().remaining, Some(50));
    /// ```
    pub fn structured(self, limits: impl Into<Name>, policies: impl Into<Name>) -> Self {
        self.field(limits, Means::Structured(policies.into()))
    }

    /// A field with the time to wait after a refusal. It is read before [`Retry-After`](super#how-long-to-wait).
    pub fn wait(self, name: impl Into<Name>, form: Form) -> Self {
        self.field(name, Means::Wait(form))
    }

    /// A status that means what `verdict` says.
    pub fn status(mut self, status: u16, verdict: Verdict) -> Self {
        self.statuses.push((status, false, verdict));
        self
    }

    /// A status that is a refusal if it comes with `Retry-After` or nothing remains, and else something different.
    pub fn refused_if_limited(mut self, status: u16) -> Self {
        self.statuses.push((status, true, Verdict::Refused));
        self
    }

    /// The field that names the quota.
    pub fn bucket(self, name: impl Into<Name>) -> Self {
        self.field(name, Means::Bucket)
    }

    /// The field that is `true` if a refusal holds for all quotas.
    pub fn global(self, name: impl Into<Name>) -> Self {
        self.field(name, Means::Global)
    }

    /// The least time to wait after a refusal that gives no time.
    pub fn least_wait(self, wait: Duration) -> Self {
        Self { least_wait: Some(wait), ..self }
    }

    /// Permits come back steadily until the reset, as in a token bucket.
    pub fn continuous(self) -> Self {
        Self { is_continuous: true, ..self }
    }

    fn applies(&self, reader: &Reader<'_>) -> bool {
        let names = if self.marks.is_empty() { &self.fields } else { &self.marks };
        let is_of = |field: &str| {
            names.iter().any(|(name, means)| match means {
                Means::Family => reader.has_family(name),
                _ => field.eq_ignore_ascii_case(name),
            })
        };
        names.is_empty() || reader.response.fields.iter().any(|(field, _)| is_of(field))
    }

    /// Adds what it says to what others have read.
    fn read(&self, reader: &mut Reader<'_>) {
        for (name, means) in &self.fields {
            match means {
                Means::Quota(unit, part) => reader.quota(name, *unit, "", *part),
                Means::Family => reader.family(name),
                Means::Structured(policies) => ietf::read(reader, name, policies),
                Means::Wait(form) if reader.answer.wait.is_none() => {
                    reader.answer.wait = reader.time(name, *form);
                }
                Means::Bucket | Means::BucketOfResource if reader.answer.bucket.is_none() => {
                    reader.answer.bucket = reader.get(name).map(Cow::into_owned);
                    reader.answer.is_per_resource = *means == Means::BucketOfResource;
                }
                Means::Global => {
                    let is_global = reader.get(name).is_some_and(|text| text.trim() == "true");
                    reader.answer.is_global |= is_global;
                }
                Means::Grpc => grpc::read(reader),
                Means::Mark | Means::Wait(_) | Means::Bucket | Means::BucketOfResource => {}
            }
        }
        reader.end_of_dialect(self.is_continuous);
        reader.answer.least_wait = reader.answer.least_wait.or(self.least_wait);
    }

    /// GitHub: `x-ratelimit-*`; 403 with `Retry-After` or with nothing left is a refusal. A refusal that gives no
    /// time asks for a minute.
    pub fn github() -> Self {
        Self::new("github")
            .marked_by("x-ratelimit-resource")
            .marked_by("x-github-request-id")
            .field("x-ratelimit-", Means::Family)
            .bucket("x-ratelimit-resource")
            .refused_if_limited(403)
            .least_wait(Duration::from_secs(60))
    }

    /// Anthropic: `anthropic-ratelimit-*`, resets as RFC 3339; 529 means overloaded. `tokens` is the tightest
    /// limit in force, beside `input-tokens` and `output-tokens`.
    pub fn anthropic() -> Self {
        Self::new("anthropic")
            .marked_by("anthropic-ratelimit-requests-remaining")
            .marked_by("anthropic-ratelimit-tokens-remaining")
            .marked_by("anthropic-ratelimit-input-tokens-remaining")
            .marked_by("anthropic-ratelimit-output-tokens-remaining")
            .marked_by("anthropic-organization-id")
            .field("anthropic-ratelimit-", Means::Family)
            .status(529, Verdict::Unavailable)
            .continuous()
    }
}

/// The dialects that are tried, in order.
///
/// All that apply are read, each field once. Of several quotas of a unit the tightest counts: that of which less
/// remains, or which lasts longer. The default has all that this crate knows.
///
/// ```
/// use tollgate::feedback::{Dialect, Dialects};
///
/// // The headers of a response to which no dialect applies say nothing of 403.
/// assert!(Dialects::default().read(403u16, &[("retry-after", "60")]).is_accepted());
/// // One that is given alone always applies.
/// assert!(Dialects::only(Dialect::github()).read(403u16, &[("retry-after", "60")]).is_refused());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// If there is only one, it applies without its fields.
    list: Vec<Dialect>,
}

impl Default for Dialects {
    fn default() -> Self {
        let list = vec![
            Dialect::anthropic(),
            // And APIs that follow it. Resets are `6m0s` or `20ms`.
            Dialect::new("openai")
                .limit(Unit::Requests, "x-ratelimit-limit-requests")
                .remaining(Unit::Requests, "x-ratelimit-remaining-requests")
                .reset(Unit::Requests, "x-ratelimit-reset-requests", Form::Duration)
                .limit(Unit::Tokens, "x-ratelimit-limit-tokens")
                .remaining(Unit::Tokens, "x-ratelimit-remaining-tokens")
                .reset(Unit::Tokens, "x-ratelimit-reset-tokens", Form::Duration)
                .continuous(),
            // And others with `x-rate-limit-*`, such as `Yii` and `AspNetCoreRateLimit`.
            Dialect::new("x")
                .field("x-rate-limit-", Means::Family)
                .field("x-app-limit-24hour-", Means::Family)
                .field("x-user-limit-24hour-", Means::Family),
            Dialect::new("discord")
                .marked_by("x-ratelimit-bucket")
                .marked_by("x-ratelimit-reset-after")
                .marked_by("x-ratelimit-scope")
                .marked_by("x-ratelimit-global")
                .field("x-ratelimit-", Means::Family)
                .field("x-ratelimit-bucket", Means::BucketOfResource)
                .global("x-ratelimit-global"),
            Dialect::github(),
            Dialect::new("shopify").used(Unit::Requests, "x-shopify-shop-api-call-limit"),
            Dialect::new("ietf").structured("ratelimit", "ratelimit-policy"),
            // The drafts up to version 6, and the quota's name of GitLab.
            Dialect::new("ietf-06").field("ratelimit-", Means::Family).bucket("ratelimit-name"),
            // `X-RateLimit-Requests-Limit` of Linear and `RapidAPI`, `X-RateLimit-UserReset` of hapi.
            Dialect::new("x-ratelimit")
                .field("x-ratelimit-", Means::Family)
                .field("rate-limit-", Means::Family),
            Dialect::new("grpc").field("grpc-status", Means::Grpc),
        ];
        Self { list }
    }
}

/// What servers of any kind send with a refusal: the more exact ones first.
const WAITS: [(&str, Form); 3] = [
    ("retry-after-ms", Form::Millis),
    ("x-ms-retry-after-ms", Form::Millis),
    ("retry-after", Form::Any),
];

impl Dialects {
    /// The default, which all share.
    pub(super) fn known() -> Arc<Self> {
        static KNOWN: LazyLock<Arc<Dialects>> = LazyLock::new(Arc::default);
        Arc::clone(&KNOWN)
    }

    /// This one, whose statuses count for every response.
    #[must_use]
    pub fn only(dialect: Dialect) -> Self {
        Self { list: vec![dialect] }
    }

    /// Adds one before the others.
    #[must_use]
    pub fn with(mut self, dialect: Dialect) -> Self {
        self.list.insert(0, dialect);
        self
    }

    /// Reads a response. Fields that are malformed are ignored and counted. What a response from a cache
    /// (`Age` above zero) says of quotas is old, and ignored, and so is a quota of zero that has just taken a call.
    #[must_use]
    pub fn read(&self, status: impl Into<u16>, headers: &(impl Headers + ?Sized)) -> Answer {
        self.read_response(status.into(), &Judged { fields: headers.fields(), body: None })
    }

    pub(super) fn read_response(&self, status: u16, response: &Judged<'_>) -> Answer {
        let mut reader = Reader::new(status, response);
        let since = |time: Option<When>| time.map(|time| time.after(Duration::ZERO));
        reader.answer.date = since(reader.time("date", Form::HttpDate));
        let age = since(reader.time("age", Form::Seconds));
        // All of them are read, so that what is malformed is counted.
        let wait = WAITS.iter().fold(None, |wait, (name, form)| wait.or(reader.time(name, *form)));
        let wait = wait.or(reader.named_wait());
        let is_sure = self.list.len() == 1;
        let applying = self.list.iter().filter(|one| is_sure || one.applies(&reader));
        let applying: Vec<_> = applying.collect();
        applying.iter().for_each(|dialect| dialect.read(&mut reader));
        let mut answer = reader.answer;
        answer.dialect = applying.first().map(|dialect| dialect.name.clone());
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
        let statuses = applying.iter().flat_map(|dialect| &dialect.statuses);
        for &(of, if_limited, verdict) in statuses {
            if of == status && (is_limited || !if_limited) {
                answer.verdict = verdict;
            }
        }
        answer.keep_tightest(age.is_some_and(|age| !age.is_zero()));
        if let Some(body) = response.body {
            grpc::read_body(body, &mut answer);
        }
        answer
    }
}
