//! The two queues of a [`Feedback`]: the gate of the server's quota, then the limiter. A caller that has passed the gate
//! goes back to it if the gate closes before its call is sent.

#[cfg(feature = "metrics")]
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::call::Call;
use super::gate::Gate;
use super::observer::Feedback;
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::and::pass::InTurn;
use crate::limiter::{Around, Ask, Granted, Limiter, Stages, sealed::Sealed};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Limit, Quota};
use crate::rate_limiter::RateLimiter;
use crate::stats::Stats;
use crate::wait_queue::End;

/// A caller in one of the two queues.
#[allow(missing_debug_implementations)] // no program holds one
pub struct Passing<L: Limiter + 'static> {
    feedback: Feedback<L>,
    /// The time that it waited before the gate closed again.
    waited: Duration,
    turn: InTurn<RateLimiter<Gate>, L>,
}

/// An error of the gate is the server's.
fn of_both((_, error): (usize, Error)) -> Error {
    error
}

impl<L: Limiter + 'static> Stages<Call<L>> for Passing<L> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Call<L>, Error>> {
        loop {
            let (place, grant) = ready!(self.turn.poll(context)).map_err(of_both)?;
            let before = self.waited.saturating_add(place.waited());
            if let Some(sent) = self.feedback.shared.send(&place, true) {
                let (feedback, grant, place) = (self.feedback.clone(), Some(grant), Some(place));
                return Poll::Ready(Ok(Call { feedback, grant, before, place, sent }));
            }
            // An answer to another call has closed the gate meanwhile.
            self.waited = before.saturating_add(grant.waited());
            grant.refund();
            place.refund();
            self.turn = self.feedback.turn(self.turn.ask());
        }
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.turn.poll_enter(context).map_err(of_both)
    }

    fn delay(&self) -> Duration {
        self.turn.delay()
    }
}

impl<L: Limiter + 'static> Feedback<L> {
    /// The way of a caller: the gate, then the limiter.
    fn turn(&self, ask: Ask<L::Cost>) -> InTurn<RateLimiter<Gate>, L> {
        let Ask { max_wait, ahead, tenant, .. } = ask;
        let at_gate = Ask { cost: self.shared.options.units(ask.cost), max_wait, ahead, tenant };
        InTurn::new(self.shared.gate.clone(), self.limiter().clone(), at_gate, ask)
    }
}

impl<L: Limiter + 'static> Sealed for Feedback<L> {}

impl<L: Limiter + 'static> Around for Feedback<L> {
    type Cost = L::Cost;
    type Grant = Call<L>;
    type Caller = Passing<L>;

    fn caller(&self, ask: &Ask<L::Cost>) -> Passing<L> {
        Passing { feedback: self.clone(), waited: Duration::ZERO, turn: self.turn(*ask) }
    }
}

impl<L: Limiter + 'static> Limiter for Feedback<L> {
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
        self.limiter().stats().behind(self.shared.gate.stats())
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
        let rate = move || shared.upgrade()?.state.lock().learner.rate();
        Box::new(move || {
            let (gate, mut seen) = (gate(), limiter());
            seen.stats = seen.stats.behind(gate.stats);
            seen.waiting += gate.waiting;
            seen.rate = seen.rate.into_iter().chain(rate()).min();
            seen.is_last |= gate.is_last;
            seen
        })
    }
}
