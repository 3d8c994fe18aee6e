//! The middleware.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::reqwest::{Request, Response, Url};
use async_trait::async_trait;
use http::Extensions;
use reqwest_middleware::{Middleware, Next, Result};

use super::body::read;
use crate::body::held;
use crate::config::limiters::RateLimiters;
use crate::feedback::{FeedbackBuilder, Learned, Table, server_name};
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Granted, OwnedLimiter, acquire_within};
use crate::policy::Cost;

/// The name of the limit of one request, as an extension: what [`Limits`](crate::Limits) lists, or any other for a limit of its
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

type OfRequest<T> = Arc<dyn Fn(&Request, &Extensions) -> T + Send + Sync>;

/// Makes each request of a client wait for its limit: the middleware with all its options.
///
/// For [`Limits`](crate::Limits), for [`RateLimiters`], whose limits can be reloaded, and for any other limiter of this crate:
///
/// ```
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use tollgate::reqwest::RateLimit;
/// use tollgate::{Limits, RateLimiters};
///
/// let limiters = RateLimiters::new(Limits::per_host("2/s")?);
/// let limit = RateLimit::limits(limiters.clone()).max_wait(Duration::from_millis(100));
/// let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
/// limiters.reload(Limits::per_host("100/s")?); // for both, as they share the limiters
/// # drop(client); Ok::<(), tollgate::InvalidLimit>(())
/// ```
///
/// `C` is the type of the cost: `u32`, or a tuple's type.
#[derive(Clone)]
pub struct RateLimit<C: Cost = u32> {
    find: OfRequest<Option<(String, AnyRateLimiter<C>)>>,
    cost: OfRequest<C>,
    max_wait: Option<Duration>,
    servers: Option<Arc<Table<AnyRateLimiter<C>>>>,
}

impl RateLimit {
    /// The limits of `limiters`, per what they are per: see the [module](super#limits-per-what). Of
    /// [`Limits`](crate::Limits) the client makes its own limiters.
    #[must_use]
    pub fn limits(limiters: impl Into<RateLimiters>) -> Self {
        let limiters = limiters.into();
        Self::by(move |request, extensions| {
            let (method, url) = (request.method().as_str(), request.url());
            let name = match extensions.get() {
                Some(LimitName(name)) => name.clone().into_owned(),
                None => limiters.limits().name_of(method, &host(url), url.path()),
            };
            let limiter = limiters.at(&name);
            Some((name, limiter))
        })
    }
}

impl<C: Cost> RateLimit<C> {
    /// One limiter for all requests: any of this crate. If it learns itself, as a
    /// [`Feedback`](crate::feedback::Feedback) does, it hears the responses.
    #[must_use]
    pub fn new(limiter: impl OwnedLimiter<Cost = C>) -> Self {
        let limiter = AnyRateLimiter::new(limiter);
        Self::by(move |_, _| Some((String::new(), limiter.clone())))
    }

    /// The key of a request and its limiter. `None`: the request goes through.
    ///
    /// ```
    /// use tollgate::reqwest::RateLimit;
    /// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
    ///
    /// let tenants = KeyedRateLimiter::<String, _>::new(TokenBucket::new(Rate::per_second(5.0), 10));
    /// let middleware = RateLimit::by(move |request, _| {
    ///     let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
    ///     Some((tenant.to_owned(), tenants.at(tenant).into_owned()))
    /// });
    /// ```
    ///
    /// With the feature `redis`, `limiter.at(key)` of a `RedisRateLimiter` is one quota for a fleet.
    #[must_use]
    pub fn by<L: OwnedLimiter<Cost = C>>(
        find: impl Fn(&Request, &Extensions) -> Option<(String, L)> + Send + Sync + 'static,
    ) -> Self {
        let find: OfRequest<_> = Arc::new(move |request, extensions| {
            find(request, extensions).map(|(key, limiter)| (key, AnyRateLimiter::new(limiter)))
        });
        let servers = Some(Arc::new(Table::new(|feedback| feedback)));
        Self { find, cost: Arc::new(|_, _| C::ONE), max_wait: None, servers }
    }

