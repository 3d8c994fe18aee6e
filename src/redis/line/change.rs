//! What is to be done to a key besides taking permits.

use tokio::sync::oneshot;

use super::waiter::Booking;
use crate::error::Error;
use crate::error::store::StoreError;
use crate::policy::Quota;

/// What came of a change; a quota if that was asked for.
pub(crate) type Done<C> = Result<Option<Quota<C>>, Error>;

/// The end of a change. The line that tells it lives as long as the caller has a handle on it.
pub(crate) async fn confirmed<C>(answer: oneshot::Receiver<Done<C>>) -> Done<C> {
    answer.await.unwrap_or(Ok(None))
}

/// Something to be done to the key besides taking.
pub(crate) struct KeyChange<C> {
    pub(crate) todo: Vec<u8>,
    pub(crate) done: Option<oneshot::Sender<Done<C>>>,
    /// Whether it makes the key one of a new policy.
    pub(crate) policy: bool,
    pub(crate) refund: Option<Refund<C>>,
}

impl<C> KeyChange<C> {
    pub(crate) fn of(todo: Vec<u8>) -> Self {
        Self { todo, done: None, policy: false, refund: None }
    }
}

/// Something to be given back, at the price at which it was charged: under another policy it is left undone.
/// It is written when it is sent: how much comes back depends on the time.
#[derive(Clone, Copy)]
pub(crate) struct Refund<C> {
    pub(crate) part: C,
    /// All that is charged under the booking.
    pub(crate) all: C,
    pub(crate) booking: Booking,
}

/// All changes come to the same.
pub(super) fn refuse_all<C>(changes: impl IntoIterator<Item = KeyChange<C>>, error: &StoreError) {
    for change in changes {
        let _ = change.done.map(|done| done.send(Err(error.clone().into())));
    }
}
