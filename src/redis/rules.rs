//! What the keys of one limiter have in common apart from the connection and the policy in force.

use super::events::Counts;
use super::health::Health;
use super::options::Options;
use super::script::wire::PolicyHeader;
use super::script::{Scripted, Scripts};

/// Options, scripts, health and counters of one limiter: all that the queue of a key needs of its owner.
pub(super) struct Rules<P> {
    pub(super) options: Options<P>,
    pub(super) scripts: Scripts,
    pub(super) health: Health,
    pub(super) counters: Counts,
    /// Tells this limiter from those of other processes.
    pub(super) id: [u8; 8],
}

impl<P: Scripted> Rules<P> {
    pub(super) fn new(options: Options<P>, id: [u8; 8]) -> Self {
        Self {
            options,
            scripts: P::lua().scripts(),
            health: Health::default(),
            counters: Counts::default(),
            id,
        }
    }

    /// What requests under a policy begin with.
    pub(super) fn header(&self, policy: &P, generation: u32) -> PolicyHeader {
        PolicyHeader::new(&self.scripts.kind, policy, generation, self.options.absent_is_idle)
    }
}
