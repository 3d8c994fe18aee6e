//! The request in flight.

use super::change::KeyChange;
use crate::redis::context::Slot;
use crate::redis::script::wire::Call;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// Maximum calls or changes in one request: a script blocks the server.
pub(super) const BATCH: usize = 1024;

/// The kind of a request, and the callers that wait for its reply.
pub(crate) enum RequestKind<C> {
    Take(Vec<WaiterId>),
    /// None to probe whether the server is back, or to renew the lease.
    Change(Vec<KeyChange<C>>),
}

pub(crate) struct InFlightRequest<C> {
    /// What it asks for, for each caller.
    pub(crate) calls: Vec<Call<C>>,
    pub(crate) kind: RequestKind<C>,
    /// When its task was started, and when it was sent.
    pub(crate) since: Nanos,
    pub(crate) at: Nanos,
    /// The number of the policy of the request.
    pub(crate) policy: u32,
}

impl<C> RequestKind<C> {
    pub(super) const PROBE: Self = Self::Change(Vec::new());

    pub(super) fn is_probe(&self) -> bool {
        matches!(self, Self::Change(changes) if changes.is_empty())
    }
}

/// A task that sends a request, and its request once that is sent. It belongs to the line, not to the task: if that
/// stands still, the line goes on without it.
pub(super) struct Flight<C> {
    /// Distinguishes it from earlier flights, whose tasks may still exist.
    pub(super) number: u64,
    /// When the task was started, or the request sent.
    pub(super) at: Nanos,
    /// When the line goes on without the task.
    pub(super) until: Nanos,
    pub(super) request: Option<InFlightRequest<C>>,
    /// Held until the end of the request, or until a later request overtakes it.
    pub(super) slot: Option<Slot>,
    /// When to look whether it keeps its slot.
    pub(super) look_at: Nanos,
}
