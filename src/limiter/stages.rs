//! A limiter around others, and where its callers stand.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::sealed::Sealed;
use super::{Acquire, Ask, Driven, Granted, Queue};
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

    /// The caller takes the grant.
    #[doc(hidden)]
    fn taken(grant: Self::Grant) -> Self::Grant {
        grant
    }
}

/// A caller on its way through several queues: a future of its grant.
pub trait Stages<G>: Future<Output = Result<G, Error>> + Unpin + Send + Sync + 'static {
    /// Joins the queue, and waits only until the place is known.
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// The time until its grant, as far as it has come.
    fn delay(&self) -> Duration;

    /// Whether it has to go on from where it waits without being polled.
    fn needs_driver(&self) -> bool {
        false
    }

    /// The same after [`poll_enter`](Self::poll_enter), whose caller may not poll until the [`delay`](Self::delay) is over.
    /// `has_entered`: whether the place is known.
    fn needs_driver_once(&self, _has_entered: bool) -> bool {
        false
    }
}

/// Where a caller stands. After a panic in a poll it is over: the caller has left.
// A box would be an allocation for each call, also for those that need not wait.
#[allow(clippy::large_enum_variant)]
#[derive(Default)]
pub enum StagesPlace<L: Around> {
    #[default]
    Outside,
    /// It goes on when it is polled.
    Polled(L::Caller),
    /// It goes on by itself.
    Driven(Driven<L::Caller, L::Grant>),
    Over,
}

impl<L: Around> StagesPlace<L> {
    fn drive(
        &mut self,
        mut driven: Driven<L::Caller, L::Grant>,
        context: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, Error>> {
        let polled = driven.poll(context);
        if polled.is_pending() {
            *self = Self::Driven(driven);
        }
        polled.map_ok(L::taken)
    }
}

impl<L: Around> Queue for L {
    type Cost = L::Cost;
    type Grant = L::Grant;
    type Place = StagesPlace<L>;
    type Owned = L;

    #[inline]
    fn poll_acquire(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut StagesPlace<L>,
        context: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, Error>> {
        // Nothing is moved out for a call that is new: most of them need not wait.
        let mut caller = if matches!(place, StagesPlace::Outside) {
            *place = StagesPlace::Over;
            limiter.caller(ask)
        } else {
            match mem::replace(place, StagesPlace::Over) {
                StagesPlace::Polled(caller) => caller,
                StagesPlace::Driven(driven) => return place.drive(driven, context),
                _ => panic!("`Acquire` polled after it was ready"),
            }
        };
        if let Poll::Ready(outcome) = Pin::new(&mut caller).poll(context) {
            return Poll::Ready(outcome.map(L::taken));
        }
        if caller.needs_driver() {
            return place.drive(Driven::new(caller), context);
        }
        *place = StagesPlace::Polled(caller);
        Poll::Pending
    }

    fn poll_enter(
        limiter: &L,
        ask: &Ask<L::Cost>,
        place: &mut StagesPlace<L>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut caller = match mem::replace(place, StagesPlace::Over) {
            StagesPlace::Outside => limiter.caller(ask),
            StagesPlace::Polled(caller) => caller,
            entered => {
                *place = entered;
                return Poll::Ready(Ok(()));
            }
        };
        let polled = caller.poll_enter(context);
        if matches!(polled, Poll::Ready(Err(_))) {
            return polled;
        }
        if caller.needs_driver_once(polled.is_ready()) {
            *place = StagesPlace::Driven(Driven::new(caller));
            return Poll::Ready(Ok(()));
        }
        *place = StagesPlace::Polled(caller);
        polled
    }

    fn leave(_: &L, _: &Ask<L::Cost>, place: &mut StagesPlace<L>) {
        *place = StagesPlace::Over;
    }

    fn delay(_: &L, place: &StagesPlace<L>) -> Duration {
        match place {
            StagesPlace::Polled(caller) => caller.delay(),
            StagesPlace::Driven(driven) => driven.look(Stages::delay).unwrap_or_default(),
            StagesPlace::Outside | StagesPlace::Over => Duration::ZERO,
        }
    }

    fn into_owned(limiter: &L, ask: &Ask<L::Cost>, place: StagesPlace<L>) -> Acquire<L> {
        Acquire::at(limiter.clone(), *ask, place)
    }
}

impl<L: Around> fmt::Debug for StagesPlace<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "outside",
            Self::Polled(_) | Self::Driven(_) => "waiting",
            Self::Over => "over",
        })
    }
}
