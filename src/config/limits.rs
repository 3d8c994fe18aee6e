//! Limits by name: the quotas of the APIs that a program calls.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::error::InvalidLimit;
use super::lazy::Lazy;
use super::name::Name;
use super::names::{self, Per, Template};
use super::pattern;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::headroom::{Headroom, Rest};
use crate::rate_limiter::RateLimiter;
use crate::rate_limiter::builder::RateLimiterBuilder;
use crate::wait_queue::Bounds;

/// The limits of a program: one for each host, route, API key or name that it lists, and one for the others.
///
/// This is the data: made here, or read from a file with the feature `serde`.
/// [`RateLimiters`](crate::RateLimiters) are the limiters that enforce it.
///
/// Guide: [limits as text, and from a file](https://docs.rs/tollgate/latest/tollgate/guide/config/index.html).
///
/// ```
/// use tollgate::{Limits, ManualClock, Per, RateLimiters};
///
/// let limits = Limits::per_host("10/s")?.named("api.github.com", "5000/h, 100 in flight")?;
/// assert_eq!((limits.per(), limits.names().count()), (Per::Host, 1));
/// assert_eq!(limits.get("api.github.com").unwrap().policy().parts().len(), 2);
/// assert_eq!(limits.get("example.org").unwrap().policy().to_string(), "10/s");
///
/// let limiters = RateLimiters::with_clock(limits, ManualClock::auto_advance());
/// let acquire = limiters.at("example.org").unwrap();
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
///
/// # In a file
///
/// With the feature `serde`; TOML, JSON and YAML read the same:
///
/// ```toml
/// per = "host"        # or "route", "api-key", "all"; without it the program names what it calls
/// default = "10/s"    # each host that is not listed; without it unlisted hosts are not limited
/// headroom = 0.05     # leaves 5 % of each quota; see `Headroom`
///
/// [limits]
/// "api.github.com" = "5000/h, 100 in flight"  # evenly spaced: a call each 720 ms
/// "*.internal.example.org" = "unlimited"     # each host under it
/// "api.example.org" = ["10/s burst 20", "1000/day fixed window"]
/// "llm.example.org" = { limits = "60/min", max_waiters = 100, max_queued_permits = 5000 }
///
/// [tiers]             # of customers, for `RateLimiters::at_tier`
/// free = "10/min burst 10"
/// pro = "1000/min burst 50, 10 in flight"
///
/// [limits."search.example.org"]
/// policy = "token-bucket"
/// rate = "100/min"
/// capacity = 20
/// catch_up = "5ms"
/// max_waiters = 50
/// ```
///
/// A rate without a `burst` or a window is evenly spaced: `10/min` is a call each 6 s, `10/min burst 10` lets ten go at once.
///
/// A limit is a text, as [`AnyPolicy`] reads it; several, with commas between them or as a list; or a table with
/// all options of one policy:
///
/// | `policy` | fields | may also have |
/// |---|---|---|
/// | `"smooth-bursty"` | `rate` | `max_burst`, zero without it; `catch_up` |
/// | `"smooth-warming-up"` | `rate`, `warm_up` | `cold_factor`, `catch_up` |
/// | `"token-bucket"` | `rate`, `capacity` | `initial`, `refill_every`, `catch_up` |
/// | `"gcra"` | `rate`, `burst` | `catch_up` |
/// | `"leaky-bucket"` | `rate`, `capacity` | `meter = true`, `catch_up` |
/// | `"fixed-window"` | `limit`, `window` | `aligned = true` by the wall clock, or a time since the epoch |
/// | `"sliding-window-log"` | `limit`, `window` | |
/// | `"sliding-window-counter"` | `limit`, `window`, `buckets` | |
/// | `"in-flight"` | `max` | |
/// | `"lock-out"` | `of` (a limit), `duration` | |
/// | `"unlimited"` | | |
///
/// `max_waiters` and `max_queued_permits` bound the queue of the limit, as in [`RateLimiterBuilder`]. A time is a text such as `"20ms"` or `"1h 30m"`.
///
/// Each policy can also be a field of a struct of your own, by its own type or as [`AnyPolicy`], [`AllOf`],
/// a tuple or an array. What is written back is the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Limits {
    pub(super) per: Per,
    pub(super) default: Option<Limit>,
    pub(super) named: ByName,
    pub(super) tiers: ByName,
    /// The names by what they mean, if they have spellings.
    pub(super) spellings: BTreeMap<Template, Arc<str>>,
    /// The listed names with a `*`, as they match, the most specific first.
    pub(super) patterns: Vec<(String, Arc<str>)>,
    pub(crate) middleware: Lazy,
}

