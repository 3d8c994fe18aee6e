//! What callers that are out of the queue have not learnt yet.
//!
//! Apart from the entries of the queue: a crowd has many of these, and few outcomes at a time. An entry has room for
//! the number of its outcome.

use slab::Slab;

use super::charge::Charge;
use crate::clock::KEEP;
use crate::error::Error;
use crate::wait_queue::WaiterId;

pub(super) type Outcome<R> = Result<Charge<R>, Error>;

/// Names a caller's outcome, if there is one.
pub(super) type OutcomeId = Option<WaiterId>;

#[derive(Debug)]
pub(super) struct Outcomes<R>(Slab<Outcome<R>>);

impl<R> Outcomes<R> {
    pub(super) fn new() -> Self {
        Self(Slab::new())
    }

    /// Sets or replaces the outcome of a caller.
    pub(super) fn set(&mut self, id: &mut OutcomeId, outcome: Outcome<R>) {
        match id {
            Some(id) => self.0[id.place()] = outcome,
            None => *id = Some(WaiterId::new(self.0.insert(outcome))),
        }
    }

    pub(super) fn take(&mut self, id: &mut OutcomeId) -> Option<Outcome<R>> {
        let outcome = self.0.remove(id.take()?.place());
        if self.0.is_empty() && self.0.capacity() > KEEP {
            self.0 = Slab::new();
        }
        Some(outcome)
    }
}
