//! A limiter around others. Its callers pass several queues, one after the other, and go on when they are polled.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::sealed::Sealed;
use super::{Acquire, Ask, Granted, Queue};
use crate::error::Error;
use crate::policy::Cost;

/// A limiter around others: its callers wait at these.
pub trait Around: Sealed + Clone + Send + Sync + 'static {
    /// See [`Queue::Cost`].
    type Cost: Cost;

    /// See [`Queue::Grant`].
    type Grant: Granted<Cost = Self::Cost> + 'static;

    #[doc(hidden)]
    type Caller: Stages<Self::Grant>;

    /// A caller that has not asked yet.
    #[doc(hidden)]
    fn caller(&self, ask: &Ask<Self::Cost>) -> Self::Caller;
}

/// A caller on its way through several queues: a future of its grant.
pub trait Stages<G>: Future<Output = Result<G, Error>> + Unpin + Send + Sync + 'static {
    /// Joins the queue, and waits only until the place is known.
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// The time until its grant, as far as it has come.
    fn delay(&self) -> Duration;
}

/// Where a caller stands.
// A box would be an allocation for each call, also for those that need not wait.
#[allow(clippy::large_enum_variant)]
#[derive(Default)]
pub enum StagesPlace<C> {
    #[default]
    Outside,
    Passing(C),
    Over,
}

impl<L: Around> Queue for L {
    type Cost = L::Cost;
    type Grant = L::Grant;
    type Place = StagesPlace<L::Caller>;
    type Owned = L;

    #[inline]
    fn poll_acquire(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut StagesPlace<L::Caller>,
        context: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, Error>> {
        if matches!(place, StagesPlace::Outside) {
            *place = StagesPlace::Passing(limiter.caller(ask));
        }
        let StagesPlace::Passing(caller) = place else {
            panic!("`Acquire` polled after it was ready")
        };
        let polled = Pin::new(caller).poll(context);
        if polled.is_ready() {
            *place = StagesPlace::Over;
        }
        polled
    }

    fn poll_enter(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut StagesPlace<L::Caller>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut caller = match mem::replace(place, StagesPlace::Over) {
            StagesPlace::Outside => limiter.caller(ask),
            StagesPlace::Passing(caller) => caller,
            StagesPlace::Over => return Poll::Ready(Ok(())),
        };
        let entered = caller.poll_enter(context);
        if !matches!(entered, Poll::Ready(Err(_))) {
            *place = StagesPlace::Passing(caller);
        }
        entered
    }

    fn leave(_: &L, _: &Ask<L::Cost>, place: &mut StagesPlace<L::Caller>) {
        *place = StagesPlace::Over;
    }

    fn delay(_: &L, place: &StagesPlace<L::Caller>) -> Duration {
        if let StagesPlace::Passing(caller) = place { caller.delay() } else { Duration::ZERO }
    }

    fn into_owned(limiter: &L, ask: &Ask<L::Cost>, place: StagesPlace<L::Caller>) -> Acquire<L> {
        Acquire::at(limiter.clone(), *ask, place)
    }
}

impl<C> fmt::Debug for StagesPlace<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "outside",
            Self::Passing(_) => "waiting",
            Self::Over => "over",
        })
    }
}
