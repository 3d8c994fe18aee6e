//! What all keys of a limiter have in common, apart from the connection.

use super::events::Counts;
use super::health::Health;
use super::options::Options;
use super::script::wire::PolicyHeader;
use super::script::{Scripted, Scripts};

/// All that the line of a key needs of its limiter.
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

    /// The first argument of requests under a policy.
    pub(super) fn header(&self, policy: &P, generation: u32) -> PolicyHeader {
        PolicyHeader::new(&self.scripts.kind, policy, generation, self.options.absent_is_idle)
    }
}
