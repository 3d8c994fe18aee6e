//! How each API names what it says about its limits.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::answer::{Answer, Meter, Unit, Verdict};
use super::grpc;
use super::headers::Headers;
use super::ietf;
use super::quota::{Fields, Part};
use super::text::{Form, When, longest};

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
    /// The prefixes of its other fields: see [`quota`](super::quota).
    families: Vec<Name>,
    /// `RateLimit` and `RateLimit-Policy`.
    structured: Option<(Name, Name)>,
    waits: Vec<(Name, Form)>,
    verdicts: Vec<(u16, On, Verdict)>,
    bucket: Option<Name>,
    /// Whether each channel, guild and webhook has the bucket for itself.
    is_per_resource: bool,
    global: Option<Name>,
    least_wait: Option<Duration>,
    is_continuous: bool,
    is_grpc: bool,
}

/// When a status is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Always,
    /// With `Retry-After`, or if nothing remains.
    Limited,
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
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            markers: Vec::new(),
            fields: Vec::new(),
            families: Vec::new(),
            structured: None,
            waits: Vec::new(),
            verdicts: Vec::new(),
            bucket: None,
            is_per_resource: false,
            global: None,
            least_wait: None,
            is_continuous: false,
            is_grpc: false,
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
    #[must_use]
    pub fn structured(
        self,
        limits: impl Into<Cow<'static, str>>,
        policies: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { structured: Some((limits.into(), policies.into())), ..self }
    }

    fn family(mut self, prefix: impl Into<Name>) -> Self {
        self.families.push(prefix.into());
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

    /// Permits come back steadily until the reset, as in a token bucket.
    #[must_use]
    pub fn continuous(mut self) -> Self {
        self.is_continuous = true;
        self
    }

    #[inline]
    fn applies<H: Headers + ?Sized>(&self, fields: &Fields<'_, H>) -> bool {
        let has = |name: &Name| fields.headers.field(name).is_some();
        if !self.markers.is_empty() {
            return self.markers.iter().any(has);
        }
        let is_of_any = self.fields.is_empty() && self.waits.is_empty() && self.families.is_empty();
        let others = [
            self.structured.as_ref().map(|(limits, _)| limits),
            self.bucket.as_ref(),
            self.global.as_ref(),
        ];
        self.families.iter().any(|prefix| fields.has_family(prefix))
            || self.fields.iter().any(|(_, _, name)| has(name))
            || self.waits.iter().any(|(name, _)| has(name))
            || others.into_iter().flatten().any(has)
            || is_of_any && others == [None; 3]
    }

    /// Adds its quotas to those that others have read.
    fn read<H: Headers + ?Sized>(
        &self,
        fields: &mut Fields<'_, H>,
        meters: &mut Vec<(Unit, Meter)>,
        answer: &mut Answer,
    ) {
        let headers = fields.headers;
        if let Some((limits, policies)) = &self.structured {
            ietf::read(headers, limits, policies, meters, answer);
        }
        if self.is_grpc {
            grpc::read(headers, answer);
        }
        if !self.fields.is_empty() || fields.are_there() {
            let exact = self.fields.iter();
            let exact =
                exact.map(|(unit, part, name)| (*unit, String::new(), *part, name.to_string()));
            let families = self.families.iter().flat_map(|prefix| fields.family(prefix));
            let all = exact.chain(families).collect();
            let read = fields.meters(all, &mut answer.malformed);
            let is_continuous = self.is_continuous;
            meters.extend(read.into_iter().map(|(unit, of)| (unit, Meter { is_continuous, ..of })));
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
            answer.is_per_resource |= self.is_per_resource;
        }
        if let Some(name) = &self.global {
            answer.is_global |= headers.field(name).is_some_and(|text| text.trim() == "true");
        }
        answer.least_wait = answer.least_wait.or(self.least_wait);
    }

    fn judge(
        &self,
        headers: &(impl Headers + ?Sized),
        meters: &[(Unit, Meter)],
        answer: &mut Answer,
    ) {
        if self.is_grpc
            && let Some(verdict) = grpc::verdict(headers)
        {
            answer.verdict = verdict;
        }
        let remains_nothing = meters.iter().any(|(_, meter)| meter.remaining == Some(0));
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
            .family("x-ratelimit-")
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
        Self::new("anthropic")
            .family("anthropic-ratelimit-")
            .marked_by("anthropic-ratelimit-requests-remaining")
            .marked_by("anthropic-ratelimit-tokens-remaining")
            .marked_by("anthropic-ratelimit-input-tokens-remaining")
            .marked_by("anthropic-ratelimit-output-tokens-remaining")
            .marked_by("anthropic-organization-id")
            .status(529, Verdict::Unavailable)
            .continuous()
    }

    /// Discord: `X-RateLimit-*` with `-Reset-After` in seconds with decimals, `-Bucket` and `-Global`. Each channel, guild
    /// and webhook of a [route](super::Servers::at) has the bucket for itself.
    #[must_use]
    pub fn discord() -> Self {
        let dialect = Self::new("discord")
            .family("x-ratelimit-")
            .marked_by("x-ratelimit-bucket")
            .marked_by("x-ratelimit-reset-after")
            .marked_by("x-ratelimit-scope")
            .marked_by("x-ratelimit-global")
            .bucket("x-ratelimit-bucket")
            .global("x-ratelimit-global");
        Self { is_per_resource: true, ..dialect }
    }

    /// X, once Twitter, with its limits for a day (`x-app-limit-24hour-*`, `x-user-limit-24hour-*`), and others with
    /// `x-rate-limit-*`, such as `Yii` and `AspNetCoreRateLimit`, whatever form the reset has.
    #[must_use]
    pub fn x() -> Self {
        let dialect = Self::new("x").family("x-rate-limit-");
        dialect.family("x-app-limit-24hour-").family("x-user-limit-24hour-")
    }

    /// Shopify: `X-Shopify-Shop-Api-Call-Limit: 32/40`, without a reset.
    #[must_use]
    pub fn shopify() -> Self {
        Self::new("shopify").used(Unit::Requests, "x-shopify-shop-api-call-limit")
    }

    /// `RateLimit` and `RateLimit-Policy` of the current drafts of the IETF, as structured fields.
    #[must_use]
    pub fn ietf() -> Self {
        Self::new("ietf").structured("ratelimit", "ratelimit-policy")
    }

    /// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts up to version 6, and the quota's `RateLimit-Name` of
    /// GitLab. The reset is in seconds; epoch seconds, as some servers send, are told apart by their size.
    #[must_use]
    pub fn ietf_06() -> Self {
        Self::new("ietf-06").family("ratelimit-").bucket("ratelimit-name")
    }

    /// gRPC: `grpc-status` 8 (`RESOURCE_EXHAUSTED`) is a refusal, and 14 (`UNAVAILABLE`) what 503 is to HTTP. The
    /// time is `grpc-retry-pushback-ms`, or a `RetryInfo` in `grpc-status-details-bin`. APIs of Google that answer in JSON
    /// have it in the [body](super::Call::observe_body) of a refusal: `"retryDelay": "28.1s"`. If that is about a quota for a
    /// day, callers wait a minute, and twice as long each time.
    #[must_use]
    pub fn grpc() -> Self {
        Self { is_grpc: true, ..Self::new("grpc").marked_by("grpc-status") }
    }

    /// Any other API with `X-RateLimit-Limit`, `-Remaining` and `-Reset`, or `Rate-Limit-Total`, whatever form the reset
    /// has. Names of quotas may stand before or behind the word: `X-RateLimit-Requests-Limit` of Linear and `RapidAPI`,
    /// `X-RateLimit-Remaining-short` of `NestJS`, `X-RateLimit-UserReset` of hapi.
    #[must_use]
    pub fn generic() -> Self {
        Self::new("x-ratelimit").family("x-ratelimit-").family("rate-limit-")
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
    /// (`Age` above zero) says of quotas is old, and ignored, and so is a quota of zero that has just taken a call.
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
        let mut fields = Fields::new(headers);
        let date = time("date", &|text| Form::HttpDate.parse(text));
        let age = time("age", &|text| Form::Seconds.parse(text));
        answer.date = date.map(|date| date.after(Duration::ZERO));
        let mut wait = |name: &str, form| time(name, &|text| longest(form, text, answer.date));
        let waits = WAITS.map(|(name, form)| wait(name, form));
        let named = fields.waits().filter_map(|name| wait(name, Form::Any)).max();
        answer.malformed = malformed;
        let applying: Vec<_> =
            self.list.iter().filter(|one| self.is_sure || one.applies(&fields)).collect();
        let mut meters = Vec::new();
        applying.iter().for_each(|dialect| dialect.read(&mut fields, &mut meters, &mut answer));
        answer.wait = waits.into_iter().chain([named]).fold(answer.wait, Option::or);
        answer.verdict = match status {
            429 => Verdict::Refused,
            503 => Verdict::Unavailable,
            // A gateway that says when to come back, for instance.
            500..=599 if answer.wait.is_some() => Verdict::Unavailable,
            _ => Verdict::Accepted,
        };
        applying.iter().for_each(|dialect| dialect.judge(headers, &meters, &mut answer));
        answer.dialect = applying.first().map(|dialect| dialect.name.clone());
        if age.is_none_or(|age| age.after(Duration::ZERO).is_zero()) {
            meters.retain(|(_, meter)| answer.is_refused() || meter.limit != Some(0));
            for (unit, meter) in meters {
                let tightest = answer.meters.get_mut(unit);
                *tightest = tightest.tighter(meter);
            }
        }
        answer
    }

    /// Reads the body as well, or the begin of it.
    pub(super) fn read_body(&self, body: &[u8], answer: &mut Answer) {
        if self.list.iter().any(|dialect| dialect.is_grpc) {
            grpc::read_body(body, answer);
        }
    }

    /// Whether the body of a response may say more than its fields.
    #[cfg(feature = "reqwest")]
    pub(super) fn wants_body(&self, status: http::StatusCode, headers: &http::HeaderMap) -> bool {
        let is_json = headers.field("content-type").is_some_and(|kind| kind.contains("json"));
        let is_open = || {
            let answer = self.read(status, headers);
            answer.is_refused() && answer.wait.is_none()
        };
        is_json && self.list.iter().any(|dialect| dialect.is_grpc) && is_open()
    }
}
