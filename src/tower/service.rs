//! The services of the client layers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::call::{BoxError, BoxFuture, answer, send};
use super::layer::RateLimitLayer;
use crate::body::AnyResponse;
use crate::choose;
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Acquire, acquire_within};
use crate::policy::Cost;

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
/// [`RateLimitByLayer`](super::RateLimitByLayer).
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
