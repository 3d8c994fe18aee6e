//! The request in flight, and how it ends.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::change::KeyChange;
use crate::redis::connection::{Failure, Reply};
use crate::redis::context::Slot;
use crate::redis::health::Group;
use crate::redis::script::wire::Call;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// Maximum calls or changes in one request: a script blocks the server.
pub(super) const BATCH: usize = 1024;

/// The kind of a request, and the callers that wait for its reply.
pub(crate) enum RequestKind<C> {
    Take(Vec<WaiterId>),
    Change(Vec<KeyChange<C>>),
    /// Whether the server is back.
    Probe,
}

pub(crate) struct InFlightRequest<C> {
    pub(crate) arguments: Vec<Vec<u8>>,
    /// What it asks for, for each caller.
    pub(crate) calls: Vec<Call<C>>,
    pub(crate) kind: RequestKind<C>,
    pub(crate) at: Nanos,
    /// The number of the policy of the request.
    pub(crate) policy: u32,
    /// The group of keys for which it tries if Redis is back after a failure.
    pub(crate) tries: Option<Group>,
}

impl<C> InFlightRequest<C> {
    pub(super) fn is_change(&self) -> bool {
        matches!(self.kind, RequestKind::Change(_))
    }

    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.kind, RequestKind::Probe)
    }
}

/// How a request ends.
pub(crate) enum RequestEnd {
    Replied(Reply),
    Failed(Failure),
    /// Not sent yet: too many requests for other keys are in flight.
    NoSlot,
    /// Not sent: Redis turned out to be down.
    Withdrawn,
}

/// The request in flight. It belongs to the line, not to the task that sends it: if that task stands still, the
/// line goes on without it.
pub(crate) struct Flight<C> {
    /// Distinguishes it from earlier flights, whose tasks may still exist.
    pub(super) number: u64,
    /// `None`: the task waits for a slot.
    pub(super) request: Option<InFlightRequest<C>>,
    /// When it was sent.
    pub(super) sent: Option<Nanos>,
    /// When to look whether it keeps its slot.
    pub(super) look_at: Option<Nanos>,
    /// Held from sending until the end of the request, or until a later request overtakes it.
    pub(super) slot: Option<Slot>,
    /// When the line goes on without the task. `None`: it waits for a slot.
    pub(super) until: Option<Nanos>,
}

/// What the task does next.
pub(crate) enum Step {
    /// Send these arguments; see [`Request::idle`](crate::redis::Request).
    Send(Vec<Vec<u8>>, [bool; 2]),
    WaitForSlot(Arc<Semaphore>),
    /// There is nothing to send, or the line goes on without this task.
    Next,
}
