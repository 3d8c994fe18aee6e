//! What callers that are out of the queue have not learnt yet.
//!
//! Apart from the entries of the queue: a crowd has many of these, and few outcomes at a time. An entry has room for
//! the number of its outcome.

use std::num::NonZeroU32;

use slab::Slab;

use super::charge::Charge;
use crate::clock::KEEP;
use crate::error::Error;

pub(super) type Outcome<R> = Result<Charge<R>, Error>;

/// The number of a caller's outcome, if there is one: its place in the slab, plus one.
#[derive(Debug, Default)]
pub(super) struct OutcomeId(Option<NonZeroU32>);

impl OutcomeId {
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

fn place(number: NonZeroU32) -> usize {
    number.get() as usize - 1
}

#[derive(Debug)]
pub(super) struct Outcomes<R>(Slab<Outcome<R>>);

impl<R> Outcomes<R> {
    pub(super) fn new() -> Self {
        Self(Slab::new())
    }

    /// Sets or replaces the outcome of a caller.
    pub(super) fn set(&mut self, id: &mut OutcomeId, outcome: Outcome<R>) {
        if let Some(number) = id.0 {
            self.0[place(number)] = outcome;
            return;
        }
        let number = u32::try_from(self.0.insert(outcome) + 1).ok().and_then(NonZeroU32::new);
        id.0 = Some(number.expect("fewer than 2^32 waiters"));
    }

    pub(super) fn take(&mut self, id: &mut OutcomeId) -> Option<Outcome<R>> {
        let outcome = self.0.remove(place(id.0.take()?));
        if self.0.is_empty() && self.0.capacity() > KEEP {
            self.0 = Slab::new();
        }
        Some(outcome)
    }
}
