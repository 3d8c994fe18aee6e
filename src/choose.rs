//! What an HTTP request asks for: a limiter, a cost, and how long it may wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

#[cfg(feature = "feedback")]
use crate::feedback::Servers;
use crate::limiter::any::AnyRateLimiter;
use crate::limiter::{Acquire, Limiter, acquire_within};
use crate::policy::Cost;

type OfRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// Makes each request of a client wait for its limit: middleware for reqwest and ureq, and a layer of tower.
///
/// **As a layer.** `poll_ready` has not seen the request, so the future of `call` waits, for its permits and then for a clone of
/// the inner service. So a `LoadShed` around it sheds nothing, and a `Buffer` hands on all requests: bound the waits by
/// [`max_wait`](Self::max_wait) or by the limiter's queue. The inner service must be `Clone`; a `Buffer` around it is. If only the
/// answer shows the true cost, settle the grant from `ResponseBody::take_grant`.
///
/// The closures see the request without its body: put what depends on it into the extensions
/// (`with_extension` of reqwest). `C` is the type of the cost: `u32`, or a tuple's type.
///
/// ```
/// use tollgate::{KeyedRateLimiter, Rate, RateLimit, TokenBucket};
///
/// let hosts = KeyedRateLimiter::<String, _>::new(TokenBucket::new(Rate::per_second(5.0), 10));
/// let by_host = move |request: &http::request::Parts| {
///     hosts.at(request.uri.host().unwrap_or_default()).into_owned()
/// };
/// let layer = RateLimit::by(by_host).cost(|request| if request.uri.path() == "/big" { 10 } else { 1 });
/// ```
#[derive(Clone)]
pub struct RateLimit<C: Cost = u32> {
    limiter: OfRequest<AnyRateLimiter<C>>,
    cost: OfRequest<C>,
    max_wait: Option<Duration>,
}

impl<C: Cost> RateLimit<C> {
    /// One limiter for all requests, which learns from the answers: see [`Servers`]. For options of what it learns, such as
    /// [how long](crate::feedback::FeedbackBuilder::max_wait) a server can pause calls (an hour), and to look at what was
    /// learned, keep the servers: `RateLimit::by(move |request| servers.of(request))`.
    #[cfg(feature = "feedback")]
    #[must_use]
    pub fn new(limiter: impl Limiter<Cost = C> + 'static) -> Self {
        let servers = Servers::new(limiter);
        Self::by(move |request| servers.of(request))
    }

    /// The limiter that `choose` returns for a request, such as one of a key; with the feature `redis`, `limiter.at(key)` of a
    /// `RedisRateLimiter` is one quota for a fleet. It learns if it is a `Feedback`, such as a limiter of `Servers`.
    #[must_use]
    pub fn by<L: Limiter<Cost = C> + 'static>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> Self {
        let limiter: OfRequest<_> = Arc::new(move |request| AnyRateLimiter::new(choose(request)));
        Self { limiter, cost: Arc::new(|_| C::ONE), max_wait: None }
    }

    /// Sets the cost of a request. Default: one permit, of each part of a tuple. A request whose cost is zero passes at once.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        Self { cost: Arc::new(cost), ..self }
    }

    /// The longest wait. A request that cannot be granted in this time is refused at once. Default: no bound.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }

    /// The limiter of a request, the cost, and a caller that waits for it.
    pub(crate) fn of(&self, request: &Parts) -> (AnyRateLimiter<C>, C, Acquire<AnyRateLimiter<C>>) {
        let (limiter, cost) = ((self.limiter)(request), (self.cost)(request));
        let acquire = acquire_within(&limiter, cost, self.max_wait);
        (limiter, cost, acquire)
    }
}

impl<C: Cost> fmt::Debug for RateLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}
