//! The layers for clients.

use std::time::Duration;

use http::request::Parts;

use crate::choose::RateLimit;
use crate::limiter::OwnedLimiter;
use crate::limiter::any::AnyRateLimiter;
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
    pub(super) limiter: AnyRateLimiter<C>,
    pub(super) max_wait: Option<Duration>,
}

impl<C: Cost> RateLimitLayer<C> {
    /// One permit of `limiter` for each call; of each part, if its policy is a tuple. Any limiter will do: also
    /// one key of a keyed one, one over Redis, and an [`AnyRateLimiter`].
    #[must_use]
    pub fn new(limiter: impl OwnedLimiter<Cost = C>) -> Self {
        Self { limiter: AnyRateLimiter::new(limiter), max_wait: None }
    }

    /// The limiter that `choose` returns for a request: see [`RateLimitByLayer`](super::RateLimitByLayer).
    #[must_use]
    pub fn by<L: OwnedLimiter<Cost = C>>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> RateLimit<C> {
        RateLimit::by(choose)
    }

    /// A limiter whose servers teach it: what a response says of limits holds back later calls to the same server and
    /// bucket, see [`Servers`](crate::feedback::Servers). For options, and to look at what was learned, keep the servers:
    /// `RateLimitLayer::by(move |request| servers.of(request))`.
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
    pub fn learn(limiter: impl OwnedLimiter<Cost = C>) -> RateLimit<C> {
        RateLimit::new(limiter)
    }

    /// The longest wait for a permit; unbounded by default. A call that cannot be granted in this time is refused
    /// at once, and the error states the wait that it would have needed.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }
}
