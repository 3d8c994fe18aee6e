//! The middleware.

use std::borrow::Cow;

use ::reqwest::{Request, Response};
use async_trait::async_trait;
use http::request::Parts;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::body::read;
use crate::body::held;
use crate::choose::RateLimit;
use crate::config::limiters::RateLimiters;
use crate::feedback::{FeedbackBuilder, Servers, server_name};
use crate::limiter::Granted;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::policy::Cost;
use crate::unwinding::in_drop;

/// The name of the limit of one request, as an extension: what [`Limits`](crate::Limits) lists, or any other for a limit of its
/// own.
///
/// It counts whatever the limits are per. Names come from the program, and should be few: each that is in use has
/// a limiter.
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use tollgate::Limits;
/// use tollgate::RateLimit;
/// use tollgate::reqwest::LimitName;
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

impl RateLimiters {
    /// The name of the limit of a request: a [`LimitName`], or what the limits are [per](crate::reqwest#limits-per-what).
    #[must_use]
    pub fn name_of(&self, request: &Parts) -> String {
        if let Some(LimitName(name)) = request.extensions.get() {
            return name.clone().into_owned();
        }
        let (method, uri) = (request.method.as_str(), &request.uri);
        self.limits().name_of(method, &server_name(uri), uri.path())
    }
}

impl RateLimit {
    /// The limits of `limiters`, per what they are [per](crate::reqwest#limits-per-what), each of which learns from the answers.
    /// Of [`Limits`](crate::Limits) the client makes its own limiters, and [`RateLimiters`] can be reloaded.
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_middleware::ClientBuilder;
    /// use tollgate::RateLimit;
    /// use tollgate::{Limits, RateLimiters};
    ///
    /// let limiters = RateLimiters::new(Limits::per_host("2/s")?);
    /// let limit = RateLimit::limits(limiters.clone()).max_wait(Duration::from_millis(100));
    /// let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
    /// limiters.reload(Limits::per_host("100/s")?); // for both, as they share the limiters
    /// // Nothing is learned:
    /// let limit = RateLimit::by(move |request| limiters.at(&limiters.name_of(request)));
    /// # drop((client, limit)); Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    #[must_use]
    pub fn limits(limiters: impl Into<RateLimiters>) -> Self {
        Self::limits_with(limiters, |feedback| feedback)
    }

    /// As [`limits`](Self::limits), with options for what is [learned](crate::feedback), such as dialects and the longest
    /// pause. To look at what was learned, keep [`Servers`] that are [`behind`](Servers::behind) each limiter:
    ///
    /// ```
    /// use tollgate::feedback::Servers;
    /// use tollgate::RateLimit;
    /// use tollgate::{Limits, RateLimiters};
    ///
    /// let limiters = RateLimiters::new(Limits::per_host("2/s")?);
    /// let servers = Servers::new(limiters.at("any"));
    /// let kept = servers.clone();
    /// let limit = RateLimit::by(move |request| {
    ///     let name = limiters.name_of(request);
    ///     servers.behind(&name, limiters.at(&name)).of(request)
    /// });
    /// assert!(kept.learned().is_empty());
    /// # drop(limit); Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    #[must_use]
    pub fn limits_with(
        limiters: impl Into<RateLimiters>,
        options: impl Fn(FeedbackBuilder<AnyRateLimiter>) -> FeedbackBuilder<AnyRateLimiter>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let limiters = limiters.into();
        let servers = Servers::with(AnyRateLimiter::new(limiters.at("")), options);
        Self::by(move |request| {
            let name = limiters.name_of(request);
            servers.behind(&name, AnyRateLimiter::new(limiters.at(&name))).of(request)
        })
    }
}

#[async_trait]
impl<C: Cost> Middleware for RateLimit<C> {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = request.method().clone();
        // A URL that is none of HTTP is refused by reqwest.
        parts.uri = request.url().as_str().parse().unwrap_or_default();
        parts.headers = request.headers().clone();
        parts.extensions = extensions.clone();
        // If the call fails or is dropped, its place in flight is given back, and the server may have counted it.
        let grant = self.of(&parts).2.await.map_err(refused)?;
        let response = next.run(request, extensions).await;
        heard(response, grant).await
    }
}

/// The limiters that learn hear the response, or that there is none. They hear of a call once.
async fn heard<C: Cost>(response: Result<Response>, mut grant: AnyGrant<C>) -> Result<Response> {
    match response {
        Ok(head) if grant.wants_body(head.status(), head.headers()) => {
            let mut unread = Unread(Some((grant, head.status(), head.headers().clone())));
            let (whole, body) = read(head).await?;
            let (grant, ..) = unread.0.take().unwrap_or_else(|| unreachable!("taken here"));
            Ok(held(whole, &body, grant).await)
        }
        Ok(response) => Ok(held(response, b"", grant).await),
        Err(error) => {
            // The server was not reached, or did not answer.
            if let Error::Reqwest(error) = &error
                && (error.is_request() || error.is_timeout())
            {
                grant.hear_failure();
            }
            Err(error)
        }
    }
}

/// The head of a response, which is heard alone if its body is not read to the end.
struct Unread<C: Cost>(Option<(AnyGrant<C>, StatusCode, HeaderMap)>);

impl<C: Cost> Drop for Unread<C> {
    fn drop(&mut self) {
        if let Some((mut grant, status, headers)) = self.0.take() {
            in_drop(|| drop(grant.hear(status, &headers, b"")));
        }
    }
}

/// The error of a request that was not sent. It can be downcast to `error`, and has it as its source.
fn refused(error: crate::Error) -> Error {
    let error = anyhow::Error::new(error);
    Error::Middleware(error.context("a rate limit refused the request"))
}