/// One type for names and tiers, because each type of ordered map adds to the time that this crate takes to compile.
pub(super) type ByName = BTreeMap<Arc<str>, Limit>;

/// The limit of one name: a policy, and the bounds of its queue.
///
/// ```
/// use tollgate::{Limit, ManualClock};
///
/// let limit: Limit = "5/s, 100 in flight".parse()?;
/// let limiter = limit.max_waiters(1_000).builder().clock(ManualClock::new()).build();
/// assert_eq!(limiter.max_waiters(), 1_000);
/// assert!(limiter.try_acquire(1).is_ok());
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_millis(), 200);
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(super) policy: AllOf,
    pub(super) max_waiters: Option<usize>,
    pub(super) max_queued_permits: Option<u64>,
}

impl Limit {
    /// Sets the maximum number of waiters; see [`RateLimiterBuilder::max_waiters`].
    #[must_use]
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { max_waiters: Some(waiters), ..self }
    }

    /// Sets the maximum number of permits that all waiters together may ask for; see
    /// [`RateLimiterBuilder::max_queued_permits`].
    #[must_use]
    pub fn max_queued_permits(self, permits: u64) -> Self {
        Self { max_queued_permits: Some(permits), ..self }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &AllOf {
        &self.policy
    }

    /// A builder of a limiter with this limit alone.
    pub fn builder(&self) -> RateLimiterBuilder<AllOf> {
        let Bounds { waiters, permits, .. } = self.bounds();
        RateLimiter::builder(self.policy.clone()).max_waiters(waiters).max_queued_permits(permits)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            waiters: self.max_waiters.unwrap_or(Bounds::NONE.waiters),
            permits: self.max_queued_permits.unwrap_or(Bounds::NONE.permits),
            ..Bounds::NONE
        }
    }
}

impl From<AllOf> for Limit {
    fn from(policy: AllOf) -> Self {
        Self { policy, max_waiters: None, max_queued_permits: None }
    }
}

impl From<AnyPolicy> for Limit {
    fn from(policy: AnyPolicy) -> Self {
        AllOf::new([policy]).into()
    }
}

/// The text of an [`AllOf`].
impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        text.parse().map(AllOf::into)
    }
}

/// The text of an [`AllOf`].
impl TryFrom<&str> for Limit {
    type Error = InvalidLimit;

    fn try_from(text: &str) -> Result<Self, InvalidLimit> {
        text.parse()
    }
}

/// The text of an [`AllOf`].
impl TryFrom<&String> for Limit {
    type Error = InvalidLimit;

    fn try_from(text: &String) -> Result<Self, InvalidLimit> {
        text.parse()
    }
}

/// The text of an [`AllOf`].
impl TryFrom<String> for Limit {
    type Error = InvalidLimit;

    fn try_from(text: String) -> Result<Self, InvalidLimit> {
        text.parse()
    }
}

macro_rules! per {
    ($($name:ident $per:ident $doc:literal,)+) => {$(
        #[doc = $doc]
        ///
        /// The limit is a text, an [`AnyPolicy`], an [`AllOf`] or a [`Limit`].
        ///
        /// # Errors
        ///
        /// [`InvalidLimit`] if it is a text and not a limit.
        pub fn $name<L: TryInto<Limit>>(limit: L) -> Result<Self, InvalidLimit>
        where
            InvalidLimit: From<L::Error>,
        {
            Self::new(Per::$per).others(limit)
        }
    )+};
}

impl Limits {
    per! {
        per_name Name "The same limit for each name that the program gives.",
        per_host Host "The same limit for each host.",
        per_route Route "One limit for each host, for its calls in no listed route; routes with limits of their own \
            are [`named`](Self::named), as paths may have ids without end.",
        per_api_key ApiKey "The same limit for each API key.",
        all All "One limit for all calls together.",
    }

