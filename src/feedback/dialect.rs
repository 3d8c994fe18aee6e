//! How each API names what it says about its limits.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::answer::{Answer, Meters, Unit, Verdict};
use super::grpc;
use super::headers::Headers;
use super::ietf;
use super::text::{Form, When, count, longest};

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
pub struct Dialect {
    name: Name,
    /// It applies if one of these is there.
    markers: Vec<Name>,
    fields: Vec<(Unit, Part, Name)>,
    waits: Vec<(Name, Form)>,
    verdicts: Vec<(u16, On, Verdict)>,
    bucket: Option<Name>,
    global: Option<Name>,
    least_wait: Option<Duration>,
    is_continuous: bool,
    is_structured: bool,
    is_grpc: bool,
    /// Whether its quotas are beside others: the tightest counts.
    is_further: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Limit,
    Remaining,
    /// And the limit: `32/40`.
    Used,
    Reset(Form),
}

/// When a status is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Always,
    /// With `Retry-After`, or if nothing remains.
    Limited,
}

impl Dialect {
    /// A dialect without fields. It applies to responses that have any of the fields that are added.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            markers: Vec::new(),
            fields: Vec::new(),
            waits: Vec::new(),
            verdicts: Vec::new(),
            bucket: None,
            global: None,
            least_wait: None,
            is_continuous: false,
            is_structured: false,
            is_grpc: false,
            is_further: false,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies it only to responses with this field, or with another one given by this method. Use it for field
    /// names that other APIs share.
    #[must_use]
    pub fn marked_by(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.markers.push(name.into());
        self
    }

    /// The field with the quota of a window.
    #[must_use]
    pub fn limit(self, unit: Unit, name: impl Into<Cow<'static, str>>) -> Self {
        self.field(unit, Part::Limit, name)
    }

    /// The field with what remains of it.
    #[must_use]
    pub fn remaining(self, unit: Unit, name: impl Into<Cow<'static, str>>) -> Self {
        self.field(unit, Part::Remaining, name)
    }

    /// The field with what was used of the quota, and the quota: `32/40`.
    #[must_use]
    pub fn used(self, unit: Unit, name: impl Into<Cow<'static, str>>) -> Self {
        self.field(unit, Part::Used, name)
    }

    /// The field with its reset. Of several, the first that is there counts.
    #[must_use]
    pub fn reset(self, unit: Unit, name: impl Into<Cow<'static, str>>, form: Form) -> Self {
        self.field(unit, Part::Reset(form), name)
    }

    fn field(mut self, unit: Unit, part: Part, name: impl Into<Name>) -> Self {
        self.fields.push((unit, part, name.into()));
        self
    }

    /// A field with the time to wait after a refusal. It is read before [`Retry-After`](super#how-long-to-wait).
    #[must_use]
    pub fn wait(mut self, name: impl Into<Cow<'static, str>>, form: Form) -> Self {
        self.waits.push((name.into(), form));
        self
    }

    /// A status that means what `verdict` says.
    #[must_use]
    pub fn status(mut self, status: u16, verdict: Verdict) -> Self {
        self.verdicts.push((status, On::Always, verdict));
        self
    }

    /// A status that is a refusal if it comes with `Retry-After` or nothing remains, and else something different.
    #[must_use]
    pub fn refused_if_limited(mut self, status: u16) -> Self {
        self.verdicts.push((status, On::Limited, Verdict::Refused));
        self
    }

    /// The field that names the quota.
    #[must_use]
    pub fn bucket(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.bucket = Some(name.into());
        self
    }

    /// The field that is `true` if a refusal holds for all quotas.
    #[must_use]
    pub fn global(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.global = Some(name.into());
        self
    }

    /// The least time to wait after a refusal that gives no time.
    #[must_use]
    pub fn least_wait(mut self, wait: Duration) -> Self {
        self.least_wait = Some(wait);
        self
    }

    /// Its quotas are beside those of other dialects, such as one for a day: of each unit the tightest counts.
    #[must_use]
    pub fn further(mut self) -> Self {
        self.is_further = true;
        self
    }

    /// Permits come back steadily until the reset, as in a token bucket.
    #[must_use]
    pub fn continuous(mut self) -> Self {
        self.is_continuous = true;
        self
    }

