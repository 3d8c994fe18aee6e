//! The way of a caller through the queues of two limiters, and what else is asked of both.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::super::sealed::Sealed;
use super::super::{Acquire, Around, Ask, Granted, Limiter, Queue, Stages};
#[cfg(any(feature = "feedback", feature = "tower"))]
use super::super::{Hearing, Reply, both};
use super::And;
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe};
use crate::part::Part;
use crate::policy::{Limit, Quota};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::unwinding::in_drop;
use crate::wait_queue::End;

/// A caller of two limiters: it waits at the first, then at the second.
pub(crate) struct InTurn<A: Limiter + 'static, B: Limiter + 'static> {
    second: B,
    ask: Ask<B::Cost>,
    deadline: Option<Nanos>,
    stage: Stage<A, B>,
}

enum Stage<A: Limiter + 'static, B: Limiter + 'static> {
    AtFirst(Acquire<A>),
    AtSecond(Kept<A::Grant>, Acquire<B>),
}

/// What the first limiter has granted to a caller that waits at the second: refunded if it leaves.
struct Kept<G: Granted>(Option<G>);

impl<G: Granted> Drop for Kept<G> {
    fn drop(&mut self) {
        if let Some(granted) = self.0.take() {
            in_drop(|| granted.refund());
        }
    }
}

/// An error, and of which limiter it is.
type OfOne = (usize, Error);

/// What both have granted.
type Grants<A, B> = (<A as Queue>::Grant, <B as Queue>::Grant);

impl<A: Limiter + 'static, B: Limiter + 'static> InTurn<A, B> {
    pub(crate) fn new(first: A, second: B, at_first: Ask<A::Cost>, ask: Ask<B::Cost>) -> Self {
        // By the clock that `ask` reads: each clock has an origin of its own.
        let until = |max_wait| second.clock().now().saturating_add(max_wait);
        let deadline = ask.max_wait.map(until);
        Self { second, ask, deadline, stage: Stage::AtFirst(Acquire::new(first, at_first)) }
    }

    /// What it asks for now: a part of its timeout is over.
    pub(crate) fn ask(&self) -> Ask<B::Cost> {
        let left = |deadline: Nanos| deadline.since(self.second.clock().now());
        Ask { max_wait: self.deadline.map(left), ..self.ask }
    }

    /// Waits at the first limiter, and takes what it grants to the second.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OfOne>> {
        if let Stage::AtFirst(acquire) = &mut self.stage {
            let granted = ready!(Pin::new(acquire).poll(context)).map_err(|error| (0, error))?;
            let acquire = Acquire::new(self.second.clone(), self.ask());
            self.stage = Stage::AtSecond(Kept(Some(granted)), acquire);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Grants<A, B>, OfOne>> {
        ready!(self.poll_first(context))?;
        let Stage::AtSecond(kept, acquire) = &mut self.stage else { unreachable!("just passed") };
        let second = ready!(Pin::new(acquire).poll(context));
        let Some(first) = kept.0.take() else { unreachable!("the second was not ready before") };
        Poll::Ready(match second {
            Ok(second) => Ok((first, second)),
            Err(error) => {
                // Before anyone can learn that this caller was refused.
                first.refund();
                Err((1, error))
            }
        })
    }

    /// As [`Queue::poll_enter`].
    pub(crate) fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OfOne>> {
        if let Stage::AtFirst(acquire) = &mut self.stage {
            ready!(acquire.poll_enter(context)).map_err(|error| (0, error))?;
            // What has to wait at the first stands there until it is awaited.
            if !acquire.delay().is_zero() || self.poll_first(context)?.is_pending() {
                return Poll::Ready(Ok(()));
            }
        }
        let Stage::AtSecond(_, acquire) = &mut self.stage else { unreachable!("just passed") };
        acquire.poll_enter(context).map_err(|error| (1, error))
    }

    /// As [`Queue::delay`].
    pub(crate) fn delay(&self) -> Duration {
        match &self.stage {
            Stage::AtFirst(acquire) => acquire.delay(),
            Stage::AtSecond(_, acquire) => acquire.delay(),
        }
    }
}

fn in_part((index, error): OfOne) -> Error {
    error.in_part(Part::new(index, 2))
}

impl<A: Limiter + 'static, B: Limiter<Cost = A::Cost> + 'static>
    Stages<AndGrant<A::Grant, B::Grant>> for InTurn<A, B>
{
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<AndGrant<A::Grant, B::Grant>, Error>> {
        let (first, second) = ready!(self.poll(context)).map_err(in_part)?;
        Poll::Ready(Ok(AndGrant { first, second }))
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_enter(context).map_err(in_part)
    }

    fn delay(&self) -> Duration {
        self.delay()
    }
}

impl<A: Limiter + 'static, B: Limiter<Cost = A::Cost> + 'static> Sealed for And<A, B> {}

impl<A: Limiter + 'static, B: Limiter<Cost = A::Cost> + 'static> Around for And<A, B> {
    type Cost = A::Cost;
    type Grant = AndGrant<A::Grant, B::Grant>;
    type Caller = InTurn<A, B>;

    fn caller(&self, ask: &Ask<A::Cost>) -> InTurn<A, B> {
        InTurn::new(self.first.clone(), self.second.clone(), *ask, *ask)
    }
}

impl<A: Limiter + 'static, B: Limiter<Cost = A::Cost> + 'static> Limiter for And<A, B> {
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
        let first = self.first.would_wait(n).await.map_err(|error| in_part((0, error)))?;
        let second = self.second.would_wait(n).await.map_err(|error| in_part((1, error)))?;
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
        self.first.stats().and(self.second.stats())
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
        Box::new(move || {
            let (first, second) = (first(), second());
            Observation {
                stats: first.stats.and(second.stats),
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

/// Permits granted by both limiters.
#[derive(Debug)]
pub(crate) struct AndGrant<A, B> {
    first: A,
    second: B,
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

    /// An error of the first is returned at once.
    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.first.poll_settled(context))?;
        self.second.poll_settled(context)
    }

    fn settle_on_drop(&mut self, actual: A::Cost) {
        self.first.settle_on_drop(actual);
        self.second.settle_on_drop(actual);
    }

    fn give_back(&mut self) {
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

    #[cfg(feature = "reqwest")]
    fn wants_body(&self, status: http::StatusCode, headers: &http::HeaderMap) -> bool {
        self.first.wants_body(status, headers) || self.second.wants_body(status, headers)
    }
}
