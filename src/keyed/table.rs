//! The table of all keys: its shards, and the room in it.
//!
//! A key belongs to one of many shards by its hash, each with a lock of its own. A hash table that doubles moves all of
//! its keys at once. So there are as many shards as hold [`KEYS_OF_A_SHARD`] each when the table is full.
//!
//! Idle keys go when new ones come: from a shard that holds twice as many keys as it kept the last time, and at the limit of
//! keys from any. A shard knows from when on one of its keys may be idle, and looks at none before.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::shard::{Common, Options, Rule, Shard};
use crate::clock::Clock;
use crate::error::Error;
use crate::line::Line;
use crate::observe::Observer;
use crate::policy::Policy;
use crate::rate_limiter::{GrantId, Keys, OpenGrant};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, OwnLine};
use crate::wait_queue::{AfterUnlock, End};

/// In a hash table of 4,096 buckets, of which the keys of a full table take 80 per cent.
const KEYS_OF_A_SHARD: usize = 3300;

/// Many more shards than processors, so that a caller rarely finds its shard locked; and not so many that an empty table
/// takes much memory.
const SHARDS: std::ops::Range<usize> = 128..4096;

/// How many shards, and how many keys, a caller looks at to find room for a new one.
const LOOKS: (usize, usize) = (128, 4096);

pub(super) struct Table<K, P: Policy, S> {
    pub(super) common: Arc<Common<S>>,
    pub(super) shards: Box<[OwnLine<Part<K, P, S>>]>,
    /// The shard at which the next caller without room looks.
    next: AtomicUsize,
    /// Of several changes of the rule at once, the last one wins in all shards.
    changing: Mutex<()>,
    this: Weak<Self>,
}

/// A shard, and beside its lock its last grant.
// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
pub(super) struct Part<K, P: Policy, S> {
    pub(super) open: OpenGrant,
    shard: Mutex<Shard<K, P, S>>,
}

impl<K, P: Policy, S> Table<K, P, S> {
    pub(super) fn len(&self) -> usize {
        self.common.keys.load(Ordering::Relaxed)
    }
}

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(rule: Rule<K, P>, clock: Clock, hasher: S, options: Options) -> Arc<Self> {
        let full = options.max_keys.div_ceil(KEYS_OF_A_SHARD);
        // A model has one key.
        let shards = if cfg!(tollgate_loom) { 1 } else { full.clamp(SHARDS.start, SHARDS.end) };
        let observer = Observer::new(options.reports.clone());
        let common =
            Arc::new(Common { clock, hasher, options, observer, keys: AtomicUsize::new(0) });
        let rule = Arc::new(rule);
        let shard = |_| {
            let shard = Mutex::new(Shard::new(Arc::clone(&rule), Arc::clone(&common)));
            OwnLine(Part { open: OpenGrant::none(), shard })
        };
        let shards = (0..shards).map(shard).collect();
        let (next, changing) = (AtomicUsize::new(0), Mutex::new(()));
        Arc::new_cyclic(|this| Self { common, shards, next, changing, this: this.clone() })
    }

    /// The shard of a hash, by all its bits: some functions leave many empty.
    #[inline]
    pub(super) fn number_of(&self, hash: u64) -> usize {
        let even = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        usize::try_from((even * self.shards.len() as u64) >> 16).unwrap_or_default()
    }

    /// Locks a shard. What it holds is exact then: a grant that is kept has been recorded.
    #[inline]
    pub(super) fn lock(&self, number: usize) -> MutexGuard<'_, Shard<K, P, S>> {
        let Part { open, shard } = &self.shards[number].0;
        let mut shard = shard.lock();
        if let Some(id) = open.take() {
            shard.hold(id);
        }
        shard
    }

    /// Does the same with each shard.
    pub(super) fn each<R>(
        &self,
        mut act: impl FnMut(&mut Shard<K, P, S>) -> R,
    ) -> impl Iterator<Item = R> {
        (0..self.shards.len()).map(move |number| act(&mut self.lock(number)))
    }

    /// Removes all idle keys, and drops them without a lock. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        let sweep = |shard: &mut Shard<K, P, S>| {
            let now = shard.now();
            shard.sweep(now).1
        };
        self.each(sweep).map(|keys| keys.len()).sum()
    }

    /// Counts another key, if there is room for it.
    pub(super) fn count_one(&self, max: usize) -> bool {
        let more = |keys| (keys < max).then_some(keys + 1);
        self.common.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Removes idle keys until there is room for another one, which asks at this shard.
    pub(super) fn make_room(&self, asked: usize) -> Result<(), Error> {
        let (max, mut looks) = (self.common.options.max_keys, 0);
        for _ in 0..self.shards.len().min(LOOKS.0) {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let mut shard = self.lock(number);
            let now = shard.now();
            let (looked, gone) = shard.sweep(now);
            drop(shard);
            drop(gone);
            looks += looked;
            if self.len() < max {
                return Ok(());
            }
            if looks >= LOOKS.1 {
                break;
            }
        }
        self.lock(asked).stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// Puts all keys under another rule, shard by shard.
    pub(super) fn set_rule(&self, rule: Rule<K, P>) {
        let (rule, one_at_a_time) = (Arc::new(rule), self.changing.lock());
        let changed: Vec<_> = self.each(|shard| shard.set_rule(&rule)).collect();
        drop(one_at_a_time);
        changed.into_iter().flat_map(|(after, _old)| after).for_each(AfterUnlock::run);
    }

    /// Lets no caller in at any key. Returns the limiters, at which callers may wait.
    pub(super) fn close(&self, end: End<'_>) -> Vec<Arc<Line<P>>> {
        let close = |shard: &mut Shard<K, P, S>| {
            shard.is_closed = true;
            shard.lines()
        };
        let mut lines: Vec<_> = self.each(close).flatten().collect();
        lines.retain(|line| line.end(end));
        lines
    }

    /// Whether all shards are closed: the last one is closed last.
    pub(super) fn is_closed(&self) -> bool {
        self.lock(self.shards.len() - 1).is_closed
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (counts, lines) in self.each(|shard| (shard.stats, shard.lines())) {
            stats.add(counts);
            lines.iter().for_each(|line| stats.add(line.stats()));
        }
        stats
    }
}

impl<K, P, S> Keys<P> for Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn line(&self, id: GrantId) -> Option<Arc<Line<P>>> {
        // The lock records it, if it is the last one.
        self.lock(id.shard(self.shards.len())).held.get(&id).cloned()
    }

    fn close(&self, id: GrantId) {
        let number = id.shard(self.shards.len());
        if !self.shards[number].0.open.close(id) {
            // Dropped without the lock.
            let _line = self.lock(number).held.remove(&id);
        }
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        self.this.upgrade().unwrap_or_else(|| unreachable!("borrowed from its owner"))
    }
}
