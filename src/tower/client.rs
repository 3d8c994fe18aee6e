//! The layers for clients, and how a call passes one: it waits for its permits and for the inner service, and its limiter learns
//! from the answer.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{AnyResponse, held};
use crate::choose;
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Acquire, Granted, Limiter, acquire_within};
use crate::policy::Cost;

/// Makes each call wait for one permit of a limiter, in `poll_ready`: for clients.
///
/// - All services that it makes and their clones share the limiter. A clone has its own readiness.
/// - A service is ready when the inner service is ready and a permit is granted, in FIFO order. `call` spends the permit,
///   dropping a ready service returns it. Call a ready service soon: it keeps its permit.
/// - An [`InFlight`](crate::InFlight) place is held until the response body is read or dropped, the call fails, or
///   its future is dropped.
/// - If the limiter refuses, the future of `call` returns the boxed [`tollgate::Error`](crate::Error), and the inner service is
///   not called; the next `poll_ready` asks anew. `poll_ready` itself returns only errors of the inner service, because a
///   service that fails there counts as lost: a `Buffer` around it would close.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::tower::RateLimitLayer;
/// use tollgate::{Rate, RateLimiter, SmoothBursty};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(100.0)));
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(limiter))
///     .service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
/// for _ in 0..3 {
///     service.clone().oneshot(Request::new(())).await?; // the third after 20 ms
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer<C: Cost = u32> {
    limiter: AnyRateLimiter<C>,
    max_wait: Option<Duration>,
}

impl<C: Cost> RateLimitLayer<C> {
    /// One permit of `limiter` for each call; of each part, if its policy is a tuple. Any limiter will do: also
    /// one key of a keyed one, one over Redis, and an [`AnyRateLimiter`].
    #[must_use]
    pub fn new(limiter: impl Limiter<Cost = C> + 'static) -> Self {
        Self { limiter: AnyRateLimiter::new(limiter), max_wait: None }
    }

    /// A limiter whose servers teach it: what a response says of limits holds back later calls to the same server and
    /// bucket, see [`Servers`](crate::feedback::Servers). For options, and to look at what was learned, keep the servers:
    /// `RateLimit::by(move |request| servers.of(request))`.
    ///
    /// ```
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{InFlight, RateLimiter};
    /// use tower::ServiceBuilder;
    ///
    /// let limiter = RateLimiter::new(InFlight::new(10));
    /// let client = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::learn(limiter)) // a `Retry-After` of a host holds back the calls to it
    ///     .service("hyper-util's `Client`, tonic's `Channel`, ..");
    /// ```
    #[cfg(feature = "feedback")]
    #[must_use]
    pub fn learn(limiter: impl Limiter<Cost = C> + 'static) -> choose::RateLimit<C> {
        choose::RateLimit::new(limiter)
    }

    /// The longest wait for a permit; unbounded by default. A call that cannot be granted in this time is refused
    /// at once, and the error states the wait that it would have needed.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }
}

/// Waits in `poll_ready` until one permit is granted, and spends it in `call`; made by
/// [`RateLimitLayer`], which says what clones and errors do.
#[derive(Debug)]
pub struct RateLimit<S, C: Cost = u32> {
    inner: S,
    rules: RateLimitLayer<C>,
    waiting: Option<Acquire<AnyRateLimiter<C>>>,
    /// The permit of the next call, or why there is none.
    permit: Option<Result<AnyGrant<C>, Error>>,
}

impl<S, C: Cost> Layer<S> for RateLimitLayer<C> {
    type Service = RateLimit<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, rules: self.clone(), waiting: None, permit: None }
    }
}

