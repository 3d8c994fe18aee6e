//! What the front desk asks of two limiters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::sealed::Sealed;
use super::super::{Ask, Handle, InProcess, Limiter, OwnedLimiter, Queue};
use super::And;
use super::grant::AndGrant;
use super::place::Passing;
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe};
use crate::part::Part;
#[cfg(feature = "metrics")]
use crate::policy::lowest;
use crate::policy::{Limit, Quota};
use crate::stats::{Stats, Waits};
use crate::wait_queue::End;

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> And<A, B> {
    crate::limiter::methods_of_limiter!();
}

/// The counts of both; `left` grants of both were not taken.
fn counts(first: Stats, second: Stats, left: &AtomicU64) -> Stats {
    let mut both = first;
    both.add(second);
    both.granted = second.granted;
    both.given_up += left.load(Ordering::Relaxed);
    both
}

/// An error of one of the two.
fn of(index: usize) -> impl FnOnce(Error) -> Error {
    move |error| error.in_part(Part::new(index, 2))
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Sealed for And<A, B> {}

impl<A, B> InProcess for And<A, B>
where
    A: OwnedLimiter + InProcess,
    B: OwnedLimiter<Cost = A::Cost> + InProcess,
{
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Queue for And<A, B> {
    type Cost = A::Cost;
    type Grant = AndGrant<A::Grant, B::Grant>;
    crate::limiter::queue_of_stages!(Passing<A, B>);
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Limiter for And<A, B> {
    const IS_REMOTE: bool = A::IS_REMOTE || B::IS_REMOTE;

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.first.pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        self.first.resume().await
    }

    async fn reset(&self) -> Result<(), Error> {
        self.first.reset().await
    }

    async fn shrink_to(&self, remaining: A::Cost) -> Result<Self::Grant, Error> {
        Ok(AndGrant::of_first(self.first.shrink_to(remaining).await?))
    }

    async fn would_wait(&self, n: A::Cost) -> Result<Option<Duration>, Error> {
        let first = self.first.would_wait(n).await.map_err(of(0))?;
        let second = self.second.would_wait(n).await.map_err(of(1))?;
        Ok(first.zip(second).map(|(first, second)| first.max(second)))
    }

    async fn quota(&self) -> Result<Quota<A::Cost>, Error> {
        Ok(self.first.quota().await?.and(self.second.quota().await?))
    }

    async fn limits(&self, cost: A::Cost) -> Result<Vec<Limit<A::Cost>>, Error> {
        let mut limits = self.first.limits(cost).await?;
        limits.extend(self.second.limits(cost).await?);
        Ok(limits)
    }

    fn end(&self, end: End<'_>) -> bool {
        self.first.end(end) || matches!(end, End::IsClosed) && self.second.end(end)
    }

    fn queue_len(&self) -> usize {
        self.first.queue_len() + self.second.queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.first.queued_permits().saturating_add(self.second.queued_permits())
    }

    fn stats(&self) -> Stats {
        counts(self.first.stats(), self.second.stats(), &self.left)
    }

    fn waits(&self) -> Waits {
        self.first.waits().and(&self.second.waits())
    }

    fn clock(&self) -> &Clock {
        self.first.clock()
    }

    fn name(&self) -> Option<&str> {
        self.first.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        let (first, second) = (self.first.observe(), self.second.observe());
        let left = self.left.clone();
        Box::new(move || {
            let (first, second) = (first(), second());
            Observation {
                stats: counts(first.stats, second.stats, &left),
                waits: first.waits.and(&second.waits),
                waiting: first.waiting + second.waiting,
                rate: lowest([first.rate, second.rate]),
                permits: first.permits.into_iter().chain(second.permits).min(),
                redis: match (first.redis, second.redis) {
                    (Some(one), Some(other)) => Some([0, 1, 2].map(|at| one[at] + other[at])),
                    (one, other) => one.or(other),
                },
                is_last: first.is_last || second.is_last,
            }
        })
    }
}
