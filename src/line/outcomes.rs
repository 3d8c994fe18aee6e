//! What callers that are out of the queue have not learnt yet.
//!
//! Apart from the entries of the queue: a crowd has many of these, and few outcomes at a time.

use hashbrown::HashMap;

use super::charge::Charge;
use crate::clock::KEEP;
use crate::error::Error;
use crate::wait_queue::WaiterId;

pub(super) type Outcome<R> = Result<Charge<R>, Error>;

#[derive(Debug)]
pub(super) struct Outcomes<R> {
    /// Most lines have one at a time, and need no table.
    first: Option<(WaiterId, Outcome<R>)>,
    others: HashMap<WaiterId, Outcome<R>>,
}

impl<R> Outcomes<R> {
    pub(super) fn new() -> Self {
        Self { first: None, others: HashMap::new() }
    }

    /// Sets or replaces the outcome of a caller. No outcome is taken in between.
    pub(super) fn set(&mut self, id: WaiterId, outcome: Outcome<R>) {
        match &mut self.first {
            Some((first, old)) if *first == id => *old = outcome,
            None => self.first = Some((id, outcome)),
            _ => drop(self.others.insert(id, outcome)),
        }
    }

    pub(super) fn contains(&self, id: WaiterId) -> bool {
        self.first.as_ref().is_some_and(|&(first, _)| first == id) || self.others.contains_key(&id)
    }

    pub(super) fn take(&mut self, id: WaiterId) -> Option<Outcome<R>> {
        if let Some((_, outcome)) = self.first.take_if(|(first, _)| *first == id) {
            return Some(outcome);
        }
        let outcome = self.others.remove(&id)?;
        if self.others.is_empty() && self.others.capacity() > KEEP {
            self.others = HashMap::new();
        }
        Some(outcome)
    }
}
