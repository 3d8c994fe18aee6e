//! The two queues of a [`Feedback`]: the gate of the server's quota, then the limiter. A caller that has passed the gate
//! goes back to it if the gate closes before its call is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::call::Call;
use super::gate::Gate;
use super::observer::{Feedback, cost};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{
    Acquire, Around, Ask, Granted, Hearing, InProcess, Limiter, OwnedLimiter, Reply, Stages, both,
    sealed::Sealed,
};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::part::Part;
use crate::policy::{Limit, Quota};
use crate::rate_limiter::{Grant, RateLimiter};
use crate::stats::{Stats, Waits};
use crate::units::Nanos;
use crate::wait_queue::End;

/// A caller in one of the two queues.
#[allow(missing_debug_implementations)] // its place is shown
pub struct Passing<L: OwnedLimiter> {
    feedback: Feedback<L>,
    ask: Ask<L::Cost>,
    deadline: Option<Nanos>,
    /// The time that it waited before the gate closed again.
    waited: Duration,
    stage: Stage<L>,
}

enum Stage<L: OwnedLimiter> {
    AtGate(Acquire<RateLimiter<Gate>>),
    /// With its place in flight at the gate.
    AtLimiter(Option<Grant<'static, Gate>>, Acquire<L>),
}

// No field is ever pinned.
impl<L: OwnedLimiter> Unpin for Passing<L> {}

impl<L: OwnedLimiter> Passing<L> {
    fn new(feedback: &Feedback<L>, ask: &Ask<L::Cost>) -> Self {
        let now = feedback.limiter().clock().now();
        let deadline = ask.max_wait.map(|max_wait| now.saturating_add(max_wait));
        let stage = feedback.at_gate(ask, ask.max_wait);
        Self { feedback: feedback.clone(), ask: *ask, deadline, waited: Duration::ZERO, stage }
    }

    /// The rest of the timeout.
    fn left(&self) -> Option<Duration> {
        let now = self.feedback.limiter().clock().now();
        self.deadline.map(|deadline| deadline.since(now))
    }

    /// Waits at the gate.
    fn poll_gate(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::AtGate(acquire) = &mut self.stage {
            let at_gate = ready!(Pin::new(acquire).poll(context))?;
            let ask = Ask { max_wait: self.left(), ..self.ask };
            let acquire = Acquire::new(self.feedback.limiter().clone(), ask);
            self.stage = Stage::AtLimiter(Some(at_gate), acquire);
        }
        Poll::Ready(Ok(()))
    }
}

impl<L: OwnedLimiter> Future for Passing<L> {
    type Output = Result<Call<L>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            ready!(self.poll_gate(context))?;
            let Stage::AtLimiter(at_gate, acquire) = &mut self.stage else {
                unreachable!("just passed")
            };
            let granted = ready!(Pin::new(acquire).poll(context));
            let at_gate = at_gate.take().unwrap_or_else(|| unreachable!("taken here only"));
            let grant = granted?;
            let before = self.waited.saturating_add(at_gate.waited());
            // A call for nothing was not charged.
            if at_gate.receipt().is_none_or(|charged| *charged == Some(self.feedback.closed())) {
                let call = self.feedback.call(self.ask.cost, Some(grant), at_gate, before);
                return Poll::Ready(Ok(call));
            }
            // An answer to another call has closed the gate meanwhile.
            self.waited = before.saturating_add(grant.waited());
            grant.refund();
            at_gate.refund();
            self.stage = self.feedback.at_gate(&self.ask, self.left());
        }
    }
}

impl<L: OwnedLimiter> Stages<Call<L>> for Passing<L> {
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::AtGate(acquire) = &mut self.stage {
            ready!(acquire.poll_enter(context))?;
            if !acquire.delay().is_zero() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(passed) = self.poll_gate(context) {
                passed?;
            }
        }
        match &mut self.stage {
            Stage::AtLimiter(.., acquire) => acquire.poll_enter(context),
            Stage::AtGate(_) => Poll::Ready(Ok(())),
        }
    }

    fn delay(&self) -> Duration {
        match &self.stage {
            Stage::AtGate(acquire) => acquire.delay(),
            Stage::AtLimiter(.., acquire) => acquire.delay(),
        }
    }
}

