//! The layer for servers.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::choose::Ask;
use super::fields::{add_limits, set_retry_after};
use super::future::Stage;
use super::inner::Inner;
use super::upgrade::{UpgradePlace, asks_for_upgrade, is_upgrade};
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Limiter, OwnedLimiter, acquire_within};
use crate::policy::Limit;

/// Answers requests beyond a limit by 429 and tells clients how much is left: for servers.
///
/// | why | status |
/// |---|---|
/// | no permit now, or the queue is full | 429 Too Many Requests |
/// | the cost exceeds the capacity: it never fits | 413 Content Too Large |
/// | a limit of zero, which is closed to all; too many keys; the limiter is [closed](Limiter::close); the store of a shared limit is away | 503 Service Unavailable |
///
/// - `Retry-After` is set if the time is known: in whole seconds, rounded up. A place in flight has none.
/// - `RateLimit-Policy` and `RateLimit` are set in all responses, granted or refused, from the current state of
///   the limiter: the fields of
///   [draft-ietf-httpapi-ratelimit-headers](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/).
///   Each limit is an item of both. A single limit has the [name](AnyRateLimiter::name) of the limiter, or
///   `"default"`. Several rules are numbered in order: `"default-0"`, `"default-1"`.
///   - `q` permits come in `w` seconds ([`Quota::window`](crate::Quota::window)): `w` is rounded up to whole
///     seconds, and `q` enlarged in proportion. [`InFlight`](crate::InFlight) has no `w` but the unit
///     `qu="concurrent-requests"`.
///   - `r` permits can be taken now, at once. In the next `t` seconds there is no more than that; then there is
///     more, and enough for the cost of this request. `t` is left out if it does not depend on time alone. It is 0
///     if an exhausted limit is whole again within a second: fields have no fractions of a second, and a client
///     does best to spread `q` calls over `w`.
///
///   Over Redis the state is one more request; [`fields`](Self::fields) switches it off.
/// - A refused response has an empty body, and the [`tollgate::Error`](crate::Error) in its extensions:
///   `map_response` around the layer can write a body. [`respond`](Self::respond) changes status and headers.
/// - An [`InFlight`](crate::InFlight) place is held until the response body is read or dropped, or the client goes
///   away. An upgraded connection keeps it by an [`UpgradePlace`].
///
/// The errors of the service are the inner service's: this layer adds none. The inner service must be `Clone` and
/// its body `Default`; axum's, tonic's and http-body-util's are.
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
    rules: Arc<Rules>,
}

type Respond = Arc<dyn Fn(&Error, &mut response::Parts) + Send + Sync>;

#[derive(Clone)]
struct Rules {
    ask: Ask<u32>,
    max_wait: Duration,
    fields: bool,
    respond: Option<Respond>,
}

impl RefuseLayer {
    /// One permit of `limiter` for each request.
    ///
    /// Several rules with one cost ([`Same`](crate::Same), arrays, [`AllOf`](crate::AllOf)) are one limiter; two
    /// layers would charge the outer limit for what the inner one refuses.
    #[must_use]
    pub fn new(limiter: impl OwnedLimiter<Cost = u32>) -> Self {
        Self::of(Ask::one(AnyRateLimiter::new(limiter)))
    }

    /// The limiter that `choose` returns for a request: a key of a keyed limiter or of one over Redis, say.
    ///
    /// `choose` sees the request without its body. Do not use a key that clients choose freely: each new value
    /// would have a fresh limit.
    #[must_use]
    pub fn by<F, L>(choose: F) -> Self
    where
        F: Fn(&Parts) -> L + Send + Sync + 'static,
        L: OwnedLimiter<Cost = u32>,
    {
        Self::of(Ask::by(choose))
    }

    fn of(ask: Ask<u32>) -> Self {
        let rules = Rules { ask, max_wait: Duration::ZERO, fields: true, respond: None };
        Self { rules: Arc::new(rules) }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Sets the cost of a request. Default: one permit. A request whose cost is zero passes at once, whatever the
    /// limit.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.ask = rules.ask.clone().cost(cost))
    }

    /// The longest wait for a permit; zero by default. A request that cannot be granted in this time is refused at
    /// once.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|rules| rules.max_wait = max_wait)
    }

    /// Whether responses have `RateLimit-Policy` and `RateLimit`. Default: yes. `Retry-After` is set in any case.
    #[must_use]
    pub fn fields(self, fields: bool) -> Self {
        self.with(|rules| rules.fields = fields)
    }

    /// Changes the response to a refused request. Its status and headers are already set.
    ///
    /// gRPC clients read 429 as `Unavailable`. To send them `ResourceExhausted`:
    ///
    /// ```
    /// use http::{HeaderValue, StatusCode};
    /// use tollgate::tower::RefuseLayer;
    /// use tollgate::{Error, Rate, RateLimiter, TokenBucket};
    ///
    /// let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(100.0), 20));
    /// let layer = RefuseLayer::new(limiter).respond(|error, response| {
    ///     if let Error::Denied { .. } = error {
    ///         response.status = StatusCode::OK;
    ///         response.headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    ///         response.headers.insert("grpc-status", HeaderValue::from_static("8"));
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn respond(
        self,
        respond: impl Fn(&Error, &mut response::Parts) + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.respond = Some(Arc::new(respond)))
    }
}

impl<S> Layer<S> for RefuseLayer {
    type Service = Refuse<S>;

    fn layer(&self, inner: S) -> Refuse<S> {
        Refuse { inner, rules: Arc::clone(&self.rules) }
    }
}

