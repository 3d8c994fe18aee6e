//! The way of a caller through the queues of two limiters, and what else is asked of both.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::super::sealed::Sealed;
use super::super::{Acquire, Around, Ask, Granted, InProcess, Limiter, OwnedLimiter, Stages};
use super::And;
use super::grant::AndGrant;
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe};
use crate::part::Part;
use crate::policy::{Limit, Quota};
use crate::stats::{Stats, Waits};
use crate::units::Nanos;
use crate::unwinding::in_drop;
use crate::wait_queue::End;

/// A grant whose caller still waits for something else. Dropped, it goes back.
struct Kept<G: Granted>(Option<G>);

impl<G: Granted> Kept<G> {
    fn new(grant: G) -> Self {
        Self(Some(grant))
    }

    fn into_grant(mut self) -> G {
        self.0.take().unwrap_or_else(|| unreachable!("taken here only"))
    }
}

impl<G: Granted> Drop for Kept<G> {
    fn drop(&mut self) {
        if let Some(grant) = self.0.take() {
            in_drop(|| grant.refund());
        }
    }
}

/// A caller on its way through both queues.
#[allow(missing_debug_implementations)] // its place is shown
pub struct Passing<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> {
    and: And<A, B>,
    ask: Ask<A::Cost>,
    deadline: Option<Nanos>,
    stage: Stage<A, B>,
}

enum Stage<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> {
    AtFirst(Acquire<A>),
    AtSecond(Kept<A::Grant>, Acquire<B>),
    Over,
}

// No field is ever pinned.
impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Unpin for Passing<A, B> {}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Passing<A, B> {
    /// Joins the queue of the second limiter with its next poll.
    fn pass(&mut self, granted: A::Grant) {
        let And { first, second, .. } = &self.and;
        let max_wait = self.deadline.map(|deadline| deadline.since(first.clock().now()));
        let acquire = Acquire::new(second.clone(), Ask { max_wait, ..self.ask });
        self.stage = Stage::AtSecond(Kept::new(granted), acquire);
    }

    /// What was granted before goes back first: the caller may ask again at once.
    fn refused<T>(&mut self, index: usize, error: Error) -> Poll<Result<T, Error>> {
        self.stage = Stage::Over;
        Poll::Ready(Err(error.in_part(Part::new(index, 2))))
    }
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Future for Passing<A, B> {
    type Output = Result<AndGrant<A::Grant, B::Grant>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::AtFirst(acquire) = &mut self.stage {
            match ready!(Pin::new(acquire).poll(context)) {
                Ok(granted) => self.pass(granted),
                Err(error) => return self.refused(0, error),
            }
        }
        let Stage::AtSecond(_, acquire) = &mut self.stage else {
            panic!("`Acquire` polled after it was ready")
        };
        let second = match ready!(Pin::new(acquire).poll(context)) {
            Ok(granted) => granted,
            Err(error) => return self.refused(1, error),
        };
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::AtSecond(first, _) => {
                let left = Arc::clone(&self.and.left);
                Poll::Ready(Ok(AndGrant::new(first.into_grant(), second, left)))
            }
            _ => unreachable!("it waited there"),
        }
    }
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Stages<AndGrant<A::Grant, B::Grant>>
    for Passing<A, B>
{
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::AtFirst(acquire) = &mut self.stage {
            if let Err(error) = ready!(acquire.poll_enter(context)) {
                return self.refused(0, error);
            }
            if !acquire.delay().is_zero() {
                return Poll::Ready(Ok(()));
            }
            match Pin::new(acquire).poll(context) {
                Poll::Ready(Ok(granted)) => self.pass(granted),
                Poll::Ready(Err(error)) => return self.refused(0, error),
                Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
        let Stage::AtSecond(_, acquire) = &mut self.stage else { return Poll::Ready(Ok(())) };
        match ready!(acquire.poll_enter(context)) {
            Err(error) => self.refused(1, error),
            Ok(()) => Poll::Ready(Ok(())),
        }
    }

    fn delay(&self) -> Duration {
        match &self.stage {
            Stage::AtFirst(acquire) => acquire.delay(),
            Stage::AtSecond(_, acquire) => acquire.delay(),
            Stage::Over => Duration::ZERO,
        }
    }

    fn needs_driver(&self) -> bool {
        true
    }

    // A clock that skips waits would skip this one here, and not when the caller waits.
    fn needs_driver_once(&self, has_entered: bool) -> bool {
        has_entered && !self.and.first.clock().advances_by_itself()
    }
}

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

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Around for And<A, B> {
    type Cost = A::Cost;
    type Grant = AndGrant<A::Grant, B::Grant>;
    type Caller = Passing<A, B>;

    fn caller(&self, ask: &Ask<A::Cost>) -> Passing<A, B> {
        let now = self.first.clock().now();
        let deadline = ask.max_wait.map(|max_wait| now.saturating_add(max_wait));
        let stage = Stage::AtFirst(Acquire::new(self.first.clone(), *ask));
        Passing { and: self.clone(), ask: *ask, deadline, stage }
    }

    fn taken(grant: Self::Grant) -> Self::Grant {
        grant.taken()
    }
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Limiter for And<A, B> {
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.first.pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        self.first.resume().await
    }

    async fn reset(&self) -> Result<(), Error> {
        self.first.reset().await
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
                rate: first.rate.into_iter().chain(second.rate).min(),
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