    /// No limit yet. A name that is not listed is not limited, unless [`others`](Self::others) says so.
    #[must_use]
    pub fn new(per: Per) -> Self {
        Self {
            per,
            default: None,
            named: ByName::new(),
            tiers: ByName::new(),
            spellings: BTreeMap::new(),
            patterns: Vec::new(),
            middleware: Lazy::default(),
        }
    }

    /// Sets the limit of one name, its own and not a part of the default. The same name again replaces its limit.
    ///
    /// How a name is written:
    ///
    /// - [`Per::Host`]: a host, with a port if that is not 80 or 443: `api.github.com`, `localhost:3000`,
    ///   `[::1]:3000`; or `*.github.com`, all hosts under one. Without a scheme or a path.
    /// - [`Per::Route`]: `[METHOD ][host]/path`, where `{id}` is one part of the path or some of it, and `{*rest}`
    ///   at the end all that follows: `GET api.github.com/users/{id}`, `/search/{*rest}`, `*.github.com/search`. A
    ///   host alone is all its paths.
    /// - [`Per::Name`], [`Per::All`]: any text that is not empty; a `*` in it stands for any text: `customer-*`.
    /// - [`Per::ApiKey`]: the key.
    ///
    /// The most specific name wins: the name in full, then the name with the most text beside its `*`. Each host or
    /// name that a `*` matches has a limiter of its own with that limit. A route has one for all that it matches,
    /// and so has `*.github.com` as a route.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is a text and not a limit, the name could match nothing as it is written, or
    /// the host or route is listed in another spelling.
    ///
    /// ```
    /// use tollgate::Limits;
    ///
    /// let limits = Limits::per_host("10/s")?.named("api.github.com", "5000/h")?;
    /// assert_eq!(limits.get("api.github.com").unwrap().policy().to_string(), "5000/h");
    /// assert_eq!(limits.clone().named("example.org", "5/fortnight").unwrap_err().column(), 3);
    /// assert!(limits.clone().named("https://example.org/", "5/h").is_err());
    /// assert!(limits.clone().named("API.GitHub.com", "5/h").is_err());
    ///
    /// let limits = limits.named("*.github.com", "100/min")?;
    /// assert_eq!(limits.get("api.github.com").unwrap().policy().to_string(), "5000/h");
    /// assert_eq!(limits.get("codeload.github.com").unwrap().policy().to_string(), "100/min");
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    pub fn named<L: TryInto<Limit>>(
        mut self,
        name: impl Into<String>,
        limit: L,
    ) -> Result<Self, InvalidLimit>
    where
        InvalidLimit: From<L::Error>,
    {
        let (mut pattern, limit) = (name.into(), limit.try_into()?);
        let name: Arc<str> = pattern.as_str().into();
        if let Some(template) = names::check(self.per, &name)? {
            pattern = template.host.clone().unwrap_or_default();
            let listed = self.spellings.entry(template).or_insert_with(|| name.clone());
            if *listed != name {
                return Err(names::twice(&name, listed));
            }
        }
        // Of routes only those who see requests know what matches.
        let is_pattern = !matches!(self.per, Per::Route | Per::ApiKey) && pattern.contains('*');
        if self.named.insert(name.clone(), limit).is_none() && is_pattern {
            self.patterns.push((pattern, name));
            self.patterns.sort_by_cached_key(|(pattern, _)| pattern::rank(pattern));
        }
        Ok(Self { middleware: Lazy::default(), ..self })
    }

    /// Sets the limit of each name that is not listed: the default.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is a text and not a limit.
    ///
    /// ```
    /// use tollgate::{Limits, Per};
    ///
    /// let limits = Limits::new(Per::Host).others("10/s")?;
    /// assert_eq!(limits, Limits::per_host("10/s")?);
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    pub fn others<L: TryInto<Limit>>(mut self, limit: L) -> Result<Self, InvalidLimit>
    where
        InvalidLimit: From<L::Error>,
    {
        self.default = Some(limit.try_into()?);
        Ok(Self { middleware: Lazy::default(), ..self })
    }

