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
/// use tollgate::tower::{RateLimit, RateLimitLayer};
/// use tollgate::{InFlight, Limiter, RateLimiter};
/// use tower::Layer;
///
/// let layer = RateLimitLayer::new(RateLimiter::new(InFlight::new(10)));
/// let service: RateLimit<_> = layer.layer("any service");
/// assert_eq!(service.limiter().queue_len(), 0);
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
/// use tollgate::tower::{RateLimitBy, RateLimitLayer};
/// use tollgate::{InFlight, RateLimiter};
/// use tower::Layer;
///
/// let layer = RateLimitLayer::new(RateLimiter::new(InFlight::new(10))).cost(|_| 3);
/// let service: RateLimitBy<_> = layer.layer("any service");
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
