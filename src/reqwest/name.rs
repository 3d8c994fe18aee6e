//! The name by which a request finds its limit.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use ::reqwest::Request;
use http::Extensions;

use super::{host, key};
use crate::config::limits::Limits;
use crate::config::names::Per;

/// The name of the limit of one request, as an extension: what [`Limits`] lists, or any other for a limit of its
/// own.
///
/// It counts whatever the limits are per. Names come from the program, and should be few: each that is in use has
/// a limiter.
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use tollgate::Limits;
/// use tollgate::reqwest::{LimitName, RateLimit};
///
/// let limits = Limits::per_name("10/s")?.named("search", "1/s")?;
/// let client = ClientBuilder::new(reqwest::Client::new()).with(RateLimit::limits(limits)).build();
/// let request = client.get("http://api.example/search").with_extension(LimitName::new("search"));
/// # drop(request); Ok::<(), tollgate::InvalidLimit>(())
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

/// Finds the names of requests. With a random hash, so that the name of a key does not help to guess the key.
pub(super) struct Names(RandomState);

impl Names {
    pub(super) fn new() -> Self {
        Self(RandomState::new())
    }

    pub(super) fn of(&self, limits: &Limits, request: &Request, extensions: &Extensions) -> String {
        if let Some(LimitName(name)) = extensions.get() {
            return name.clone().into_owned();
        }
        let url = request.url();
        match (limits.per(), key::of(request.headers())) {
            (Per::Name | Per::All, _) => String::new(),
            (Per::ApiKey, Some(key)) => self.of_key(limits, key),
            _ => limits.name_of(request.method().as_str(), &host::of(url), url.path()),
        }
    }

    fn of_key(&self, limits: &Limits, key: &[u8]) -> String {
        let mut listed = limits.names().filter(|name| name.as_bytes() == key);
        listed.next().map(str::to_owned).unwrap_or_else(|| {
            let [high, low] = [0u8, 1].map(|part| self.0.hash_one((part, key)));
            format!("key {high:016x}{low:016x}")
        })
    }
}
