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
    limiter: Choice<C>,
    cost: Option<OfRequest<C>>,
}

#[derive(Clone)]
enum Choice<C: Cost> {
    One(AnyRateLimiter<C>),
    By(OfRequest<AnyRateLimiter<C>>),
}

impl<C: Cost> Ask<C> {
    /// One permit of this limiter.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "ureq asks by the request"))]
    pub(crate) fn one(limiter: AnyRateLimiter<C>) -> Self {
        Self { limiter: Choice::One(limiter), cost: None }
    }

    /// One permit of the limiter that `choose` returns.
    pub(crate) fn by<F, L>(choose: F) -> Self
    where
        F: Fn(&Parts) -> L + Send + Sync + 'static,
        L: OwnedLimiter<Cost = C>,
    {
        let choose =
            move |request: &Parts| -> AnyRateLimiter<C> { AnyRateLimiter::new(choose(request)) };
        Self { limiter: Choice::By(Arc::new(choose)), cost: None }
    }

    pub(crate) fn cost(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    pub(crate) fn of(&self, request: &Parts) -> (AnyRateLimiter<C>, C) {
        let limiter = match &self.limiter {
            Choice::One(limiter) => limiter.clone(),
            Choice::By(choose) => choose(request),
        };
        (limiter, self.cost.as_ref().map_or(C::ONE, |cost| cost(request)))
    }
}

impl<C: Cost> fmt::Debug for Ask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Ask");
        if let Choice::One(limiter) = &self.limiter {
            shown.field("limiter", limiter);
        }
        shown.finish_non_exhaustive()
    }
}