impl<L: OwnedLimiter> Feedback<L> {
    fn at_gate(&self, ask: &Ask<L::Cost>, max_wait: Option<Duration>) -> Stage<L> {
        let Ask { cost: n, ahead, tenant, .. } = *ask;
        let ask = Ask { cost: cost(self.units(n)), max_wait, ahead, tenant };
        Stage::AtGate(Acquire::new(self.gate().clone(), ask))
    }
}

impl<L: OwnedLimiter> Sealed for Feedback<L> {}

impl<L: OwnedLimiter> Around for Feedback<L> {
    type Cost = L::Cost;
    type Grant = Call<L>;
    type Caller = Passing<L>;

    fn caller(&self, ask: &Ask<L::Cost>) -> Passing<L> {
        Passing::new(self, ask)
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
        let at_gate = self.gate().would_wait(cost(self.units(n)))?;
        let at_limiter = self.limiter().would_wait(n).await?;
        Ok(at_gate.zip(at_limiter).map(|(gate, limiter)| gate.max(limiter)))
    }

    async fn reset(&self) -> Result<(), Error> {
        self.limiter().reset().await
    }

    fn end(&self, end: End<'_>) -> bool {
        let (gate, limiter) = (self.gate(), self.limiter());
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
        self.gate().queue_len() + self.limiter().queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.limiter().queued_permits()
    }

    /// Includes callers that were refused or left at the gate.
    fn stats(&self) -> Stats {
        with_gate(self.limiter().stats(), self.gate().stats())
    }

    /// A caller that waited for the server and then for the limiter counts twice.
    fn waits(&self) -> Waits {
        self.limiter().waits().with(&self.gate().waits())
    }

    fn clock(&self) -> &Clock {
        self.limiter().clock()
    }

    fn name(&self) -> Option<&str> {
        self.limiter().name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        let (gate, limiter) = (self.gate().observe(), self.limiter().observe());
        let rate = self.observed_rate();
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

impl<L: OwnedLimiter> Sealed for Call<L> {}

impl<L: OwnedLimiter> Granted for Call<L> {
    type Cost = L::Cost;

    fn cost(&self) -> L::Cost {
        self.granted().map_or_else(L::Cost::default, Granted::cost)
    }

    fn waited(&self) -> Duration {
        self.waited_in_all()
    }

    fn limited_by(&self) -> Option<Part> {
        self.granted().and_then(Granted::limited_by).or_else(|| self.held_by_server())
    }

    fn send_settlement(&mut self, actual: L::Cost) -> Result<(), Error> {
        self.grant().map_or(Ok(()), |grant| grant.send_settlement(actual))
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.grant().map_or(Poll::Ready(Ok(())), |grant| grant.poll_settled(context))
    }

    fn settle_on_drop(&mut self, actual: L::Cost) {
        if let Some(grant) = self.grant() {
            grant.settle_on_drop(actual);
        }
    }

    fn give_back(&mut self) {
        self.refund_now();
    }

    fn holds_places(&self) -> bool {
        self.granted().is_some_and(Granted::holds_places)
    }

    // The limiter may learn as well.
    fn receive(&mut self, reply: Reply<'_>) -> Hearing {
        let own = match reply {
            Reply::Head(status, headers) => self.hear_head(status, headers),
            Reply::Body(trailers) => {
                self.hear_frame(trailers);
                None
            }
            Reply::Failure => {
                self.failed();
                None
            }
        };
        both(own, self.grant().and_then(|grant| grant.receive(reply)))
    }

    fn hears_body(&self) -> bool {
        self.head.is_some() || self.granted().is_some_and(Granted::hears_body)
    }
}
