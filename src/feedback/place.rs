//! The two queues of a [`Feedback`]: the gate of the server's quota, then the limiter. A caller that has passed the gate
//! goes back to it if the gate closes before its call is sent.

use std::pin::Pin;
#[cfg(feature = "metrics")]
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::call::Call;
use super::gate::Gate;
use super::observer::Feedback;
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{
    Acquire, Around, Ask, Granted, InProcess, Limiter, OwnedLimiter, Stages, sealed::Sealed,
};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Quota};
use crate::rate_limiter::{Grant, RateLimiter};
use crate::stats::{Stats, Waits};
use crate::units::Nanos;
use crate::wait_queue::End;

/// A caller in one of the two queues.
#[allow(missing_debug_implementations)] // no program holds one
pub struct Passing<L: OwnedLimiter> {
    feedback: Feedback<L>,
    ask: Ask<L::Cost>,
    deadline: Option<Nanos>,
    /// The time that it waited before the gate closed again.
    waited: Duration,
    at_gate: Acquire<RateLimiter<Gate>>,
    /// In the queue of the limiter, with its place in flight at the gate.
    passed: Option<(Grant<'static, Gate>, Acquire<L>)>,
}

impl<L: OwnedLimiter> Passing<L> {
    /// The rest of the timeout.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.feedback.limiter().clock().now()))
    }

    /// Waits at the gate. Returns the caller's place at the limiter.
    fn poll_gate(&mut self, context: &mut Context<'_>) -> Poll<Result<&mut Acquire<L>, Error>> {
        if self.passed.is_none() {
            let at_gate = ready!(Pin::new(&mut self.at_gate).poll(context))?;
            let ask = Ask { max_wait: self.left(), ..self.ask };
            let acquire = Acquire::new(self.feedback.limiter().clone(), ask);
            self.passed = Some((at_gate, acquire));
        }
        let passed = self.passed.as_mut().map(|(_, acquire)| acquire);
        Poll::Ready(Ok(passed.unwrap_or_else(|| unreachable!("just passed"))))
    }
}

impl<L: OwnedLimiter> Stages<Call<L>> for Passing<L> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Call<L>, Error>> {
        loop {
            let acquire = ready!(self.poll_gate(context))?;
            let granted = ready!(Pin::new(acquire).poll(context));
            let Some((at_gate, _)) = self.passed.take() else { unreachable!("just passed") };
            let grant = granted?;
            let before = self.waited.saturating_add(at_gate.waited());
            // A call for nothing was not charged.
            let closed = || self.feedback.shared.state.lock().closed;
            if at_gate.receipt().is_none_or(|charged| *charged == Some(closed())) {
                return Poll::Ready(Ok(self.feedback.call(Some(grant), at_gate, before)));
            }
            // An answer to another call has closed the gate meanwhile.
            self.waited = before.saturating_add(grant.waited());
            grant.refund();
            at_gate.refund();
            self.at_gate = self.feedback.at_gate(&self.ask, self.left());
        }
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.passed.is_none() {
            ready!(self.at_gate.poll_enter(context))?;
            if !self.at_gate.delay().is_zero() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(passed) = self.poll_gate(context) {
                passed?;
            }
        }
        match &mut self.passed {
            Some((_, acquire)) => acquire.poll_enter(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn delay(&self) -> Duration {
        self.passed.as_ref().map_or_else(|| self.at_gate.delay(), |(_, acquire)| acquire.delay())
    }
}

impl<L: OwnedLimiter> Feedback<L> {
    fn at_gate(
        &self,
        ask: &Ask<L::Cost>,
        max_wait: Option<Duration>,
    ) -> Acquire<RateLimiter<Gate>> {
        let cost = self.shared.options.units(ask.cost);
        let Ask { ahead, tenant, .. } = *ask;
        Acquire::new(self.shared.gate.clone(), Ask { cost, max_wait, ahead, tenant })
    }
}

impl<L: OwnedLimiter> Sealed for Feedback<L> {}

impl<L: OwnedLimiter> Around for Feedback<L> {
    type Cost = L::Cost;
    type Grant = Call<L>;
    type Caller = Passing<L>;

    fn caller(&self, ask: &Ask<L::Cost>) -> Passing<L> {
        let after = |max_wait| self.limiter().clock().now().saturating_add(max_wait);
        let deadline = ask.max_wait.map(after);
        let at_gate = self.at_gate(ask, ask.max_wait);
        let (feedback, waited) = (self.clone(), Duration::ZERO);
        Passing { feedback, ask: *ask, deadline, waited, at_gate, passed: None }
    }
}

impl<L: OwnedLimiter + InProcess> InProcess for Feedback<L> {}

impl<L: OwnedLimiter> Limiter for Feedback<L> {
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.limiter().pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        Feedback::resume(self).await
    }

    async fn quota(&self) -> Result<Quota<L::Cost>, Error> {
        self.limiter().quota().await
    }

    async fn limits(&self, cost: L::Cost) -> Result<Vec<Limit<L::Cost>>, Error> {
        self.limiter().limits(cost).await
    }

    async fn would_wait(&self, n: L::Cost) -> Result<Option<Duration>, Error> {
        let at_gate = self.shared.gate.would_wait(self.shared.options.units(n))?;
        let at_limiter = self.limiter().would_wait(n).await?;
        Ok(at_gate.zip(at_limiter).map(|(gate, limiter)| gate.max(limiter)))
    }

    async fn reset(&self) -> Result<(), Error> {
        self.limiter().reset().await
    }

    fn end(&self, end: End<'_>) -> bool {
        let (gate, limiter) = (&self.shared.gate, self.limiter());
        match end {
            End::Close => gate.end(end) && limiter.end(end),
            // The limiter goes on for those that have passed the gate.
            End::Serve => gate.end(end),
            End::IsClosed => gate.end(end) || limiter.end(end),
            End::IsDrained(_) => gate.end(end) && limiter.end(End::Serve) && limiter.end(end),
        }
    }

    /// Includes the callers at the gate.
    fn queue_len(&self) -> usize {
        self.shared.gate.queue_len() + self.limiter().queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.limiter().queued_permits()
    }

    /// Includes callers that were refused or left at the gate.
    fn stats(&self) -> Stats {
        with_gate(self.limiter().stats(), self.shared.gate.stats())
    }

    /// A caller that waited for the server and then for the limiter counts twice.
    fn waits(&self) -> Waits {
        self.limiter().waits().with(&self.shared.gate.waits())
    }

    fn clock(&self) -> &Clock {
        self.limiter().clock()
    }

    fn name(&self) -> Option<&str> {
        self.limiter().name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        let (gate, limiter) = (self.shared.gate.observe(), self.limiter().observe());
        let shared = Arc::downgrade(&self.shared);
        let rate = move || shared.upgrade()?.state.lock().rate();
        Box::new(move || {
            let (gate, mut seen) = (gate(), limiter());
            seen.stats = with_gate(seen.stats, gate.stats);
            seen.waits = seen.waits.with(&gate.waits);
            seen.waiting += gate.waiting;
            seen.rate = seen.rate.into_iter().chain(rate()).min();
            seen.is_last |= gate.is_last;
            seen
        })
    }
}

fn with_gate(mut stats: Stats, gate: Stats) -> Stats {
    stats.refused += gate.refused;
    stats.given_up += gate.given_up;
    stats.waited = stats.waited.saturating_add(gate.waited);
    stats
}
