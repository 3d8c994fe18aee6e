//! Changes of a key besides taking permits.

use std::time::Duration;

use tokio::sync::oneshot;

use super::waiter::Booking;
use crate::error::Error;
use crate::error::store::StoreError;
use crate::policy::{Cost, Quota};

/// The end of a change; with a report if the change asks for it.
pub(crate) type Done<C> = Result<Option<Report<C>>, Error>;

/// What the script reports of a change.
pub(crate) enum Report<C> {
    State(KeyReport<C>),
    Limits(Vec<LimitReport<C>>),
}

/// The state of a key as the script reports it.
pub(crate) struct KeyReport<C> {
    pub(crate) quota: Quota<C>,
    pub(crate) paused_for: Duration,
    /// `None` if there is no key.
    pub(crate) expires_in: Option<Duration>,
}

/// One limit of a key as the script reports it.
pub(crate) struct LimitReport<C> {
    pub(crate) remaining: C,
    pub(crate) more_after: Option<Duration>,
}

/// A change of a key besides taking permits.
pub(crate) struct KeyChange<C> {
    pub(crate) todo: Vec<u8>,
    pub(crate) done: Option<oneshot::Sender<Done<C>>>,
    /// Whether the policy of this process is set for the fleet.
    pub(crate) sets: bool,
    pub(crate) refund: Option<Refund<C>>,
}

impl<C> KeyChange<C> {
    pub(crate) fn of(todo: Vec<u8>) -> Self {
        Self { todo, done: None, sets: false, refund: None }
    }

    /// What follows goes into another request: it is for the key that comes after this one.
    pub(super) fn deletes(&self) -> bool {
        self.todo.first() == Some(&b'X')
    }

    /// Sets the policy of this process for the fleet.
    pub(super) fn setting() -> Self {
        Self { sets: true, ..Self::of(Vec::new()) }
    }
}

/// Permits to return at the price at which they were charged: under another policy nothing is returned. A refund
/// is written when it is sent, because the amount depends on the time.
#[derive(Clone, Copy)]
pub(crate) struct Refund<C> {
    pub(crate) part: C,
    /// All permits that are charged under the booking.
    pub(crate) all: C,
    pub(crate) booking: Booking,
}

impl<C: Cost> Refund<C> {
    /// `None` of nothing: if all of it came back before, the next charge has its number.
    pub(crate) fn of(part: C, all: C, booking: Booking) -> Option<Self> {
        (!part.is_zero()).then_some(Self { part, all, booking })
    }
}

/// Ends all changes with the same error.
pub(super) fn refuse_all<C>(changes: impl IntoIterator<Item = KeyChange<C>>, error: &StoreError) {
    for change in changes {
        let _ = change.done.map(|done| done.send(Err(error.clone().into())));
    }
}
