//! A caller in the queue of a key, and its outcome.

use std::time::Duration;

use crate::error::Error;
use crate::part::Part;
use crate::policy::Cost;
use crate::redis::script::wire::Ahead;
use crate::units::Nanos;
use crate::wait_queue::{WaiterId, Waits};

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
    /// Whether it is one of the [`Answered`]: it needs no answer, or it entered ahead of one of them.
    pub(super) counted: bool,
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

/// The waiters that need no answer until the head is due: the first ones of all without a booking. A caller that
/// entered ahead of one of them is counted, too, even if it needs one.
#[derive(Debug, Default)]
pub(super) struct Answered<C> {
    count: usize,
    permits: u64,
    /// The cost of each of them; `None` if the costs differ.
    cost: Option<C>,
    /// The first that needs one.
    pub(super) next: Option<WaiterId>,
}

impl<C: Cost> Answered<C> {
    pub(super) fn join(&mut self, cost: C) {
        self.cost = Some(cost).filter(|_| self.count == 0 || self.cost == Some(cost));
        self.count += 1;
        self.permits += cost.permits();
    }

    pub(super) fn leave(&mut self, cost: C) {
        self.count -= 1;
        self.permits -= cost.permits();
    }

    /// The waiters behind those with the costs `asked`, in the form of a request. `None` if a request has to ask
    /// for each of them. `first`: the cost of the first of them; `sum`: whether one charge for the sum is the same
    /// as one for each.
    pub(super) fn ahead(&self, first: C, asked: &[C], sum: bool) -> Option<Ahead<C>> {
        let permits = || asked.iter().fold(self.permits, |all, cost| all - cost.permits());
        let cost = if sum { Some(first) } else { self.cost };
        let count = self.count.checked_sub(asked.len()).filter(|&count| count > 0)?;
        cost.map(|cost| Ahead { behind: asked.len(), cost, count, sum: sum.then(permits) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_ahead_are_counted_without_those_that_are_asked_for() {
        let mut answered = Answered::<u32>::default();
        let ahead = |answered: &Answered<u32>, asked: &[u32], sum| {
            let ahead = answered.ahead(2, asked, sum)?;
            Some((ahead.behind, ahead.cost, ahead.count, ahead.sum))
        };
        assert_eq!(ahead(&answered, &[], true), None);
        for _ in 0..3 {
            answered.join(2);
        }
        assert_eq!(ahead(&answered, &[], false), Some((0, 2, 3, None)));
        assert_eq!(ahead(&answered, &[2], false), Some((1, 2, 2, None)));
        assert_eq!(ahead(&answered, &[2], true), Some((1, 2, 2, Some(4))));
        assert_eq!(ahead(&answered, &[2, 2, 2], true), None);
        // Of other costs only the sum can stand for all.
        answered.join(5);
        assert_eq!(ahead(&answered, &[2], false), None);
        assert_eq!(ahead(&answered, &[2], true), Some((1, 2, 3, Some(9))));
        answered.leave(5);
        assert_eq!(ahead(&answered, &[2], false), None, "it may be another that differs");
        for _ in 0..3 {
            answered.leave(2);
        }
        answered.join(7);
        assert_eq!(ahead(&answered, &[], false), Some((0, 7, 1, None)));
    }
}
