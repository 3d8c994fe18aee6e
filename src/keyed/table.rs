//! The table of all keys: its shards, and the room in it.
//!
//! A key belongs to one of many shards by its hash, each with a lock of its own. A hash table that doubles moves all of
//! its keys at once. So there are as many shards as hold [`KEYS_OF_A_SHARD`] each when the table is full.
//!
//! Idle keys go when new ones come: from a shard that holds twice as many keys as it kept the last time, and at the limit of
//! keys from any. A shard knows from when on one of its keys may be idle, and looks at none before.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;

use super::shard::{Common, Options, Rule, Shard};
use crate::clock::{AfterUnlock, Clock};
use crate::error::Error;
use crate::line::Line;
use crate::observe::Observer;
use crate::policy::Policy;
use crate::rate_limiter::{GrantId, Keys, OpenGrant};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, OwnLine};
use crate::wait_queue::End;

/// In a hash table of 4,096 buckets, of which the keys of a full table take 80 per cent.
const KEYS_OF_A_SHARD: usize = 3300;

/// Many more shards than processors, so that a caller rarely finds its shard locked; and not so many that an empty table
/// takes much memory.
const SHARDS: std::ops::Range<usize> = 128..4096;

/// How many shards, and how many keys, a caller looks at to find room for a new one.
const LOOKS: (usize, usize) = (128, 4096);

pub(super) struct Table<K, P: Policy> {
    pub(super) common: Arc<Common>,
    pub(super) shards: Box<[OwnLine<Part<K, P>>]>,
    /// The shard at which the next caller without room looks.
    next: AtomicUsize,
    /// Of several changes of the rule at once, the last one wins in all shards.
    changing: Mutex<()>,
    this: Weak<Self>,
}

/// A shard, and beside its lock its last grant.
// In the order of use, so that a granted call writes one cache line of it.
#[repr(C)]
pub(super) struct Part<K, P: Policy> {
    pub(super) open: OpenGrant,
    shard: Mutex<Shard<K, P>>,
}

impl<K, P: Policy> Table<K, P> {
    pub(super) fn len(&self) -> usize {
        self.common.keys.load(Ordering::Relaxed)
    }
}

impl<K: Hash, P: Policy> Part<K, P> {
    /// Locks the shard. What it holds is exact then: the open grant has been recorded.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Shard<K, P>> {
        let mut shard = self.shard.lock();
        if let Some(id) = self.open.take() {
            shard.hold(id);
        }
        shard
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> Table<K, P> {
    pub(super) fn new(rule: Rule<K, P>, clock: Clock, options: Options) -> Arc<Self> {
        let full = options.max_keys.div_ceil(KEYS_OF_A_SHARD);
        // A model has one key.
        let shards = if cfg!(tollgate_loom) { 1 } else { full.clamp(SHARDS.start, SHARDS.end) };
        let observer = Observer::new(options.reports.clone());
        let (hasher, keys) = (DefaultHashBuilder::default(), AtomicUsize::new(0));
        let common = Arc::new(Common { clock, hasher, options, observer, keys });
        let rule = Arc::new(rule);
        let shard = |number| {
            let shard = Shard::new(Arc::clone(&rule), Arc::clone(&common), (number, shards));
            OwnLine(Part { open: OpenGrant::none(), shard: Mutex::new(shard) })
        };
        let shards = (0..shards).map(shard).collect();
        let (next, changing) = (AtomicUsize::new(0), Mutex::new(()));
        Arc::new_cyclic(|this| Self { common, shards, next, changing, this: this.clone() })
    }

    /// The shard of a hash, by other bits than those that the table of a shard uses first.
    #[inline]
    pub(super) fn part(&self, hash: u64) -> &Part<K, P> {
        let even = (hash >> 32) & 0xFFFF;
        let number = usize::try_from((even * self.shards.len() as u64) >> 16).unwrap_or_default();
        &self.shards[number].0
    }

    /// The shard of a grant.
    fn part_of(&self, id: GrantId) -> &Part<K, P> {
        &self.shards[id.shard(self.shards.len())].0
    }

    /// Does the same with each shard.
    pub(super) fn each<R>(
        &self,
        mut act: impl FnMut(&mut Shard<K, P>) -> R,
    ) -> impl Iterator<Item = R> {
        self.shards.iter().map(move |part| act(&mut part.0.lock()))
    }

    /// Removes all idle keys, and drops them without a lock. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        self.each(|shard| shard.sweep().1).map(|gone| gone.len()).sum()
    }

    /// Counts another key, if there is room for it.
    pub(super) fn count_one(&self, max: usize) -> bool {
        let more = |keys| (keys < max).then_some(keys + 1);
        self.common.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Removes idle keys until there is room for another one.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let (max, mut looks) = (self.common.options.max_keys, 0);
        for _ in 0..self.shards.len().min(LOOKS.0) {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let (looked, _gone) = self.shards[number].0.lock().sweep();
            looks += looked;
            if self.len() < max {
                return Ok(());
            }
            if looks >= LOOKS.1 {
                break;
            }
        }
        Err(Error::TooManyKeys { max })
    }

    /// Puts all keys under another rule, shard by shard.
    pub(super) fn set_rule(&self, rule: Rule<K, P>) {
        let (rule, one_at_a_time) = (Arc::new(rule), self.changing.lock());
        let mut changed = Vec::new();
        // The function of a key may panic: callers that were granted at others are woken all the same.
        let change = || changed.extend(self.each(|shard| shard.set_rule(&rule)));
        let result = catch_unwind(AssertUnwindSafe(change));
        drop(one_at_a_time);
        changed.into_iter().flat_map(|(after, _old)| after).for_each(AfterUnlock::run);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Lets no caller in at any key. Returns the limiters, at which callers may wait.
    pub(super) fn close(&self, end: End<'_>) -> Vec<Arc<Line<P>>> {
        let close = |shard: &mut Shard<K, P>| {
            shard.is_closed = true;
            shard.lines()
        };
        let mut lines: Vec<_> = self.each(close).flatten().collect();
        lines.retain(|line| line.end(end));
        lines
    }

    /// Whether all shards are closed: the last one is closed last.
    pub(super) fn is_closed(&self) -> bool {
        self.shards[self.shards.len() - 1].0.lock().is_closed
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (counts, lines) in self.each(|shard| (shard.stats(), shard.lines())) {
            stats.add(counts);
            lines.iter().for_each(|line| stats.add(line.stats()));
        }
        stats.with(&self.common.observer.waits)
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> Keys<P> for Table<K, P> {
    fn line(&self, id: GrantId) -> Option<Arc<Line<P>>> {
        // The lock records it, if it is the last one.
        self.part_of(id).lock().held.get(&id).cloned()
    }

    fn close(&self, id: GrantId) {
        let part = self.part_of(id);
        if !part.open.close(id) {
            // Dropped without the lock.
            let _line = part.lock().held.remove(&id);
        }
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        self.this.upgrade().unwrap_or_else(|| unreachable!("borrowed from its owner"))
    }
}
