//! The table of all keys.
//!
//! A key belongs to one of many shards by its hash, each with a lock of its own. A hash table that doubles moves all of
//! its keys at once. So there are as many shards as hold [`KEYS_OF_A_SHARD`] each when the table is full, which takes
//! a fraction of a millisecond.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::common::{Common, Options};
use super::shard::Shard;
use super::states::Rule;
use crate::clock::{Alarm, Clock};
use crate::line::Line;
use crate::observe::Observer;
use crate::policy::Policy;
use crate::rate_limiter::{GrantId, Keys, OpenGrant};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, OwnLine};
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, End, NEVER};

const KEYS_OF_A_SHARD: usize = 8192;

/// More shards than processors, so that a caller rarely finds its shard locked; and not so many that an empty table
/// takes much memory.
const SHARDS: std::ops::Range<usize> = 128..4096;

pub(super) struct Table<K, P: Policy, S> {
    pub(super) common: Arc<Common<S>>,
    /// Their number is a power of two.
    pub(super) shards: Box<[OwnLine<Part<K, P, S>>]>,
    /// The number of keys.
    pub(super) keys: AtomicUsize,
    pub(super) sweeps: Sweeps,
    /// The number of changes of the rule so far.
    changes: AtomicU64,
    pub(super) this: Weak<Self>,
}

/// Within this time an idle key is gone, also without calls.
const SPAN: Duration = Duration::from_secs(10);

/// How far sweeps have come.
pub(super) struct Sweeps {
    /// The shard at which the next caller without room looks, and that at which the alarm goes on.
    pub(super) next: AtomicUsize,
    pub(super) hand: AtomicUsize,
    /// When the alarm goes off, [`NEVER`] if it is not set.
    pub(super) due: AtomicU64,
    pub(super) alarm: Mutex<Option<Alarm>>,
}

impl Default for Sweeps {
    fn default() -> Self {
        let [next, hand] = [(); 2].map(|()| AtomicUsize::new(0));
        Self { next, hand, due: AtomicU64::new(NEVER.get()), alarm: Mutex::new(None) }
    }
}

/// A shard, and beside its lock its last grant.
// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
pub(super) struct Part<K, P: Policy, S> {
    pub(super) open: OpenGrant,
    shard: Mutex<Shard<K, P, S>>,
}

/// Keys that went, to be dropped without a lock. Then there is room for others.
pub(super) struct Gone<'a, K> {
    pub(super) keys: Vec<K>,
    pub(super) of: &'a AtomicUsize,
}

impl<K> Drop for Gone<'_, K> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.keys.len(), Ordering::Relaxed);
    }
}

impl<K, P: Policy, S> Table<K, P, S> {
    pub(super) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// The number of shards.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
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
        let shards = full.clamp(SHARDS.start, SHARDS.end).next_power_of_two();
        // A model has one key.
        let shards = if cfg!(tollgate_loom) { 1 } else { shards };
        let observer = Observer::new(options.reports.clone());
        let (rule, common) = (Arc::new(rule), Common { clock, hasher, options, observer });
        let common = Arc::new(common);
        let shard = |_| {
            let shard = Mutex::new(Shard::new(Arc::clone(&rule), Arc::clone(&common)));
            OwnLine(Part { open: OpenGrant::none(), shard })
        };
        let shards = (0..shards).map(shard).collect();
        Arc::new_cyclic(|this| Self {
            shards,
            common,
            keys: AtomicUsize::new(0),
            sweeps: Sweeps::default(),
            changes: AtomicU64::new(0),
            this: this.clone(),
        })
    }

    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.common.hasher.hash_one(key)
    }

    /// The shard of a hash. Some get twice as many keys as others, and the rest lie between: if all doubled at once, a key
    /// would take twice the memory right after that.
    #[inline]
    pub(super) fn number_of(&self, hash: u64) -> usize {
        // By all bits of the hash, of which some functions leave many empty.
        let even = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        // About the logarithm of a number that is even between one and two.
        let share = even + ((even * (0x1_0000 - even)) >> 16) * 11 / 32;
        usize::try_from((share * self.shards.len() as u64) >> 16).unwrap_or_default()
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

    /// A key may be idle from then on, and has to go within [`SPAN`].
    pub(super) fn look_by(&self, now: Nanos, idle_at: Nanos) {
        let time = idle_at.max(now.saturating_add(SPAN));
        if time.get() < self.sweeps.due.load(Ordering::SeqCst) {
            self.set_alarm(time);
        }
    }

    /// Sets the alarm, unless it goes off earlier.
    pub(super) fn set_alarm(&self, time: Nanos) {
        let Sweeps { due, alarm, .. } = &self.sweeps;
        let mut alarm = alarm.lock();
        let clock = &self.common.clock;
        if time.get() < due.load(Ordering::SeqCst) && clock.sounds_without_callers() {
            // If a manual clock was moved past it just now, calls drop idle keys, or the next alarm.
            let _ = alarm.get_or_insert_with(|| clock.alarm(self.this.clone())).set(time);
            due.store(time.get(), Ordering::SeqCst);
        }
    }

    /// Puts all keys under another rule, shard by shard. If several calls run at once, the last rule wins.
    pub(super) fn set_rule(&self, rule: Rule<K, P>) {
        let (number, rule) = (self.changes.fetch_add(1, Ordering::Relaxed), Arc::new(rule));
        for (after, old) in self.each(|shard| shard.set_rule(number, &rule)) {
            drop(old);
            after.into_iter().for_each(AfterUnlock::run);
        }
        self.look_by(self.common.clock.now(), Nanos::ZERO);
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

    /// Callers waiting at all keys.
    #[cfg(feature = "metrics")]
    pub(super) fn queue_len(&self) -> usize {
        let waiting = |line: Arc<Line<P>>| line.look(|inner, _| inner.queue_len());
        self.each(|shard| shard.lines()).flatten().map(waiting).sum()
    }

    pub(super) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.each(|shard| shard.keys().cloned().collect::<Vec<_>>()).flatten().collect()
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
        if self.shards[number].0.open.close(id) {
            return;
        }
        let mut shard = self.lock(number);
        let line = shard.held.remove(&id);
        shard.may_be_idle(Nanos::ZERO);
        let now = shard.now();
        drop(shard);
        drop(line);
        self.look_by(now, Nanos::ZERO);
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        self.this.upgrade().unwrap_or_else(|| unreachable!("borrowed from its owner"))
    }
}