    /// Sets the limit of each name of a tier, such as a plan of your customers; see
    /// [`RateLimiters::at_tier`](crate::RateLimiters::at_tier). The same tier again replaces its limit.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is a text and not a limit, or the name of the tier is empty.
    ///
    /// ```
    /// use tollgate::{Limits, Per};
    ///
    /// let limits = Limits::new(Per::Name).tier("free", "10/min burst 10")?.tier("pro", "1000/min burst 50")?;
    /// assert_eq!(limits.get_tier("free").unwrap().policy().to_string(), "10/min burst 10");
    /// assert!(limits.tiers().eq(["free", "pro"]));
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    pub fn tier<L: TryInto<Limit>>(
        mut self,
        tier: impl Into<Arc<str>>,
        limit: L,
    ) -> Result<Self, InvalidLimit>
    where
        InvalidLimit: From<L::Error>,
    {
        let (tier, limit) = (tier.into(), limit.try_into()?);
        names::check_tier(&tier)?;
        self.tiers.insert(tier, limit);
        Ok(Self { middleware: Lazy::default(), ..self })
    }

    /// What the names stand for.
    #[must_use]
    pub fn per(&self) -> Per {
        self.per
    }

    /// The limit of a name: its own, of the most specific name with a `*` that matches, or the default. `None`:
    /// calls of this name are not limited.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Limit> {
        self.listed(name).or(self.default.as_ref())
    }

    /// The limit of a name that is listed, in full or by a `*`.
    pub(super) fn listed(&self, name: &str) -> Option<&Limit> {
        self.named.get(name).or_else(|| self.matched(name))
    }

    fn matched(&self, name: &str) -> Option<&Limit> {
        if self.patterns.is_empty() {
            return None;
        }
        let name = match self.per {
            Per::Host => Cow::Owned(name.to_ascii_lowercase()),
            _ => Cow::Borrowed(name),
        };
        let (_, listed) =
            self.patterns.iter().find(|(pattern, _)| pattern::matches(pattern, &name))?;
        self.named.get(listed)
    }

    /// The limit of each name of a tier. `None`: there is no such tier.
    #[must_use]
    pub fn get_tier(&self, tier: &str) -> Option<&Limit> {
        self.tiers.get(tier)
    }

    /// The tiers, in alphabetical order.
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        self.tiers.keys().map(|tier| &**tier)
    }

    /// The limit of a key: its own comes before the tier's, and the tier's before the limit of a name with
    /// a `*`.
    pub(super) fn of(&self, key: &Name) -> Option<&Limit> {
        let name = key.as_str();
        let of_tier = || self.tiers.get(&key.tier()?);
        self.named.get(name).or_else(of_tier).or_else(|| self.get(name))
    }

    /// The names with a limit of their own, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(|name| &**name)
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Per {
    #[cfg(feature = "serde")]
    pub(super) const ALL: [Self; 5] =
        [Self::Name, Self::Host, Self::Route, Self::ApiKey, Self::All];
    #[cfg(feature = "serde")]
    pub(super) const NAMES: &[&str] = &["name", "host", "route", "api-key", "all"];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Host => "host",
            Self::Route => "route",
            Self::ApiKey => "api-key",
            Self::All => "all",
        }
    }
}

impl Headroom for Limit {
    fn keep(self, rest: Rest) -> Self {
        Self { policy: self.policy.keep(rest), ..self }
    }
}

impl Headroom for Limits {
    fn keep(mut self, rest: Rest) -> Self {
        let all = self.named.values_mut().chain(self.tiers.values_mut()).chain(&mut self.default);
        for limit in all {
            *limit = limit.clone().keep(rest);
        }
        Self { middleware: Lazy::default(), ..self }
    }
}

/// Without the names that are API keys.
impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Limits");
        shown.field("per", &self.per).field("default", &self.default);
        match self.per {
            Per::ApiKey => shown.field("named", &self.named.values().collect::<Vec<_>>()),
            _ => shown.field("named", &self.named),
        };
        shown.field("tiers", &self.tiers).finish()
    }
}