impl<S, R, C> Service<R> for RateLimit<S, C>
where
    S: Service<R, Future: Send + 'static>,
    S::Response: AnyResponse + Send + 'static,
    S::Error: Into<BoxError> + 'static,
    C: Cost,
{
    type Response = <S::Response as AnyResponse>::Held<C>;
    type Error = BoxError;
    type Future = BoxFuture<Result<Self::Response, BoxError>>;

    /// Ready when the inner service is ready and the limiter has granted a permit or refused it. The future of
    /// `call` returns the refusal, because an error here would make the service fail for good.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service first: a permit that waits for it would be spent later than it was granted.
        ready!(self.inner.poll_ready(context)).map_err(Into::into)?;
        if self.permit.is_none() {
            let acquire = || acquire_within(&self.rules.limiter, C::ONE, self.rules.max_wait);
            let waiting = self.waiting.get_or_insert_with(acquire);
            self.permit = Some(ready!(Pin::new(waiting).poll(context)));
            self.waiting = None;
        }
        Poll::Ready(Ok(()))
    }

    /// # Panics
    ///
    /// If `poll_ready` has not returned `Poll::Ready` since the last call.
    fn call(&mut self, request: R) -> Self::Future {
        let permit = self.permit.take().expect("`call` before `poll_ready` was ready");
        let call = permit.map(|grant| answer(self.inner.call(request), grant));
        Box::pin(async move { call?.await.map_err(Into::into) })
    }
}

/// A clone has its own readiness, and the same limiter.
impl<S: Clone, C: Cost> Clone for RateLimit<S, C> {
    fn clone(&self) -> Self {
        self.rules.layer(self.inner.clone())
    }
}

/// Dropping a ready service returns its permit.
impl<S, C: Cost> Drop for RateLimit<S, C> {
    fn drop(&mut self) {
        if let Some(Ok(grant)) = self.permit.take() {
            grant.refund();
        }
    }
}

/// Waits in the future of `call` until the cost of the request is granted; made by
/// [`RateLimit`](crate::RateLimit).
#[derive(Clone, Debug)]
pub struct RateLimitBy<S, C: Cost = u32> {
    inner: S,
    rules: choose::RateLimit<C>,
}

impl<S, C: Cost> Layer<S> for choose::RateLimit<C> {
    type Service = RateLimitBy<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitBy { inner, rules: self.clone() }
    }
}

impl<S, T, C> Service<Request<T>> for RateLimitBy<S, C>
where
    S: Service<Request<T>, Future: Send + 'static> + Clone + Send + 'static,
    S::Response: AnyResponse + Send,
    S::Error: Into<BoxError>,
    T: Send + 'static,
    C: Cost,
{
    type Response = <S::Response as AnyResponse>::Held<C>;
    type Error = BoxError;
    type Future = BoxFuture<Result<Self::Response, BoxError>>;

    /// Always ready: the future of `call` waits for the permits, and then until a clone of the inner service is ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<T>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (.., acquire) = self.rules.of(&parts);
        let sent = send(acquire, self.inner.clone(), Request::from_parts(parts, body));
        Box::pin(async move { sent.await?.map_err(Into::into) })
    }
}

/// The error of the client services: the inner service's, or a [`tollgate::Error`](crate::Error).
type BoxError = Box<dyn StdError + Send + Sync>;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Waits for permits, then for the service, and calls it. The outer error is the limiter's.
pub(super) async fn send<S: Service<R, Response: AnyResponse>, R, C: Cost>(
    acquire: Acquire<AnyRateLimiter<C>>,
    mut service: S,
    request: R,
) -> Result<Result<<S::Response as AnyResponse>::Held<C>, S::Error>, Error> {
    let grant = acquire.await?;
    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
        // Nothing was sent.
        grant.refund();
        return Ok(Err(error));
    }
    Ok(answer(service.call(request), grant).await)
}

/// Waits for the answer. If this future is dropped, the call is dropped before its place in flight is given back.
async fn answer<F, T: AnyResponse, E, C: Cost>(
    call: F,
    mut grant: AnyGrant<C>,
) -> Result<T::Held<C>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let response = call.await.inspect_err(|_| grant.hear_failure())?;
    Ok(held(response, b"", grant).await)
}
