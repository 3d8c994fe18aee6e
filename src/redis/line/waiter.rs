//! A caller in the queue of a key, and what it gets.

use std::task::Waker;
use std::time::Duration;

use crate::error::Error;
use crate::line::WaiterId;
use crate::units::Nanos;

/// Permits that Redis has charged to somebody here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booking {
    pub(crate) sequence: u32,
    /// When it is due by our clock: certainly not earlier than by the server's.
    pub(crate) due: Nanos,
    /// The earliest that it can be due by the server's clock.
    pub(crate) earliest: Nanos,
    /// Under which policy it was charged.
    pub(crate) generation: u32,
}

/// What a caller is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantInfo {
    pub(crate) waited: Duration,
    /// `None` if nobody was charged: for a cost of nothing, or without Redis.
    pub(crate) booking: Option<Booking>,
    pub(crate) limited_by: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(GrantInfo),
    Refused(Error),
    /// Redis is away: the local limiter is to be asked.
    Local,
}

/// What became of a caller who entered.
pub(crate) enum Entered {
    Over(Outcome),
    Waiting(WaiterId),
}

pub(crate) struct KeyWaiter<C> {
    pub(crate) cost: C,
    pub(crate) joined: Nanos,
    /// How many changes were made before: it is not asked for before those.
    pub(crate) changes: u64,
    pub(crate) deadline: Option<Nanos>,
    pub(crate) waker: Option<Waker>,
    pub(crate) place: Place,
    /// In the request under way.
    pub(crate) asked: bool,
    /// Nobody looks at the entry any more: it goes when the answer has come.
    pub(crate) left: bool,
    /// Whether it has not been asked for yet.
    pub(crate) fresh: bool,
    /// Whether it wants to know how long it will take, although it waits for ever.
    pub(crate) curious: bool,
    /// When it would be due as things stood last, if that is known.
    pub(crate) projected: Option<Nanos>,
    pub(crate) limited_by: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Place {
    Waiting,
    Booked(Booking),
    Over(Option<Outcome>),
}
