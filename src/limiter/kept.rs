//! A grant that is not handed out yet.

use super::Granted;
use crate::unwinding::in_drop;

/// A grant whose caller still waits for something else. Dropped, it goes back.
pub(crate) struct Kept<G: Granted>(Option<G>);

impl<G: Granted> Kept<G> {
    pub(crate) fn new(grant: G) -> Self {
        Self(Some(grant))
    }

    pub(crate) fn into_grant(mut self) -> G {
        self.0.take().unwrap_or_else(|| unreachable!("taken here only"))
    }
}

impl<G: Granted> Drop for Kept<G> {
    fn drop(&mut self) {
        if let Some(grant) = self.0.take() {
            in_drop(|| grant.refund());
        }
    }
}
