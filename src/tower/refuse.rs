//! The layer for servers.

use std::mem;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::ResponseBody;
use super::client::{BoxFuture, send};
use super::client_ip::ClientIp;
use super::fields::{add_limits, set_retry_after};
use crate::choose::RateLimit;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::any::AnyRateLimiter;
use crate::policy::in_flight::InFlight;
use crate::rate_limiter::RateLimiter;

/// Answers requests beyond a limit by 429 and tells clients how much is left: for servers.
///
/// | why | status |
/// |---|---|
/// | no permit now, or the queue is full | 429 Too Many Requests |
/// | the cost exceeds the capacity: it never fits | 413 Content Too Large |
/// | a limit of zero, which is closed to all; too many keys; the limiter is [closed](crate::Limiter::close); the store of a shared limit is away | 503 Service Unavailable |
///
/// `Retry-After` is set if the time is known, in whole seconds, rounded up. A place in flight has none. The body of a refusal
/// is empty, and the [`tollgate::Error`](crate::Error) is in the extensions: `map_response` around the layer can change the
/// response and write a body.
///
/// `RateLimit-Policy` and `RateLimit` of
/// [draft-ietf-httpapi-ratelimit-headers](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/) are set in
/// all responses, unless [`fields`](Self::fields) says no: over Redis they take one more request. Each limit is an item of
/// both, with the [name](crate::Limiter::name) of the limiter or `"default"`; several rules are `"default-0"`, `"default-1"`.
///
/// - `q` permits come in `w` seconds ([`Quota::window`](crate::Quota::window)): `w` is rounded up to whole
///   seconds, and `q` enlarged in proportion. [`InFlight`] has no `w` but the unit `qu="concurrent-requests"`.
/// - `r` permits can be taken now. In the next `t` seconds there is no more than that; then there is more, and enough for
///   the cost of this request. `t` is left out if it does not depend on time alone, and 0 if an exhausted limit is whole
///   again within a second: a client does best to spread `q` calls over `w`.
///
/// An [`InFlight`] place is held until the response body has ended or is dropped, or the client goes away. The errors of the
/// service are the inner service's. The inner service must be `Clone` and its body `Default`; axum's, tonic's and
/// http-body-util's are.
///
/// A [`KeyedRateLimiter`](crate::KeyedRateLimiter) whose [`max_keys`](crate::RateLimiterBuilder::max_keys) are all in
/// use answers 503 to a new key. Give the customers that you know a limiter of their own, which strangers cannot fill.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tollgate::tower::RefuseLayer;
/// use tollgate::{FixedWindow, ManualClock, RateLimiter};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = FixedWindow::new(2, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let service = ServiceBuilder::new()
///     .layer(RefuseLayer::new(limiter))
///     .service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
/// let granted = service.clone().oneshot(Request::new(())).await?;
/// assert_eq!(granted.headers()["RateLimit-Policy"], "\"default\";q=2;w=60");
/// assert_eq!(granted.headers()["RateLimit"], "\"default\";r=1;t=60");
/// service.clone().oneshot(Request::new(())).await?;
/// let refused = service.clone().oneshot(Request::new(())).await?;
/// assert_eq!((refused.status().as_u16(), &refused.headers()["Retry-After"]), (429, &"60".parse()?));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RefuseLayer {
    ask: RateLimit,
    fields: bool,
}

impl RefuseLayer {
    /// One permit of `limiter` for each request.
    ///
    /// Several rules with one cost ([`Same`](crate::Same), [`AllOf`](crate::AllOf)) are one limiter; two
    /// layers would charge the outer limit for what the inner one refuses.
    #[must_use]
    pub fn new(limiter: impl Limiter<Cost = u32> + 'static) -> Self {
        let limiter = AnyRateLimiter::new(limiter);
        Self::by(move |_| limiter.clone())
    }