    #[inline]
    fn applies(&self, headers: &(impl Headers + ?Sized)) -> bool {
        let has = |name: &Name| headers.field(name).is_some();
        if self.is_structured {
            has(&Cow::Borrowed("ratelimit"))
        } else if self.markers.is_empty() {
            let counts = self.fields.iter().map(|(_, _, name)| name);
            let waits = self.waits.iter().map(|(name, _)| name);
            counts.chain(waits).chain(&self.bucket).chain(&self.global).any(has)
        } else {
            self.markers.iter().any(has)
        }
    }

    fn read(&self, headers: &(impl Headers + ?Sized), answer: &mut Answer) {
        if self.is_structured {
            ietf::read(headers, answer);
        }
        if self.is_grpc {
            grpc::read(headers, answer);
        }
        let before = Unit::ALL.map(|unit| answer.meter(unit).is_some());
        for (unit, part, name) in &self.fields {
            // What an earlier dialect has said stays.
            let is_known = before[unit.index()];
            let Some(text) = headers.field(name).filter(|_| !is_known) else { continue };
            let meter = answer.meters.get_mut(*unit);
            meter.is_continuous = self.is_continuous;
            let values = text.split(',');
            let is_read = match *part {
                Part::Limit => {
                    // What follows is the window (`100/30m`), or in drafts of the IETF the policies of several.
                    let first = text.split([',', ';', '/']).next().unwrap_or_default();
                    let limit = count(first);
                    meter.limit = meter.limit.or(limit);
                    if limit.is_none()
                        && let Some(window) = Form::Duration.parse(first)
                    {
                        // Some servers have the window in this place: `15m`.
                        meter.window = Some(window.after(Duration::ZERO));
                    }
                    limit.is_some() || meter.window.is_some()
                }
                Part::Used => {
                    let parts = text.split_once('/');
                    let counts =
                        parts.and_then(|(used, limit)| Some((count(used)?, count(limit)?)));
                    if let Some((used, limit)) = counts {
                        meter.limit = meter.limit.or(Some(limit));
                        meter.remaining = meter.remaining.or(Some(limit.saturating_sub(used)));
                    }
                    counts.is_some()
                }
                Part::Remaining => {
                    let counts: Option<Vec<_>> = values.map(count).collect();
                    let least = counts.and_then(|counts| counts.into_iter().min());
                    meter.remaining = meter.remaining.or(least);
                    least.is_some()
                }
                Part::Reset(_) if meter.reset.is_some() => true,
                Part::Reset(form) => {
                    meter.reset = form.parse(&text);
                    meter.reset.is_some()
                }
            };
            answer.malformed += u32::from(!is_read);
        }
        for (name, form) in &self.waits {
            if answer.wait.is_none()
                && let Some(text) = headers.field(name)
            {
                answer.wait = longest(*form, &text, answer.date);
                answer.malformed += u32::from(answer.wait.is_none());
            }
        }
        if let Some(name) = &self.bucket {
            answer.bucket = answer.bucket.take().or(headers.field(name).map(Cow::into_owned));
        }
        if let Some(name) = &self.global {
            answer.is_global |= headers.field(name).is_some_and(|text| text.trim() == "true");
        }
        answer.least_wait = answer.least_wait.or(self.least_wait);
    }

    fn judge(&self, headers: &(impl Headers + ?Sized), answer: &mut Answer) {
        if self.is_grpc
            && let Some(verdict) = grpc::verdict(headers)
        {
            answer.verdict = verdict;
        }
        let remains_nothing = answer.meters.iter().any(|meter| meter.remaining == Some(0));
        let is_limited = answer.wait.is_some() || remains_nothing;
        for &(status, on, verdict) in &self.verdicts {
            if status == answer.status && (on == On::Always || is_limited) {
                answer.verdict = verdict;
            }
        }
    }

    /// GitHub: `x-ratelimit-*`; 403 with `Retry-After` or with nothing left is a refusal. A refusal that gives no
    /// time asks for a minute.
    #[must_use]
    pub fn github() -> Self {
        Self::new("github")
            .x_ratelimit()
            .marked_by("x-ratelimit-resource")
            .marked_by("x-github-request-id")
            .bucket("x-ratelimit-resource")
            .refused_if_limited(403)
            .least_wait(Duration::from_secs(60))
    }

