//! The name by which a request finds its limit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ::reqwest::Request;
use http::Extensions;

use super::{host, key, route};
use crate::config::limiters::{Book, RateLimiters};
use crate::config::limits::Limits;
use crate::config::names::Per;
use crate::config::names::Template;
use crate::sync::Mutex;

/// The name of the limit of one request, as an extension: what [`Limits`] lists, or any other for a limit of its
/// own.
///
/// It counts whatever the limits are per. Names come from the program, and should be few: each that is in use has
/// a limiter.
///
/// ```
/// use futures::future::BoxFuture;
/// use http::Extensions;
/// use reqwest::{Request, Response};
/// use reqwest_middleware::{ClientBuilder, Next};
/// use tollgate::reqwest::{LimitName, RateLimit};
/// use tollgate::{Limits, ManualClock, RateLimiters};
///
/// # fn answer<'a>(_: Request, _: &'a mut Extensions, _: Next<'a>) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
/// #     Box::pin(async { Ok(http::Response::new("").into()) })
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let limits = Limits::per_name("10/s")?.named("search", "1/s")?;
/// let limiters = RateLimiters::with_clock(limits, &clock);
/// let client = ClientBuilder::new(reqwest::Client::new()).with(RateLimit::limits(limiters))
///     # .with(answer) // instead of a server
///     .build();
/// for _ in 0..3 {
///     client.get("http://api.example/search").with_extension(LimitName::new("search")).send().await?;
/// }
/// assert_eq!(clock.elapsed().as_secs(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitName(Cow<'static, str>);

impl LimitName {
    /// The limit of this name.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }
}

/// Finds the names of requests in the limits in force.
pub(super) struct Names {
    listed: Mutex<Arc<Listed>>,
    /// Random, so that the name of a key does not help to guess the key.
    hasher: RandomState,
}

/// The listed names, prepared to be looked up.
struct Listed {
    book: Arc<Book>,
    hosts: BTreeMap<String, String>,
    routes: Vec<(Template, String)>,
}

impl Names {
    pub(super) fn new(limiters: &RateLimiters) -> Self {
        let listed = Mutex::new(Arc::new(Listed::new(limiters.book())));
        Self { listed, hasher: RandomState::new() }
    }

    pub(super) fn of(
        &self,
        limiters: &RateLimiters,
        request: &Request,
        extensions: &Extensions,
    ) -> String {
        if let Some(LimitName(name)) = extensions.get() {
            return name.clone().into_owned();
        }
        let listed = self.listed(limiters);
        match listed.limits().per() {
            Per::Host => listed.host(request),
            Per::Route => listed.route(request).unwrap_or_else(|| host::of(request.url())),
            Per::ApiKey => match key::of(request.headers()) {
                Some(key) => self.name_of_key(&listed, key),
                None => host::of(request.url()),
            },
            Per::Name | Per::All => String::new(),
        }
    }

    /// Of the limits in force, which another thread may have changed.
    fn listed(&self, limiters: &RateLimiters) -> Arc<Listed> {
        let book = limiters.book();
        let mut listed = self.listed.lock();
        if !Arc::ptr_eq(&listed.book, &book) {
            *listed = Arc::new(Listed::new(book));
        }
        Arc::clone(&listed)
    }

    fn name_of_key(&self, listed: &Listed, key: &[u8]) -> String {
        let text = str::from_utf8(key).ok();
        match text.filter(|key| listed.limits().names().any(|name| name == *key)) {
            Some(key) => key.to_owned(),
            None => {
                let [high, low] = [0u8, 1].map(|part| self.hasher.hash_one((part, key)));
                format!("key {high:016x}{low:016x}")
            }
        }
    }
}

impl Listed {
    fn new(book: Arc<Book>) -> Self {
        let names = || book.limits.names().map(str::to_owned);
        let (mut hosts, mut routes) = (BTreeMap::new(), Vec::new());
        match book.limits.per() {
            Per::Host => hosts = names().map(|name| (host::canonical(&name), name)).collect(),
            Per::Route => {
                let template = |name: String| Some((route::template(&name)?, name));
                routes = names().filter_map(template).collect();
            }
            Per::Name | Per::ApiKey | Per::All => {}
        }
        routes.sort_by_cached_key(|(template, _)| route::rank(template));
        Self { book, hosts, routes }
    }

    fn limits(&self) -> &Limits {
        &self.book.limits
    }

    fn host(&self, request: &Request) -> String {
        let host = host::of(request.url());
        self.hosts.get(&host).cloned().unwrap_or(host)
    }

    fn route(&self, request: &Request) -> Option<String> {
        let (method, url) = (request.method(), request.url());
        let found = self.routes.iter().find(|(template, _)| route::matches(template, method, url));
        found.map(|(_, name)| name.clone())
    }
}
