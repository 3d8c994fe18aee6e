//! Limits by name: the quotas of the APIs that a program calls.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::error::InvalidLimit;
use super::names::{self, Per, Template};
use super::pattern;
use crate::policy::any::AllOf;
use crate::policy::headroom::{Headroom, Rest};

/// The limits of a program: one for each host, route, API key or name that it lists, and one for the others.
///
/// This is the data: made here, or read from a file with the feature `serde`.
/// [`RateLimiters`](crate::RateLimiters) are the limiters that enforce it.
///
/// Guide: [limits as text, and from a file](crate::guide::config).
///
/// ```
/// use tollgate::{Limits, ManualClock, Per, RateLimiters};
///
/// let limits = Limits::per_host("10/s")?.named("api.github.com", "5000/h, 100 in flight")?;
/// assert_eq!((limits.per(), limits.names().count()), (Per::Host, 1));
/// assert_eq!(limits.get("api.github.com").unwrap().parts().len(), 2);
/// assert_eq!(limits.get("example.org").unwrap().to_string(), "10/s");
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
/// "api.example.org" = "10/s burst 20, 1000/day fixed window"
/// ```
///
/// A rate without a `burst` or a window is evenly spaced: `10/min` is a call each 6 s, `10/min burst 10` lets ten go at once.
///
/// A limit is a text, as [`AllOf`] reads it. [`AllOf`], [`AnyPolicy`](crate::AnyPolicy) and [`Rate`](crate::Rate) can also be
/// fields of a struct of your own. They are read and written as their texts.
///
/// The file does not bound the queues; [`RateLimiters::with_options`](crate::RateLimiters::with_options) does.
#[derive(Clone, PartialEq, Eq)]
pub struct Limits {
    pub(super) per: Per,
    pub(super) default: Option<AllOf>,
    pub(super) named: ByName,
    /// The names by what they mean, if they have spellings.
    pub(super) spellings: BTreeMap<Template, Arc<str>>,
    /// The listed names with a `*`, as they match, the most specific first.
    pub(super) patterns: Vec<(String, Arc<str>)>,
    pub(crate) middleware: Lazy,
}

pub(super) type ByName = BTreeMap<Arc<str>, AllOf>;

macro_rules! per {
    ($($name:ident $per:ident $doc:literal,)+) => {$(
        #[doc = $doc]
        ///
        /// The limit is a text, an [`AnyPolicy`](crate::AnyPolicy) or an [`AllOf`].
        ///
        /// # Errors
        ///
        /// [`InvalidLimit`] if it is a text and not a limit.
        pub fn $name<L: TryInto<AllOf>>(limit: L) -> Result<Self, InvalidLimit>
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
    /// assert_eq!(limits.get("api.github.com").unwrap().to_string(), "5000/h");
    /// assert_eq!(limits.clone().named("example.org", "5/fortnight").unwrap_err().column(), 3);
    /// assert!(limits.clone().named("https://example.org/", "5/h").is_err());
    /// assert!(limits.clone().named("API.GitHub.com", "5/h").is_err());
    ///
    /// let limits = limits.named("*.github.com", "100/min")?;
    /// assert_eq!(limits.get("api.github.com").unwrap().to_string(), "5000/h");
    /// assert_eq!(limits.get("codeload.github.com").unwrap().to_string(), "100/min");
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    pub fn named<L: TryInto<AllOf>>(
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
    pub fn others<L: TryInto<AllOf>>(mut self, limit: L) -> Result<Self, InvalidLimit>
    where
        InvalidLimit: From<L::Error>,
    {
        self.default = Some(limit.try_into()?);
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
    pub fn get(&self, name: &str) -> Option<&AllOf> {
        self.listed(name).or(self.default.as_ref())
    }

    /// The limit of a name that is listed, in full or by a `*`.
    pub(super) fn listed(&self, name: &str) -> Option<&AllOf> {
        self.named.get(name).or_else(|| self.matched(name))
    }

    fn matched(&self, name: &str) -> Option<&AllOf> {
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

impl Headroom for Limits {
    fn keep(mut self, rest: Rest) -> Self {
        for limit in self.named.values_mut().chain(&mut self.default) {
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
        shown.finish()
    }
}

/// The middleware that the limits become when a client uses them, made at the first request. It is no part of the limits: a
/// copy of them makes its own.
#[derive(Default)]
pub(crate) struct Lazy(
    #[cfg(feature = "reqwest")]
    pub(crate)  std::sync::OnceLock<Box<dyn reqwest_middleware::Middleware>>,
);

impl Clone for Lazy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Lazy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lazy {}