    /// `OpenAI`, and APIs that follow it: `x-ratelimit-*-requests` and `-tokens`, resets as `6m0s` or `20ms`.
    #[must_use]
    pub fn openai() -> Self {
        Self::new("openai")
            .limit(Unit::Requests, "x-ratelimit-limit-requests")
            .remaining(Unit::Requests, "x-ratelimit-remaining-requests")
            .reset(Unit::Requests, "x-ratelimit-reset-requests", Form::Duration)
            .limit(Unit::Tokens, "x-ratelimit-limit-tokens")
            .remaining(Unit::Tokens, "x-ratelimit-remaining-tokens")
            .reset(Unit::Tokens, "x-ratelimit-reset-tokens", Form::Duration)
            .continuous()
    }

    /// Anthropic: `anthropic-ratelimit-*`, resets as RFC 3339; 529 means overloaded. `tokens` is the tightest
    /// limit in force, beside `input-tokens` and `output-tokens`.
    #[must_use]
    pub fn anthropic() -> Self {
        let mut dialect = Self::new("anthropic");
        for (unit, name) in [
            (Unit::Requests, "requests"),
            (Unit::Tokens, "tokens"),
            (Unit::InputTokens, "input-tokens"),
            (Unit::OutputTokens, "output-tokens"),
        ] {
            let field = |part: &str| format!("anthropic-ratelimit-{name}-{part}");
            dialect = dialect
                .marked_by(field("remaining"))
                .limit(unit, field("limit"))
                .remaining(unit, field("remaining"))
                .reset(unit, field("reset"), Form::Rfc3339);
        }
        dialect
            .marked_by("anthropic-organization-id")
            .status(529, Verdict::Unavailable)
            .continuous()
    }

    /// Discord: `X-RateLimit-*` with `-Reset-After` in seconds with decimals, `-Bucket` and `-Global`.
    #[must_use]
    pub fn discord() -> Self {
        Self::new("discord")
            .reset(Unit::Requests, "x-ratelimit-reset-after", Form::Seconds)
            .x_ratelimit()
            .marked_by("x-ratelimit-bucket")
            .marked_by("x-ratelimit-reset-after")
            .marked_by("x-ratelimit-scope")
            .marked_by("x-ratelimit-global")
            .bucket("x-ratelimit-bucket")
            .global("x-ratelimit-global")
    }

    /// X, once Twitter, and others with `x-rate-limit-*`, such as `Yii` and `AspNetCoreRateLimit`, whatever form
    /// the reset has. X's limits for a day are [dialects of their own](Self::x_daily).
    #[must_use]
    pub fn x() -> Self {
        Self::new("x")
            .limit(Unit::Requests, "x-rate-limit-limit")
            .remaining(Unit::Requests, "x-rate-limit-remaining")
            .reset(Unit::Requests, "x-rate-limit-reset", Form::Any)
    }

    /// X's limits for a day: `x-app-limit-24hour-*`, and `x-user-limit-24hour-*`, of which `of` is `"app"` or `"user"`.
    #[must_use]
    pub fn x_daily(of: &str) -> Self {
        let field = |part: &str| format!("x-{of}-limit-24hour-{part}");
        Self::new(format!("x-{of}-24hour"))
            .limit(Unit::Requests, field("limit"))
            .remaining(Unit::Requests, field("remaining"))
            .reset(Unit::Requests, field("reset"), Form::Any)
            .further()
    }

    /// Linear, and the APIs of `RapidAPI`: `X-RateLimit-Requests-*`, whatever form the reset has. Some send
    /// `X-RateLimit-*` beside it, for a shorter window.
    #[must_use]
    pub fn linear() -> Self {
        Self::new("linear")
            .limit(Unit::Requests, "x-ratelimit-requests-limit")
            .remaining(Unit::Requests, "x-ratelimit-requests-remaining")
            .reset(Unit::Requests, "x-ratelimit-requests-reset", Form::Any)
            .further()
    }

    /// Shopify: `X-Shopify-Shop-Api-Call-Limit: 32/40`, without a reset.
    #[must_use]
    pub fn shopify() -> Self {
        Self::new("shopify").used(Unit::Requests, "x-shopify-shop-api-call-limit")
    }

    /// `RateLimit` and `RateLimit-Policy` of the current drafts of the IETF, as structured fields.
    #[must_use]
    pub fn ietf() -> Self {
        Self { is_structured: true, ..Self::new("ietf") }
    }

