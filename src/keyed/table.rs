//! The table of all keys: shards, each with its own lock.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::ToKey;
use super::entry::Slot;
use super::hash::spread;
use super::policy_source::PolicySource;
use super::round::Sweeps;
use super::shard::{SHARDS, Settings, Shard};
use crate::clock::Clock;
use crate::line::Line;
use crate::observe::{Observer, Reports};
use crate::policy::Policy;
use crate::rate_limiter::{GrantId, OpenGrant};
use crate::stats::{Stats, Waits};
use crate::sync::{OwnLine, ShortMutex, SpinMutexGuard};
use crate::units::Nanos;
use crate::wait_queue::End;

/// The default maximum number of keys.
pub(super) const MAX_KEYS: usize = 1 << 20;

pub(super) struct Table<K, P: Policy, S> {
    pub(super) clock: Clock,
    pub(super) hasher: S,
    shards: Box<[OwnLine<Part<K, P>>]>,
    pub(super) keys: AtomicUsize,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
    pub(super) sweeps: Sweeps,
    /// The number of changes of the rule so far.
    pub(super) rules: AtomicU64,
    this: Weak<Self>,
}

/// The options chosen in the builder.
pub(super) struct Options {
    pub(super) reports: Reports,
    pub(super) max_keys: usize,
    pub(super) settings: Settings,
}

/// A shard, and beside its lock its last grant.
pub(super) struct Part<K, P: Policy> {
    open: OpenGrant,
    shard: ShortMutex<Shard<K, P>>,
}

impl<K, P: Policy> Part<K, P> {
    /// Locks the shard. What it holds is exact then: a grant that is kept has been recorded.
    #[inline]
    pub(super) fn lock(&self) -> SpinMutexGuard<'_, Shard<K, P>> {
        let mut shard = loop {
            match self.shard.try_lock() {
                Some(shard) => break shard,
                // Parks until a caller that has it for longer gives it back.
                None => drop(self.shard.lock()),
            }
        };
        if let Some(id) = self.open.take() {
            shard.hold(id);
        }
        shard
    }

    /// A grant has been made under the lock.
    #[inline]
    pub(super) fn open(&self, shard: usize, number: u64) -> (GrantId, &OpenGrant) {
        let id = GrantId::new(number, shard, SHARDS);
        self.open.open(id);
        (id, &self.open)
    }

    /// As [`OpenGrant::close`].
    pub(super) fn close(&self, id: GrantId) -> bool {
        self.open.close(id)
    }
}

impl<K, P: Policy, S> Table<K, P, S> {
    pub(super) fn new(
        rule: &PolicySource<K, P>,
        (clock, hasher): (Clock, S),
        options: Options,
    ) -> Arc<Self> {
        let settings = options.settings;
        let shard = |_| {
            let shard = Shard::new(rule.clone(), settings);
            OwnLine(Part { open: OpenGrant::none(), shard: ShortMutex::new(shard) })
        };
        Arc::new_cyclic(|this| Self {
            clock,
            hasher,
            shards: (0..SHARDS).map(shard).collect(),
            keys: AtomicUsize::new(0),
            observer: Observer::new(options.reports.clone()),
            options,
            sweeps: Sweeps::new(),
            rules: AtomicU64::new(0),
            this: this.clone(),
        })
    }

    pub(super) fn share(&self) -> Arc<Self> {
        self.this.upgrade().expect("borrowed from its owner")
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        self.this.clone()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn part(&self, shard: usize) -> &Part<K, P> {
        &self.shards[shard % SHARDS].0
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part<K, P>> {
        self.shards.iter().map(|part| &part.0)
    }

    /// Lets no caller in at any key. Returns the lines, at which callers may wait.
    pub(super) fn close(&self, end: End<'_>) -> Vec<Arc<Line<P>>> {
        let mut lines: Vec<_> = self.parts().flat_map(|part| part.lock().close()).collect();
        lines.retain(|line| line.end(end));
        lines
    }

    /// Whether all shards are closed: the last one is closed last.
    pub(super) fn is_closed(&self) -> bool {
        self.part(SHARDS - 1).lock().is_closed()
    }

    /// Callers waiting at all keys.
    #[cfg(feature = "metrics")]
    pub(super) fn queue_len(&self) -> usize {
        let waiting = |line: &Arc<Line<P>>| line.look(|inner, _| inner.queue_len());
        let lines = self.parts().flat_map(|part| part.lock().lines());
        lines.map(|line| waiting(&line)).sum()
    }

    pub(super) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::with_capacity(self.len());
        for part in self.parts() {
            keys.extend(part.lock().entries.iter().map(|entry| entry.key.clone()));
        }
        keys
    }

    pub(super) fn waits(&self) -> Waits {
        self.observer.waits()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for part in self.parts() {
            let shard = part.lock();
            stats.add(shard.stats);
            let lines = shard.lines();
            drop(shard);
            lines.iter().for_each(|line| stats.add(line.stats()));
        }
        stats
    }

    /// Takes room for one more key, if there are at most `max` with it.
    pub(super) fn take_room(&self, max: usize) -> bool {
        let more = |keys| (keys < max).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy, S: BuildHasher + Send + Sync + 'static>
    Table<K, P, S>
{
    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The shard of a hash. Some shards get twice as many keys as others, and the rest lie between: if all grew at
    /// once, a key would take twice the memory right after that.
    #[inline]
    pub(super) fn shard_of(hash: u64) -> usize {
        // Another bit of the hash for each bit of this: some functions leave the high ones empty.
        let even = spread(hash) >> 48;
        // About the logarithm of a number that is even between one and two.
        let share = even + ((even * (0x1_0000 - even)) >> 16) * 11 / 32;
        usize::try_from((share * SHARDS as u64) >> 16).unwrap_or_default() % SHARDS
    }

    /// Looks at a key: in its line if it has one, else at its state. An absent key has the state of one that
    /// would be created now.
    pub(super) fn look<Q, R>(
        &self,
        key: &Q,
        in_line: impl FnOnce(&Line<P>) -> R,
        quiet: impl FnOnce(&P, &P::State, Nanos) -> R,
    ) -> R
    where
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hash_of(key);
        // Dropped after unlocking, like all keys.
        let owned;
        let mut shard = self.part(Self::shard_of(hash)).lock();
        let now = shard.now(&self.clock);
        let Some(place) = shard.entries.find(hash, |entry| key.is_key(&entry.key)) else {
            owned = key.to_key();
            let absent = shard.absent(|| &owned, now);
            return shard.look_absent(&absent, |policy, state| quiet(policy, state, now));
        };
        match shard.entries.get(place).word.read() {
            Ok(word) => quiet(shard.rule.policy(None), &shard.unpack(word), now),
            Err(index) => match shard.parts_of(index) {
                (policy, Slot::Quiet(state)) => quiet(policy, state, now),
                (_, Slot::Busy(line)) => {
                    let line = Arc::clone(line);
                    drop(shard);
                    in_line(&line)
                }
            },
        }
    }
}
