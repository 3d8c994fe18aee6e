//! Limits by name: the quotas of the APIs that a program calls.

use std::collections::BTreeMap;

#[cfg(feature = "reqwest")]
use super::names::Host;
use super::names::{self, Per, Template};
use crate::policy::any::AllOf;
use crate::units::InvalidLimit;
use crate::units::text::Fault;

/// The limits of a program: one for each host, route or name that it lists, and one for the others.
///
/// This is the data: made here, or read from a file with the feature `serde`.
/// [`RateLimiters`](crate::RateLimiters) are the limiters that enforce it.
///
/// Guide: [limits as text, and from a file](crate::guide::config).
///
/// ```
/// use tollgate::{Limits, ManualClock, RateLimiters};
///
/// let limits = Limits::per_host("10/s")?.named("api.github.com", "5000/h, 100 in flight")?;
/// assert_eq!(limits.get("api.github.com").parts().len(), 2);
/// assert_eq!(limits.get("example.org").to_string(), "10/s");
///
/// let limiters = RateLimiters::with_clock(limits, ManualClock::auto_advance());
/// let limiter = limiters.at("example.org");
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
///
/// # In a file
///
/// With the feature `serde`; TOML, JSON and YAML read the same:
///
/// ```toml
/// per = "host"        # or "route"; without it the program names what it calls
/// default = "10/s"    # each host that is not listed; without it unlisted hosts are not limited
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    per: Per,
    default: AllOf,
    named: BTreeMap<String, AllOf>,
    /// The names with spellings or a `*`, in the order in which they are tried.
    templates: BTreeMap<Template, String>,
}

impl Limits {
    /// The same limit for each name that the program gives.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the text is not a limit.
    pub fn per_name(others: impl AsRef<str>) -> Result<Self, InvalidLimit> {
        Ok(Self::new(Per::Name, others.as_ref().parse()?))
    }

    /// The same limit for each host. With `"unlimited"` only those that are [`named`](Self::named) are limited.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the text is not a limit.
    pub fn per_host(others: impl AsRef<str>) -> Result<Self, InvalidLimit> {
        Ok(Self::new(Per::Host, others.as_ref().parse()?))
    }

    /// One limit for each host, for its calls in no listed route; routes with limits of their own are
    /// [`named`](Self::named), as paths may have ids without end.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the text is not a limit.
    pub fn per_route(others: impl AsRef<str>) -> Result<Self, InvalidLimit> {
        Ok(Self::new(Per::Route, others.as_ref().parse()?))
    }

    pub(super) fn new(per: Per, default: AllOf) -> Self {
        Self { per, default, named: BTreeMap::new(), templates: BTreeMap::new() }
    }

    /// Sets the limit of one name, its own and not a part of the default. The same name again replaces its limit. That of a
    /// policy is its text: `policy.to_string()`.
    ///
    /// How a name is written:
    ///
    /// - per host: a host, with a port if that is not 80 or 443: `api.github.com`, `localhost:3000`,
    ///   `[::1]:3000`; or `*.github.com`, all hosts under one. Without a scheme or a path.
    /// - per route: `[METHOD ][host]/path`, where `{id}` is one part of the path, and `{*rest}` at the end all that
    ///   follows: `GET api.github.com/users/{id}`, `/search/{*rest}`, `*.github.com/search`. A host alone is all its paths.
    /// - per name: any text without a `*`.
    ///
    /// The most specific name wins: the host in full, then the longest with a `*`. Each host that a `*` matches has a
    /// limiter of its own with that limit. A route has one for all that it matches, and so has `*.github.com` as a route.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the text is not a limit, the name could match nothing as it is written, or
    /// the host or route is listed in another spelling.
    ///
    /// ```
    /// use tollgate::Limits;
    ///
    /// let limits = Limits::per_host("10/s")?.named("api.github.com", "5000/h")?.named("*.github.com", "100/min")?;
    /// assert_eq!(limits.get("api.github.com").to_string(), "5000/h");
    /// assert_eq!(limits.get("codeload.github.com").to_string(), "100/min");
    /// assert_eq!(limits.clone().named("example.org", "5/fortnight").unwrap_err().column(), 3);
    /// assert!(limits.clone().named("API.GitHub.com", "5/h").is_err());
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    pub fn named(
        self,
        name: impl Into<String>,
        limit: impl AsRef<str>,
    ) -> Result<Self, InvalidLimit> {
        self.list(name.into(), limit.as_ref().parse()?)
    }

    pub(super) fn list(mut self, name: String, limit: AllOf) -> Result<Self, InvalidLimit> {
        let wrong = |fault| InvalidLimit::new("name", &name, fault);
        if let Some(template) = names::check(self.per, &name).map_err(wrong)? {
            let listed = self.templates.entry(template).or_insert_with(|| name.clone());
            if *listed != name {
                let reason = format!("it is listed already, as {listed:?}");
                return Err(wrong(Fault::new(0..name.len(), reason)));
            }
        }
        self.named.insert(name, limit);
        Ok(self)
    }

    /// The limit of a name: its own, of the most specific host with a `*` that matches, or the default.
    #[must_use]
    pub fn get(&self, name: &str) -> &AllOf {
        // Of routes only those who see requests know what matches.
        let matching = || {
            let host = name.to_ascii_lowercase();
            let mut all = self.templates.iter().filter(|_| self.per == Per::Host);
            self.named.get(all.find(|(listed, _)| listed.host.matches(&host))?.1)
        };
        self.named.get(name).or_else(matching).unwrap_or(&self.default)
    }

    /// The name of the limit of a request: as it is listed, or the host. Empty if the program gives the names.
    #[cfg(feature = "reqwest")]
    pub(crate) fn name_of(&self, method: &str, host: &str, path: &str) -> String {
        let mut all = self.templates.iter();
        let name = match all.find(|(template, _)| template.matches(method, host, path)) {
            _ if self.per == Per::Name => "",
            // A route has one limiter for all that it matches, but each host that a `*` matches has its own.
            Some((template, name))
                if self.per == Per::Route || matches!(template.host, Host::Named(_)) =>
            {
                name
            }
            _ => host,
        };
        name.to_owned()
    }

    /// The names with a limit of their own, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }
}
