//! What the shards have in common: the options of the builder, the clock and the hash function.

use std::sync::Arc;

use crate::clock::Clock;
use crate::line::Line;
use crate::observe::{Observer, Reports};
use crate::policy::Policy;
use crate::wait_queue::Bounds;

/// What the shards have in common.
pub(super) struct Common<S> {
    pub(super) clock: Clock,
    pub(super) hasher: S,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
}

/// The options chosen in the builder.
pub(super) struct Options {
    pub(super) reports: Reports,
    pub(super) max_keys: usize,
    /// The bounds of each key's queue.
    pub(super) bounds: Bounds,
    /// Whether an absent key begins as a new one instead of an idle one.
    pub(super) absent_is_new: bool,
}

impl<S> Common<S> {
    /// The limiter of a key.
    pub(super) fn line<P: Policy>(&self, policy: P, state: P::State) -> Arc<Line<P>> {
        Line::of_key(policy, state, (&self.clock, &self.observer), self.options.bounds)
    }
}
