//! A caller in the queue of a key, and its outcome.

use std::time::Duration;

use crate::error::Error;
use crate::part::Part;
use crate::policy::Cost;
use crate::units::Nanos;
use crate::wait_queue::Waits;

/// Permits that Redis has charged to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booking {
    pub(crate) sequence: u32,
    /// When it is due by our clock, not earlier than by the server's.
    pub(crate) due: Nanos,
    /// The earliest time at which it can be due by the server's clock.
    pub(crate) earliest: Nanos,
    /// The number of the policy under which it was charged: see `KeyLine`.
    pub(crate) policy: u32,
}

impl Booking {
    /// Of no permits: there is nothing to give back, and more can be charged to it.
    pub(crate) const NONE: Self =
        Self { sequence: 0, due: Nanos::ZERO, earliest: Nanos::ZERO, policy: 0 };
}

/// The wait of a grant, and its booking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrantInfo {
    pub(crate) waited: Duration,
    /// `None` if it was granted without Redis.
    pub(crate) booking: Option<Booking>,
    pub(crate) limited_by: Option<Part>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(GrantInfo),
    Refused(Error),
    /// Redis is away: the caller goes to the local limiter.
    Local,
}

pub(crate) struct KeyWaiter<C> {
    pub(crate) cost: C,
    pub(crate) joined: Nanos,
    /// When its caller came: earlier if it has waited at the local limiter before.
    pub(crate) arrived: Nanos,
    /// The number of changes made before it joined: it is not asked for before these.
    pub(crate) changes: u64,
    pub(crate) deadline: Option<Nanos>,
    pub(crate) stage: Stage,
    /// When it would be due by the last reply, if that is known.
    pub(crate) projected: Option<Nanos>,
    pub(crate) limited_by: Option<Part>,
}

impl<C> KeyWaiter<C> {
    /// Whether it can wait for a booking until that is due.
    pub(super) fn is_in_time(&self, booking: &Booking) -> bool {
        self.deadline.is_none_or(|deadline| booking.due <= deadline)
    }
}

impl<C: Cost> Waits for KeyWaiter<C> {
    fn permits(&self) -> u64 {
        self.cost.permits()
    }
}

/// Where a waiter stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// It has no booking, and is in no request.
    Waiting(Turn),
    /// It has no booking, and is in the request in flight.
    Asked(Turn),
    /// It has a booking that is not due yet.
    Booked(Booking),
    /// It is out of the queue; the caller has not fetched the outcome.
    Over(Outcome),
    /// It does not wait any longer, but the request in flight may book for it, so its entry stays in the
    /// queue. `None` once the caller has the outcome, or has gone.
    Stale(Option<Outcome>),
}

/// The last reply about the turn of a waiter without a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Redis has not answered for it.
    New,
    /// The same, and the caller waits to know it: a reservation.
    Reserving,
    /// Redis has answered: later. Or the caller waits without a limit.
    Later,
}

impl Stage {
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// The same, if it has no booking.
    pub(super) fn turn(&self) -> Option<Turn> {
        match *self {
            Self::Waiting(turn) | Self::Asked(turn) => Some(turn),
            _ => None,
        }
    }
}