    /// Sets the cost of a request. Default: one permit, of each part of a tuple. A request whose cost is zero
    /// passes at once; one whose cost exceeds the capacity gets [`Error::ExceedsCapacity`](crate::Error).
    ///
    /// The numbers are permits of the limiter. The feedback's [`units`](FeedbackBuilder::units) say which of them
    /// the server counts. By default each call is one request, and of a tuple the first number counts requests and
    /// the second tokens.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Request, &Extensions) -> C + Send + Sync + 'static) -> Self {
        Self { cost: Arc::new(cost), ..self }
    }

    /// The longest wait. A request that cannot be granted in this time is refused at once, and the error says what
    /// wait it would have needed: [`refusal`](super::refusal). Default: no bound.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }

    /// Sets how the middleware [learns](crate::feedback) from responses: the dialects, the longest pause, and what
    /// the numbers of a tuple count. Default: all dialects, an hour, requests and tokens.
    #[must_use]
    pub fn feedback(
        self,
        options: impl Fn(FeedbackBuilder<AnyRateLimiter<C>>) -> FeedbackBuilder<AnyRateLimiter<C>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { servers: Some(Arc::new(Table::new(options))), ..self }
    }

    /// The middleware does not learn from responses. A limiter that learns, such as a
    /// [`Feedback`](crate::feedback::Feedback), still hears them.
    #[must_use]
    pub fn without_feedback(self) -> Self {
        Self { servers: None, ..self }
    }

    /// What was learned of each server so far, for each limit: to look at it, or to
    /// [end](crate::feedback::Feedback::resume) a pause. Empty [without feedback](Self::without_feedback). See
    /// [`Servers::learned`](crate::feedback::Servers::learned).
    ///
    /// ```
    /// use tollgate::reqwest::RateLimit;
    /// use tollgate::{InFlight, RateLimiter};
    ///
    /// let limit = RateLimit::new(RateLimiter::new(InFlight::new(10)));
    /// assert!(limit.learned().is_empty());
    /// ```
    #[must_use]
    pub fn learned(&self) -> Vec<Learned<AnyRateLimiter<C>>> {
        self.servers.as_ref().map(|servers| servers.learned()).unwrap_or_default()
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
        let Some((key, limiter)) = (self.find)(&request, extensions) else {
            return next.run(request, extensions).await;
        };
        let cost = (self.cost)(&request, extensions);
        let Some(servers) = &self.servers else {
            let grant = acquire_within(&limiter, cost, self.max_wait).await.map_err(refused)?;
            return heard(next.run(request, extensions).await, grant).await;
        };
        let url = request.url();
        let route = format!("{} {}", request.method(), url.path());
        let feedback = servers.at(&key, &limiter, &host(url), &route);
        let mut call = acquire_within(&feedback, cost, self.max_wait).await.map_err(refused)?;
        // If this fails or is dropped, its place in flight is given back, and the server may have counted it.
        let mut response = next.run(request, extensions).await;
        if response.as_ref().is_ok_and(|head| feedback.wants_body(head.status(), head.headers())) {
            let head = response?;
            call.keep_head(head.status(), head.headers());
            let (whole, body) = read(head).await?;
            call.observe_body(whole.status(), whole.headers(), &body).await;
            response = Ok(whole);
        }
        heard(response, AnyGrant::new(call)).await
    }
}

/// The limiters that learn hear the response, or that there is none. They hear of a call once.
async fn heard<C: Cost>(response: Result<Response>, mut grant: AnyGrant<C>) -> Result<Response> {
    match response {
        Ok(response) => Ok(held(response, grant).await),
        Err(error) => {
            // The server was not reached, or did not answer.
            if let reqwest_middleware::Error::Reqwest(error) = &error
                && (error.is_request() || error.is_timeout())
            {
                grant.hear_failure();
            }
            Err(error)
        }
    }
}

/// The host and port of a URL. [`Url`] has made an address its shortest form, and an international name ASCII.
fn host(url: &Url) -> String {
    server_name(url.host_str().unwrap_or_default(), url.port())
}

/// The error of a request that was not sent. It can be downcast to `error`, and has it as its source.
fn refused(error: crate::Error) -> reqwest_middleware::Error {
    let error = anyhow::Error::new(error);
    reqwest_middleware::Error::Middleware(error.context("a rate limit refused the request"))
}

impl<C: Cost> fmt::Debug for RateLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}