impl Rules {
    /// The response to a refused request.
    fn refusal<B: Default>(
        &self,
        error: Error,
        limiter: &AnyRateLimiter,
        limits: Option<&[Limit<u32>]>,
    ) -> Response<B> {
        let (mut head, body) = Response::new(B::default()).into_parts();
        head.status = match error {
            Error::Denied { .. } | Error::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            // A limit of zero is closed, whatever the request. A client that slows down or asks for less cannot help it.
            Error::ExceedsCapacity(error) if error.max > 0 => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        if let Some(retry_after) = error.retry_after() {
            set_retry_after(&mut head.headers, retry_after);
        }
        if let Some(limits) = limits {
            add_limits(&mut head.headers, limiter.name(), limits);
        }
        if let Some(respond) = &self.respond {
            respond(&error, &mut head);
        }
        head.extensions.insert(error);
        Response::from_parts(head, body)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("ask", &self.ask)
            .field("max_wait", &self.max_wait)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// Answers requests beyond a limit by 429; made by [`RefuseLayer`].
///
/// ```
/// use http::Response;
/// use http_body_util::Full;
/// use tollgate::tower::{Refuse, RefuseLayer};
/// use tollgate::{Rate, RateLimiter, TokenBucket};
/// use tower::{Layer, service_fn};
///
/// let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(100.0), 20));
/// let service: Refuse<_> = RefuseLayer::new(limiter).layer("any service");
/// assert!(format!("{service:?}").contains("TokenBucket"));
/// ```
#[derive(Clone, Debug)]
pub struct Refuse<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S, T, B> Service<Request<T>> for Refuse<S>
where
    S: Service<Request<T>, Response = Response<B>> + Clone,
    B: Body + Default,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = RefuseFuture<S, Request<T>>;

    /// As the inner service.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<T>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let (limiter, cost) = self.rules.ask.of(&parts);
        let connects = parts.method == Method::CONNECT;
        let place = asks_for_upgrade(&parts).then(UpgradePlace::default);
        if let Some(place) = &place {
            parts.extensions.insert(place.clone());
        }
        RefuseFuture {
            stage: Stage::waiting(
                acquire_within(&limiter, cost, Some(self.rules.max_wait)),
                Inner::new(take_ready(&mut self.inner)),
                Request::from_parts(parts, body),
            ),
            outcome: None,
            place,
            connects,
            cost,
            limits: None,
            limiter,
            rules: Arc::clone(&self.rules),
        }
    }
}

/// Moves the service that is ready out; its clone is not. The connections of a server do not share one.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    mem::replace(service, clone)
}

pin_project! {
    /// The future of a call through [`Refuse`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue. A call that has been made stays charged; its place in flight is returned.
    ///
    /// # Panics
    ///
    /// If it is polled again after it returned `Poll::Ready`.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::future::{Ready, ready};
    /// use http::{Request, Response};
    /// use tollgate::tower::{RefuseFuture, RefuseLayer};
    /// use tollgate::{InFlight, RateLimiter};
    /// use tower::util::ServiceFn;
    /// use tower::{Layer, Service, service_fn};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    /// let mut service = RefuseLayer::new(RateLimiter::new(InFlight::new(0))).layer(inner);
    /// let future: RefuseFuture<ServiceFn<_>, _> = service.call(Request::new(()));
    /// assert_eq!(future.await?.status(), 503);
    /// # Ok::<(), Infallible>(()) }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct RefuseFuture<S, R>
    where
        S: Service<R>,
    {
        #[pin]
        stage: Stage<S, R, u32>,
        outcome: Option<Outcome<S::Response>>,
        place: Option<UpgradePlace>,
        connects: bool,
        cost: u32,
        limits: Option<LimitsFuture>,
        limiter: AnyRateLimiter,
        rules: Arc<Rules>,
    }
}

type LimitsFuture = Pin<Box<dyn Future<Output = Result<Vec<Limit<u32>>, Error>> + Send>>;

fn limits_of(limiter: AnyRateLimiter, cost: u32) -> LimitsFuture {
    Box::pin(async move { limiter.limits(cost).await })
}

enum Outcome<T> {
    Answered(T, AnyGrant),
    Refused(Error),
}

impl<S, R, B> Future for RefuseFuture<S, R>
where
    S: Service<R, Response = Response<B>>,
    B: Body + Default,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.outcome.is_none() {
            *this.outcome = Some(match ready!(this.stage.poll(context)) {
                Ok(answer) => {
                    let (response, grant) = answer?;
                    Outcome::Answered(response, grant)
                }
                Err(error) => Outcome::Refused(error),
            });
            *this.limits = this.rules.fields.then(|| limits_of(this.limiter.clone(), *this.cost));
        }
        let limits = match this.limits {
            // Without the fields if the store does not answer.
            Some(limits) => ready!(Pin::new(limits).poll(context)).ok(),
            None => None,
        };
        let name = this.limiter.name();
        Poll::Ready(Ok(match this.outcome.take() {
            Some(Outcome::Answered(mut response, grant)) => {
                if let Some(limits) = &limits {
                    add_limits(response.headers_mut(), name, limits);
                }
                let is_upgrade = is_upgrade(response.status(), *this.connects);
                match this.place.take().filter(|_| is_upgrade) {
                    Some(place) => {
                        place.hold(grant);
                        response.map(ResponseBody::without_grant)
                    }
                    None => response.map(|body| ResponseBody::with_grant(body, grant, is_upgrade)),
                }
            }
            Some(Outcome::Refused(error)) => {
                let refusal = this.rules.refusal(error, this.limiter, limits.as_deref());
                refusal.map(ResponseBody::without_grant)
            }
            None => unreachable!("set above"),
        }))
    }
}

impl<S: Service<R>, R> fmt::Debug for RefuseFuture<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefuseFuture").field("stage", &self.stage).finish_non_exhaustive()
    }
}
