//! What all keys of a limiter have in common, apart from the connection.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::events::Counts;
use super::health::Health;
use super::options::Options;
use super::script::wire::PolicyHeader;
use super::script::{Scripted, Scripts};

/// A place of a request in flight.
pub(super) type Slot = OwnedSemaphorePermit;

/// Slots for the requests in flight of all keys, at most one for each key.
pub(super) struct Slots {
    all: Arc<Semaphore>,
    /// For keys whose requests fail: thousands of keys on a node that is mute hold no more than these.
    failing: Arc<Semaphore>,
}

impl Slots {
    const FAILING: usize = 16;

    fn new(most: usize) -> Self {
        let slots = |most| Arc::new(Semaphore::new(most));
        Self { all: slots(most), failing: slots(Self::FAILING) }
    }

    pub(super) fn of(&self, fails: bool) -> &Arc<Semaphore> {
        if fails { &self.failing } else { &self.all }
    }
}

/// All that the line of a key needs of its limiter.
pub(super) struct Rules<P> {
    pub(super) options: Options<P>,
    pub(super) scripts: Scripts,
    pub(super) health: Health,
    pub(super) slots: Slots,
    pub(super) counters: Counts,
    /// Tells this limiter from those of other processes.
    pub(super) id: [u8; 8],
}

impl<P: Scripted> Rules<P> {
    pub(super) fn new(options: Options<P>, random: u64) -> Self {
        Self {
            slots: Slots::new(options.max_requests),
            health: Health::new(options.max_retry_pause, random),
            options,
            scripts: P::lua().scripts(),
            counters: Counts::default(),
            id: random.to_le_bytes(),
        }
    }

    /// The first argument of requests under a policy.
    pub(super) fn header(&self, policy: &P, generation: u32) -> PolicyHeader {
        PolicyHeader::new(&self.scripts.kind, policy, generation, self.options.absent_is_idle)
    }
}
