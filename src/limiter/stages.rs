//! Where a caller with several queues before it stands.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Driven, Passage};
use crate::error::Error;

/// A caller on its way through several queues.
pub trait Stages: Passage + Sync {
    /// Joins the queue, and waits only until the place is known.
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// The time until its grant, as far as it has come.
    fn delay(&self) -> Duration;

    /// Whether it has to go on from where it waits without being polled.
    fn needs_driver(&self) -> bool;

    /// The same after [`poll_enter`](Self::poll_enter), whose caller may not poll until the [`delay`](Self::delay) is over.
    /// `has_entered`: whether the place is known.
    fn needs_driver_once(&self, has_entered: bool) -> bool;

    /// Its caller takes the grant.
    fn taken(grant: Self::Grant) -> Self::Grant {
        grant
    }
}

/// Where a caller stands. After a panic in a poll it is over: the caller has left.
pub struct StagesPlace<S: Passage>(Standing<S>);

// A box would be an allocation for each call, also for those that need not wait.
#[allow(clippy::large_enum_variant)]
enum Standing<S: Passage> {
    Outside,
    /// It goes on when it is polled.
    Polled(S),
    /// It goes on by itself.
    Driven(Driven<S>),
    Over,
}

impl<S: Stages> StagesPlace<S> {
    #[inline]
    pub(crate) fn poll(
        &mut self,
        start: impl FnOnce() -> S,
        context: &mut Context<'_>,
    ) -> Poll<Result<S::Grant, Error>> {
        // Nothing is moved out for a call that is new: most of them need not wait.
        let mut stages = if matches!(self.0, Standing::Outside) {
            self.0 = Standing::Over;
            start()
        } else {
            match mem::replace(&mut self.0, Standing::Over) {
                Standing::Polled(stages) => stages,
                Standing::Driven(driven) => return self.poll_driven(driven, context),
                _ => panic!("`Acquire` polled after it was ready"),
            }
        };
        if let Poll::Ready(outcome) = Pin::new(&mut stages).poll(context) {
            return Poll::Ready(outcome.map(S::taken));
        }
        if stages.needs_driver() {
            return self.poll_driven(Driven::new(stages), context);
        }
        self.0 = Standing::Polled(stages);
        Poll::Pending
    }

    fn poll_driven(
        &mut self,
        mut driven: Driven<S>,
        context: &mut Context<'_>,
    ) -> Poll<Result<S::Grant, Error>> {
        let polled = driven.poll(context);
        if polled.is_pending() {
            self.0 = Standing::Driven(driven);
        }
        polled.map_ok(S::taken)
    }

    pub(crate) fn poll_enter(
        &mut self,
        start: impl FnOnce() -> S,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut stages = match mem::replace(&mut self.0, Standing::Over) {
            Standing::Outside => start(),
            Standing::Polled(stages) => stages,
            entered => {
                self.0 = entered;
                return Poll::Ready(Ok(()));
            }
        };
        let polled = stages.poll_enter(context);
        if matches!(polled, Poll::Ready(Err(_))) {
            return polled;
        }
        if stages.needs_driver_once(polled.is_ready()) {
            self.0 = Standing::Driven(Driven::new(stages));
            return Poll::Ready(Ok(()));
        }
        self.0 = Standing::Polled(stages);
        polled
    }

    pub(crate) fn leave(&mut self) {
        self.0 = Standing::Over;
    }

    pub(crate) fn delay(&self) -> Duration {
        match &self.0 {
            Standing::Polled(stages) => stages.delay(),
            Standing::Driven(driven) => driven.look(S::delay).unwrap_or_default(),
            Standing::Outside | Standing::Over => Duration::ZERO,
        }
    }
}

impl<S: Passage> Default for StagesPlace<S> {
    fn default() -> Self {
        Self(Standing::Outside)
    }
}

impl<S: Passage> fmt::Debug for StagesPlace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Standing::Outside => "outside",
            Standing::Polled(_) | Standing::Driven(_) => "waiting",
            Standing::Over => "over",
        })
    }
}

/// Of an `impl Queue`: what a limiter whose callers pass several stages does with them.
macro_rules! queue_of_stages {
    ($stages:ty) => {
        type Handle = Option<Self>;
        type Place = crate::limiter::StagesPlace<$stages>;
        type Owned = Self;

        fn poll_acquire(
            limiter: &mut Self::Handle,
            ask: &Ask<Self::Cost>,
            place: &mut Self::Place,
            context: &mut Context<'_>,
        ) -> Poll<Result<Self::Grant, Error>> {
            place.poll(|| <$stages>::new(limiter.get(), ask), context)
        }

        fn poll_enter(
            limiter: &mut Self::Handle,
            ask: &Ask<Self::Cost>,
            place: &mut Self::Place,
            context: &mut Context<'_>,
        ) -> Poll<Result<(), Error>> {
            place.poll_enter(|| <$stages>::new(limiter.get(), ask), context)
        }

        fn leave(_: &Self::Handle, _: &Ask<Self::Cost>, place: &mut Self::Place) {
            place.leave();
        }

        fn delay(_: &Self::Handle, place: &Self::Place) -> Duration {
            place.delay()
        }

        fn into_owned(limiter: &mut Self::Handle, place: Self::Place) -> (Self, Self::Place) {
            (Handle::take(limiter), place)
        }
    };
}
pub(crate) use queue_of_stages;
