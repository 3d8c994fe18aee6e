//! The layers for clients.

use std::time::Duration;

use http::request::Parts;

use crate::choose::Ask;
#[cfg(feature = "feedback")]
use crate::feedback::Servers;
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

    /// The limiter that `choose` returns for a request: see [`RateLimitByLayer`].
    #[must_use]
    pub fn by<L: OwnedLimiter<Cost = C>>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> RateLimitByLayer<C> {
        RateLimitByLayer { ask: Ask::by(choose) }
    }

    /// A limiter whose servers teach it: what a response says of limits holds back later calls to the same server and
    /// bucket, see [`Servers`]. For options, and to look at what was learned, keep the servers:
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
    pub fn learn(limiter: impl OwnedLimiter<Cost = C>) -> RateLimitByLayer<C> {
        let servers = Servers::new(limiter);
        Self::by(move |request| servers.of(request))
    }

    /// The longest wait for a permit; unbounded by default. A call that cannot be granted in this time is refused
    /// at once, and the error states the wait that it would have needed.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }
}

/// Makes each call wait for a cost, or a limiter, that depends on the request: for clients.
///
/// Made by [`RateLimitLayer::by`] and [`RateLimitLayer::learn`]. `poll_ready` has not seen the request, so the future of `call`
/// waits, for its permits and then for a clone of the inner service. So a `LoadShed` around it sheds nothing, and a `Buffer`
/// hands on all requests: bound the waits by [`max_wait`](Self::max_wait) or by the limiter's queue. The inner service must be
/// `Clone`; a `Buffer` around it is.
///
/// The closures see the request without its body: put what depends on it into the extensions. If only the answer shows the true
/// cost, settle the grant from [`ResponseBody::take_grant`](super::ResponseBody). A request whose cost is zero passes at once.
///
/// ```
/// use tollgate::tower::RateLimitLayer;
/// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
///
/// let hosts = KeyedRateLimiter::<String, _>::new(TokenBucket::new(Rate::per_second(5.0), 10));
/// let by_host = move |request: &http::request::Parts| {
///     hosts.at(request.uri.host().unwrap_or_default()).into_owned()
/// };
/// let layer = RateLimitLayer::by(by_host).cost(|request| if request.uri.path() == "/big" { 10 } else { 1 });
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitByLayer<C: Cost = u32> {
    pub(super) ask: Ask<C>,
}

impl<C: Cost> RateLimitByLayer<C> {
    /// Sets the cost of a request. Default: one permit.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        Self { ask: self.ask.cost(cost) }
    }

    /// The longest wait; see [`RateLimitLayer::max_wait`].
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { ask: self.ask.within(Some(max_wait)) }
    }
}
