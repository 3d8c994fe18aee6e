//! The way of a caller through the queues of two limiters.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::super::{Acquire, Ask, Kept, OwnedLimiter, Passage, Stages};
use super::And;
use super::grant::AndGrant;
use crate::clock::Clock;
use crate::error::Error;
use crate::part::Part;
use crate::units::Nanos;

/// A caller on its way through both queues.
#[allow(missing_debug_implementations)] // its place is shown
pub struct Passing<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> {
    second: B,
    ask: Ask<A::Cost>,
    clock: Clock,
    deadline: Option<Nanos>,
    left: Arc<AtomicU64>,
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
    pub(super) fn new(and: &And<A, B>, ask: &Ask<A::Cost>) -> Self {
        let clock = and.first.clock().clone();
        let deadline = ask.max_wait.map(|max_wait| clock.now().saturating_add(max_wait));
        let (second, left) = (and.second.clone(), Arc::clone(&and.left));
        let stage = Stage::AtFirst(Acquire::new(and.first.clone(), *ask));
        Self { second, ask: *ask, clock, deadline, left, stage }
    }

    /// Joins the queue of the second limiter with its next poll.
    fn pass(&mut self, granted: A::Grant) {
        let left = self.deadline.map(|deadline| deadline.since(self.clock.now()));
        let acquire = Acquire::new(self.second.clone(), Ask { max_wait: left, ..self.ask });
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
                let left = Arc::clone(&self.left);
                Poll::Ready(Ok(AndGrant::new(first.into_grant(), second, left)))
            }
            _ => unreachable!("it waited there"),
        }
    }
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Passage for Passing<A, B> {
    type Grant = AndGrant<A::Grant, B::Grant>;
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Stages for Passing<A, B> {
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
        has_entered && !self.clock.advances_by_itself()
    }

    fn taken(grant: Self::Grant) -> Self::Grant {
        grant.taken()
    }
}