    /// The limiter that `choose` returns for a request: a key of a keyed limiter or of one over Redis, say.
    ///
    /// `choose` sees the request without its body. Do not use a key that clients choose freely, as each new value has a
    /// fresh limit: put the layer behind what authenticates an API key, or return a limiter that strangers share for a key
    /// that you do not know. The layer does not print keys, but `Debug` of an [`AtKey`](crate::AtKey) does.
    ///
    /// ```
    /// use tollgate::tower::RefuseLayer;
    /// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
    ///
    /// let keys = KeyedRateLimiter::<String, _>::new(TokenBucket::new(Rate::per_second(5.0), 10));
    /// let layer = RefuseLayer::by(move |request| {
    ///     let key = request.headers.get("x-api-key").and_then(|key| key.to_str().ok());
    ///     keys.at(key.unwrap_or_default()).into_owned()
    /// });
    /// ```
    #[must_use]
    pub fn by<L: Limiter<Cost = u32> + 'static>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> Self {
        let ask = RateLimit::by(choose).max_wait(Duration::ZERO);
        Self { ask, fields: true }
    }

    /// The limiter that `choose` returns for the IP address of the client, see [`ClientIp`]. With a limit for all clients:
    /// `clients.at(&ip).into_owned().and(&all)`.
    ///
    /// If the server does not say from where a request comes, the request is refused with 503, by a limit of the name
    /// `"no-peer-address"`.
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use axum::Router;
    /// use axum::extract::ConnectInfo;
    /// use tollgate::tower::{ClientIp, RefuseLayer};
    /// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
    ///
    /// let clients = KeyedRateLimiter::<IpAddr, _>::new(TokenBucket::new(Rate::per_second(5.0), 10));
    /// let ip = ClientIp::peer::<ConnectInfo<SocketAddr>>()
    ///     .trusted_proxies("x-forwarded-for", ["10.0.0.0/8".parse()?]); // without this line: no proxy
    /// let app: Router = Router::new().layer(RefuseLayer::by_ip(ip, move |ip| clients.at(&ip).into_owned()));
    /// let app = app.into_make_service_with_connect_info::<SocketAddr>(); // for `axum::serve`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn by_ip<L: Limiter<Cost = u32> + 'static>(
        client: ClientIp,
        choose: impl Fn(IpAddr) -> L + Send + Sync + 'static,
    ) -> Self {
        let closed = RateLimiter::builder(InFlight::new(0)).name("no-peer-address").build();
        let closed = AnyRateLimiter::new(closed);
        Self::by(move |request| {
            let ip = client.of(request);
            ip.map_or_else(|| closed.clone(), |ip| AnyRateLimiter::new(choose(ip)))
        })
    }

    /// Sets the cost of a request. Default: one permit. A request whose cost is zero passes at once, whatever the
    /// limit.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        Self { ask: self.ask.cost(cost), ..self }
    }

    /// The longest wait for a permit; zero by default. A request that cannot be granted in this time is refused at
    /// once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { ask: self.ask.max_wait(max_wait), ..self }
    }

    /// Whether responses have `RateLimit-Policy` and `RateLimit`. Default: yes. `Retry-After` is set in any case.
    #[must_use]
    pub fn fields(self, fields: bool) -> Self {
        Self { fields, ..self }
    }
}

impl<S> Layer<S> for RefuseLayer {
    type Service = Refuse<S>;

    fn layer(&self, inner: S) -> Refuse<S> {
        Refuse { inner, rules: self.clone() }
    }
}

/// The response to a request that is refused.
fn refuse<B: Default>(error: Error) -> Response<B> {
    let mut response = Response::<B>::default();
    *response.status_mut() = match &error {
        Error::Denied { .. } | Error::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        // A limit of zero is closed, whatever the request. A client that slows down or asks for less cannot help it.
        Error::ExceedsCapacity(error) if error.max > 0 => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    if let Some(retry_after) = error.retry_after() {
        set_retry_after(response.headers_mut(), retry_after);
    }
    response.extensions_mut().insert(error);
    response
}

/// Answers requests beyond a limit by 429; made by [`RefuseLayer`].
///
/// A call whose future is dropped leaves the queue. A request that has reached the inner service stays charged; its place
/// in flight is given back.
#[derive(Clone, Debug)]
pub struct Refuse<S> {
    inner: S,
    rules: RefuseLayer,
}

impl<S, T, B> Service<Request<T>> for Refuse<S>
where
    S: Service<Request<T>, Response = Response<B>, Future: Send + 'static> + Clone + Send + 'static,
    T: Send + 'static,
    B: Body + Default + Send,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<Result<Self::Response, S::Error>>;

    /// As the inner service.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<T>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let fields = self.rules.fields;
        let (limiter, cost, acquire) = self.rules.ask.of(&parts);
        let request = Request::from_parts(parts, body);
        // The service that is ready. Its clone, which stays here, is not.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let mut response = match send(acquire, service, request).await {
                Ok(answer) => answer?,
                Err(error) => refuse(error),
            };
            // The state after the decision. Without the fields if the store does not answer.
            if fields && let Ok(limits) = limiter.limits(cost).await {
                add_limits(response.headers_mut(), limiter.name(), &limits);
            }
            Ok(response)
        })
    }
}