    /// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts up to version 6. The reset is in seconds; epoch
    /// seconds, as some servers send, are told apart by their size.
    #[must_use]
    pub fn ietf_06() -> Self {
        Self::new("ietf-06")
            .limit(Unit::Requests, "ratelimit-limit")
            .remaining(Unit::Requests, "ratelimit-remaining")
            .reset(Unit::Requests, "ratelimit-reset", Form::Any)
    }

    /// gRPC: `grpc-status` 8 (`RESOURCE_EXHAUSTED`) is a refusal, and 14 (`UNAVAILABLE`) what 503 is to HTTP. The
    /// time is `grpc-retry-pushback-ms`, or a `RetryInfo` in `grpc-status-details-bin`.
    #[must_use]
    pub fn grpc() -> Self {
        Self { is_grpc: true, ..Self::new("grpc").marked_by("grpc-status") }
    }

    /// Any other API with `X-RateLimit-Limit`, `-Remaining` and `-Reset`, whatever form the reset has.
    #[must_use]
    pub fn generic() -> Self {
        Self::new("x-ratelimit").x_ratelimit()
    }

    /// The names that belong to no server: the reset may have any form.
    fn x_ratelimit(self) -> Self {
        self.limit(Unit::Requests, "x-ratelimit-limit")
            .remaining(Unit::Requests, "x-ratelimit-remaining")
            .reset(Unit::Requests, "x-ratelimit-reset", Form::Any)
    }
}

/// The dialects that are tried, in order.
///
/// All that apply are read; what an earlier one says of a unit stays. The default has all that this crate knows.
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
    list: Vec<Dialect>,
    /// Whether the only one applies without its fields.
    is_sure: bool,
}

impl Default for Dialects {
    fn default() -> Self {
        let list = vec![
            Dialect::anthropic(),
            Dialect::openai(),
            Dialect::x(),
            Dialect::discord(),
            Dialect::github(),
            Dialect::shopify(),
            Dialect::ietf(),
            Dialect::ietf_06(),
            Dialect::generic(),
            Dialect::linear(),
            Dialect::x_daily("app"),
            Dialect::x_daily("user"),
            Dialect::grpc(),
        ];
        Self { list, is_sure: false }
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
        Self { list: vec![dialect], is_sure: true }
    }

    /// Adds one before the others.
    #[must_use]
    pub fn with(mut self, dialect: Dialect) -> Self {
        self.list.insert(0, dialect);
        self.is_sure = false;
        self
    }

    /// Reads a response. Fields that are malformed are ignored and counted. What a response from a cache
    /// (`Age` above zero) says of quotas is old, and ignored.
    #[must_use]
    pub fn read(&self, status: impl Into<u16>, headers: &(impl Headers + ?Sized)) -> Answer {
        let status = status.into();
        let mut answer = Answer { status, ..Answer::default() };
        let mut malformed = 0;
        let mut time = |name: &str, parse: &dyn Fn(&str) -> Option<When>| {
            let text = headers.field(name)?;
            let time = parse(&text);
            malformed += u32::from(time.is_none());
            time
        };
        let date = time("date", &|text| Form::HttpDate.parse(text));
        let age = time("age", &|text| Form::Seconds.parse(text));
        answer.date = date.map(|date| date.after(Duration::ZERO));
        let waits = WAITS.map(|(name, form)| time(name, &|text| longest(form, text, answer.date)));
        answer.malformed = malformed;
        let applying: Vec<_> =
            self.list.iter().filter(|one| self.is_sure || one.applies(headers)).collect();
        for dialect in &applying {
            if dialect.is_further {
                let meters = std::mem::take(&mut answer.meters);
                dialect.read(headers, &mut answer);
                let further = std::mem::replace(&mut answer.meters, meters);
                answer.tighten(&further);
            } else {
                dialect.read(headers, &mut answer);
            }
        }
        answer.wait = waits.into_iter().fold(answer.wait, Option::or);
        answer.verdict = match status {
            429 => Verdict::Refused,
            503 => Verdict::Unavailable,
            // A gateway that says when to come back, for instance.
            500..=599 if answer.wait.is_some() => Verdict::Unavailable,
            _ => Verdict::Accepted,
        };
        applying.iter().for_each(|dialect| dialect.judge(headers, &mut answer));
        answer.dialect = applying.first().map(|dialect| dialect.name.clone());
        if age.is_some_and(|age| !age.after(Duration::ZERO).is_zero()) {
            answer.meters = Meters::default();
        }
        answer
    }
}
