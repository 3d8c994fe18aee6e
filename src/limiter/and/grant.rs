//! What both limiters have granted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::Granted;
use super::super::sealed::Sealed;
#[cfg(any(feature = "feedback", feature = "tower"))]
use super::super::{Hearing, Reply, both};
use crate::error::Error;
use crate::part::Part;
use crate::policy::Cost;

/// Permits granted by both limiters of an [`And`](crate::And).
///
/// Dropping it gives back the places in flight of both and nothing else: keep it as long as the call takes.
///
/// ```
/// use tollgate::{InFlight, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::new();
/// let tokens = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1.0), 100), &clock);
/// let places = RateLimiter::with_clock(InFlight::new(50), &clock);
/// let mut grant = tokens.and(&places).acquire(30).await?;
/// grant.settle(20).await?; // at both
/// assert_eq!((tokens.available(), places.available()), (80, 30));
/// drop(grant);
/// assert_eq!((tokens.available(), places.available()), (80, 50));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AndGrant<A: Granted, B: Granted<Cost = A::Cost>> {
    first: A,
    second: B,
    /// The error of one settlement, while the other one is still to come.
    failed: Option<Error>,
    /// Counts it if no caller takes it.
    left: Option<Arc<AtomicU64>>,
}

impl<A: Granted, B: Granted<Cost = A::Cost>> AndGrant<A, B> {
    crate::limiter::methods_of_granted!();

    /// Of a caller that has not taken it: if it goes back before, it counts in `left`.
    pub(super) fn new(first: A, second: B, left: Arc<AtomicU64>) -> Self {
        Self { first, second, failed: None, left: Some(left) }
    }

    pub(super) fn taken(self) -> Self {
        Self { left: None, ..self }
    }

    /// What the first limiter granted: it names the [rule](Granted::limited_by) that made the call wait there.
    #[must_use]
    pub fn first(&self) -> &A {
        &self.first
    }

    /// What the second limiter granted.
    #[must_use]
    pub fn second(&self) -> &B {
        &self.second
    }
}

impl<A: Granted, B: Granted<Cost = A::Cost>> Sealed for AndGrant<A, B> {}

impl<A: Granted, B: Granted<Cost = A::Cost>> Granted for AndGrant<A, B> {
    type Cost = A::Cost;

    fn cost(&self) -> A::Cost {
        self.first.cost()
    }

    fn waited(&self) -> Duration {
        self.first.waited().saturating_add(self.second.waited())
    }

    /// The limiter that the call waited for last.
    fn limited_by(&self) -> Option<Part> {
        let waited = [self.first.waited(), self.second.waited()];
        waited.iter().rposition(|waited| !waited.is_zero()).map(|index| Part::new(index, 2))
    }

    /// At both, also if one of them fails: the cost is the true one.
    fn send_settlement(&mut self, actual: A::Cost) -> Result<(), Error> {
        let first = self.first.send_settlement(actual);
        let second = self.second.send_settlement(actual);
        first.and(second)
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let both = [self.first.poll_settled(context), self.second.poll_settled(context)];
        let is_pending = both.iter().any(Poll::is_pending);
        for outcome in both {
            if let Poll::Ready(Err(error)) = outcome {
                self.failed.get_or_insert(error);
            }
        }
        match self.failed.take() {
            failed if is_pending => {
                self.failed = failed;
                Poll::Pending
            }
            failed => Poll::Ready(failed.map_or(Ok(()), Err)),
        }
    }

    fn settle_on_drop(&mut self, actual: A::Cost) {
        self.first.settle_on_drop(actual);
        self.second.settle_on_drop(actual);
    }

    fn give_back(&mut self) {
        if let Some(left) = self.left.take()
            && !self.cost().is_zero()
        {
            left.fetch_add(1, Ordering::Relaxed);
        }
        self.first.give_back();
        self.second.give_back();
    }

    fn holds_places(&self) -> bool {
        self.first.holds_places() || self.second.holds_places()
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn receive(&mut self, reply: Reply<'_>) -> Hearing {
        let first = self.first.receive(reply);
        both(first, self.second.receive(reply))
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn hears_body(&self) -> bool {
        self.first.hears_body() || self.second.hears_body()
    }
}

impl<A: Granted, B: Granted<Cost = A::Cost>> fmt::Debug for AndGrant<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AndGrant")
            .field("first", &self.first)
            .field("second", &self.second)
            .finish_non_exhaustive()
    }
}
