//! What an HTTP request asks for: a limiter, and a cost.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::limiter::OwnedLimiter;
use crate::limiter::any::AnyRateLimiter;
use crate::policy::Cost;

type OfRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// The limiter and the cost of a request.
#[derive(Clone)]
pub(crate) struct Ask<C: Cost> {
    limiter: OfRequest<AnyRateLimiter<C>>,
    cost: OfRequest<C>,
}

impl<C: Cost> Ask<C> {
    /// One permit of the limiter that `choose` returns.
    pub(crate) fn by<L: OwnedLimiter<Cost = C>>(
        choose: impl Fn(&Parts) -> L + Send + Sync + 'static,
    ) -> Self {
        let limiter: OfRequest<_> = Arc::new(move |request| AnyRateLimiter::new(choose(request)));
        Self { limiter, cost: Arc::new(|_| C::ONE) }
    }

    pub(crate) fn cost(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        Self { cost: Arc::new(cost), ..self }
    }

    pub(crate) fn of(&self, request: &Parts) -> (AnyRateLimiter<C>, C) {
        ((self.limiter)(request), (self.cost)(request))
    }
}

impl<C: Cost> fmt::Debug for Ask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").finish_non_exhaustive()
    }
}
