//! The services of the client layers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Method, Request};
use tower_service::Service;

use super::call::{BoxError, BoxFuture, Options, answer, held, send};
use super::response::AnyResponse;
use crate::choose::Ask;
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Acquire, acquire_within};
use crate::policy::Cost;

/// Waits in `poll_ready` until one permit is granted, and spends it in `call`; made by
/// [`RateLimitLayer`](super::RateLimitLayer), which says what clones and errors do.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tollgate::tower::RateLimitLayer;
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 10);
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let mut service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(limiter.clone()))
///     .service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
/// service.ready().await?;
/// assert_eq!(limiter.available(), 9);
/// service.call(Request::new(())).await?;
/// assert_eq!(limiter.available(), 9);
/// service.ready().await?;
/// assert_eq!(limiter.available(), 8);
/// drop(service); // ready, and never called
/// assert_eq!(limiter.available(), 9);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RateLimit<S, C: Cost = u32> {
    inner: S,
    limiter: AnyRateLimiter<C>,
    options: Options,
    waiting: Option<Acquire<AnyRateLimiter<C>>>,
    /// The permit of the next call, or why there is none.
    permit: Option<Result<AnyGrant<C>, Error>>,
}

impl<S, C: Cost> RateLimit<S, C> {
    pub(super) fn new(inner: S, limiter: AnyRateLimiter<C>, options: Options) -> Self {
        Self { inner, limiter, options, waiting: None, permit: None }
    }

    /// The limiter, to look at it or to pause it.
    #[must_use]
    pub fn limiter(&self) -> &AnyRateLimiter<C> {
        &self.limiter
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
            let acquire = || acquire_within(&self.limiter, C::ONE, self.options.max_wait);
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
        let call = call.map_err(|error| self.options.refusal(error));
        Box::pin(async move {
            let (response, grant) = call?.await.map_err(Into::into)?;
            Ok(held(response, grant, false).await)
        })
    }
}

/// A clone has its own readiness, and the same limiter.
impl<S: Clone, C: Cost> Clone for RateLimit<S, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.limiter.clone(), self.options.clone())
    }
}

impl<S: fmt::Debug, C: Cost> fmt::Debug for RateLimit<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .field("options", &self.options)
            .field("permit", &self.permit)
            .finish_non_exhaustive()
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
/// [`RateLimitByLayer`](super::RateLimitByLayer).
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::tower::{RateLimitBy, RateLimitLayer};
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 10);
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
/// let layer = RateLimitLayer::new(limiter.clone()).cost(|_| 3);
/// let mut service: RateLimitBy<_> = layer.layer(inner);
/// let response = service.ready().await?.call(Request::new(()));
/// assert_eq!(limiter.available(), 10);
/// response.await?;
/// assert_eq!(limiter.available(), 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitBy<S, C: Cost = u32> {
    inner: S,
    ask: Ask<C>,
    options: Options,
}

impl<S, C: Cost> RateLimitBy<S, C> {
    pub(super) fn new(inner: S, ask: Ask<C>, options: Options) -> Self {
        Self { inner, ask, options }
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
        let (limiter, cost) = self.ask.of(&parts);
        let connects = parts.method == Method::CONNECT;
        let acquire = acquire_within(&limiter, cost, self.options.max_wait);
        let request = Request::from_parts(parts, body);
        let (inner, options) = (self.inner.clone(), self.options.clone());
        Box::pin(async move {
            let sent = send(acquire, inner, request).await;
            let answer = sent.map_err(|error| options.refusal(error))?;
            let (response, grant) = answer.map_err(Into::into)?;
            Ok(held(response, grant, connects).await)
        })
    }
}
