//! The name by which a request finds its limit.

use std::borrow::Cow;

use ::reqwest::{Request, Url};
use http::Extensions;

use crate::config::limits::Limits;
use crate::config::names::Per;
use crate::feedback::server_name;

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

/// The name of the limit of a request.
pub(super) fn of(limits: &Limits, request: &Request, extensions: &Extensions) -> String {
    let url = request.url();
    match (extensions.get(), limits.per()) {
        (Some(LimitName(name)), _) => name.clone().into_owned(),
        (None, Per::Name) => String::new(),
        (None, Per::Host | Per::Route) => {
            limits.name_of(request.method().as_str(), &host(url), url.path())
        }
    }
}

/// The host and port of a URL. [`Url`] has made an address its shortest form, and an international name ASCII.
pub(super) fn host(url: &Url) -> String {
    server_name(url.host_str().unwrap_or_default(), url.port())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_name() {
        for (url, name) in [
            ("https://api.example.org/a?b", "api.example.org"),
            ("http://API.Example.ORG:80/", "api.example.org"),
            ("https://user:secret@api.example.org.:443/", "api.example.org"),
            ("https://api.example.org:8443/", "api.example.org:8443"),
            ("https://bücher.example/", "xn--bcher-kva.example"),
            ("http://127.0.0.1:3000/", "127.0.0.1:3000"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[0:0:0:0:0:0:0:1]:3000/", "[::1]:3000"),
        ] {
            assert_eq!(host(&Url::parse(url).expect("a URL")), name, "{url}");
        }
    }
}
