//! What a limiter does with a caller: all that the front desk needs of it.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use super::sealed::Sealed;
use super::{Ask, Granted, Handle};
use crate::error::Error;
use crate::policy::Cost;

/// What the callers of a [`Limiter`](crate::Limiter) ask for and get. The trait is sealed.
pub trait Queue: Sealed + Sized {
    /// The cost of a call: permits, unless the policy is a tuple.
    type Cost: Cost;

    /// The permits that a call gets.
    type Grant: Granted<Cost = Self::Cost>;

    /// How a caller keeps its limiter: one that a grant takes over is an `Option`.
    #[doc(hidden)]
    type Handle: Handle<Self>;

    /// Where a caller stands.
    #[doc(hidden)]
    type Place: Default + fmt::Debug + Send + Sync;

    /// The limiter in whose queue a reservation stands, without a borrow.
    #[doc(hidden)]
    type Owned: Queue<Cost = Self::Cost, Handle: Send + Sync> + 'static;

    /// Waits for the grant, which may take the limiter over, as a place may.
    #[doc(hidden)]
    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<Self::Cost>,
        place: &mut Self::Place,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Grant, Error>>;

    /// Joins the queue, and waits only until the place is known.
    #[doc(hidden)]
    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<Self::Cost>,
        place: &mut Self::Place,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>>;

    /// The caller leaves. Also called when it has its grant.
    #[doc(hidden)]
    fn leave(limiter: &Self::Handle, ask: &Ask<Self::Cost>, place: &mut Self::Place);

    /// The time until the grant of a caller that has entered.
    #[doc(hidden)]
    fn delay(limiter: &Self::Handle, place: &Self::Place) -> Duration;

    /// The limiter and the place of a caller that has entered, without a borrow.
    #[doc(hidden)]
    fn into_owned(
        limiter: &mut Self::Handle,
        place: Self::Place,
    ) -> (Self::Owned, <Self::Owned as Queue>::Place);
}

/// A limiter of this process: it answers at once, except for calls that wait. The trait is sealed.
pub trait InProcess: Queue {}
