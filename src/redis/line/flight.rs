//! The request in flight.

use super::change::KeyChange;
use crate::redis::script::Scripted;
use crate::redis::script::wire::Call;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// The kind of a request, and the callers that wait for its reply.
pub(crate) enum RequestKind<P: Scripted> {
    Take(Vec<WaiterId>),
    /// None to probe whether the server is back, or to renew the lease.
    Change(Vec<KeyChange<P>>),
}

impl<P: Scripted> RequestKind<P> {
    pub(super) const PROBE: Self = Self::Change(Vec::new());

    pub(super) fn is_probe(&self) -> bool {
        matches!(self, Self::Change(changes) if changes.is_empty())
    }
}

pub(crate) struct InFlightRequest<P: Scripted> {
    /// What it asks for, for each caller.
    pub(crate) calls: Vec<Call<P::Cost>>,
    pub(crate) kind: RequestKind<P>,
    /// When it was sent.
    pub(crate) at: Nanos,
    /// The number of the policy of the request.
    pub(crate) policy: u32,
}

/// A task that sends a request, and its request once that is sent. It belongs to the line, not to the task: if that
/// stands still, the line goes on without it.
pub(super) struct Flight<P: Scripted> {
    /// Distinguishes it from earlier flights, whose tasks may still exist.
    pub(super) number: u64,
    /// When the task was started.
    pub(super) at: Nanos,
    /// When the line goes on without the task.
    pub(super) until: Nanos,
    pub(super) request: Option<InFlightRequest<P>>,
}
