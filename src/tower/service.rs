//! The services of the client layers.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Method, Request};
use tower_service::Service;

use super::future::{BoxError, ResponseFuture, Stage};
use super::inner::Inner;
use super::options::Options;
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
    permit: Permit<C>,
}

/// The permit of the next call.
#[derive(Debug)]
enum Permit<C: Cost> {
    None,
    Waiting(Acquire<AnyRateLimiter<C>>),
    Granted(AnyGrant<C>),
    Refused(Error),
}

impl<C: Cost> Permit<C> {
    fn take(&mut self) -> Self {
        mem::replace(self, Self::None)
    }
}

impl<S, C: Cost> RateLimit<S, C> {
    pub(super) fn new(inner: S, limiter: AnyRateLimiter<C>, options: Options) -> Self {
        Self { inner, limiter, options, permit: Permit::None }
    }

    /// The limiter, to look at it or to pause it.
    #[must_use]
    pub fn limiter(&self) -> &AnyRateLimiter<C> {
        &self.limiter
    }

    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Permit::None = self.permit {
            let acquire = acquire_within(&self.limiter, C::ONE, self.options.max_wait);
            self.permit = Permit::Waiting(acquire);
        }
        if let Permit::Waiting(acquire) = &mut self.permit {
            self.permit = match ready!(Pin::new(acquire).poll(context)) {
                Ok(grant) => Permit::Granted(grant),
                Err(error) => Permit::Refused(error),
            };
        }
        Poll::Ready(())
    }
}

impl<S, R, C> Service<R> for RateLimit<S, C>
where
    S: Service<R>,
    S::Response: AnyResponse,
    S::Error: Into<BoxError>,
    C: Cost,
{
    type Response = <S::Response as AnyResponse>::Held<C>;
    type Error = BoxError;
    type Future = ResponseFuture<S, R, C>;

    /// Ready when the inner service is ready and the limiter has granted a permit or refused it. The future of
    /// `call` returns the refusal, because an error here would make the service fail for good.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service first: a permit that waits for it would be spent later than it was granted.
        ready!(self.inner.poll_ready(context)).map_err(Into::into)?;
        self.poll_permit(context).map(Ok)
    }

    /// # Panics
    ///
    /// If `poll_ready` has not returned `Poll::Ready` since the last call.
    fn call(&mut self, request: R) -> Self::Future {
        let stage = match self.permit.take() {
            Permit::Granted(grant) => {
                Stage::Calling { call: self.inner.call(request), grant: Some(grant) }
            }
            Permit::Refused(error) => Stage::Refused { error: Some(error) },
            Permit::None | Permit::Waiting(_) => panic!("`call` before `poll_ready` was ready"),
        };
        ResponseFuture::new(stage, false, self.options.refuse_with.clone())
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
            .field("max_wait", &self.options.max_wait)
            .field("permit", &self.permit)
            .finish()
    }
}

/// Dropping a ready service returns its permit.
impl<S, C: Cost> Drop for RateLimit<S, C> {
    fn drop(&mut self) {
        if let Permit::Granted(grant) = self.permit.take() {
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
    inner: Inner<S>,
    ask: Ask<C>,
    options: Options,
}

impl<S, C: Cost> RateLimitBy<S, C> {
    pub(super) fn new(inner: S, ask: Ask<C>, options: Options) -> Self {
        Self { inner: Inner::new(inner), ask, options }
    }
}

impl<S, T, C> Service<Request<T>> for RateLimitBy<S, C>
where
    S: Service<Request<T>>,
    S::Response: AnyResponse,
    S::Error: Into<BoxError>,
    C: Cost,
{
    type Response = <S::Response as AnyResponse>::Held<C>;
    type Error = BoxError;
    type Future = ResponseFuture<S, Request<T>, C>;

    /// As the inner service: the limiter is asked when the request is known.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<T>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (limiter, cost) = self.ask.of(&parts);
        let connects = parts.method == Method::CONNECT;
        let acquire = acquire_within(&limiter, cost, self.options.max_wait);
        let request = Request::from_parts(parts, body);
        let stage = Stage::waiting(acquire, self.inner.handle(), request);
        ResponseFuture::new(stage, connects, self.options.refuse_with.clone())
    }
}
