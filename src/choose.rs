//! What an HTTP request asks for: a limiter, a cost, and how long it may wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use crate::limiter::any::AnyRateLimiter;
use crate::limiter::{Acquire, OwnedLimiter, acquire_within};
use crate::policy::Cost;

type OfRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// The limiter and the cost of a request, and its longest wait.
#[derive(Clone)]
pub(crate) struct Ask<C: Cost> {
    limiter: OfRequest<AnyRateLimiter<C>>,
    cost: OfRequest<C>,
    max_wait: Option<Duration>,
}

impl<C: Cost> Ask<C> {
    /// One permit of the limiter that `choose` returns.
    pub(crate) fn by<L: OwnedLimiter<Cost = C>>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> Self {
        let limiter: OfRequest<_> = Arc::new(move |request| AnyRateLimiter::new(choose(request)));
        Self { limiter, cost: Arc::new(|_| C::ONE), max_wait: None }
    }

    pub(crate) fn cost(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        Self { cost: Arc::new(cost), ..self }
    }

    pub(crate) fn within(self, max_wait: Option<Duration>) -> Self {
        Self { max_wait, ..self }
    }

    /// The limiter of a request, the cost, and a caller that waits for it.
    pub(crate) fn of(&self, request: &Parts) -> (AnyRateLimiter<C>, C, Acquire<AnyRateLimiter<C>>) {
        let (limiter, cost) = ((self.limiter)(request), (self.cost)(request));
        let acquire = acquire_within(&limiter, cost, self.max_wait);
        (limiter, cost, acquire)
    }
}

impl<C: Cost> fmt::Debug for Ask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}
