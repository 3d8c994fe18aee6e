//! The table of all keys: its shards, and the sweeps that drop idle keys.
//!
//! A key belongs to one of many shards by its hash, each with a lock of its own. A hash table that doubles moves all of
//! its keys at once. So there are as many shards as hold [`KEYS_OF_A_SHARD`] each when the table is full, which takes
//! a fraction of a millisecond.
//!
//! Idle keys go: by calls that need their room, and all of them by an alarm within ten seconds, without any call. A
//! sweep locks one shard at a time. A shard knows from when on one of its keys may be idle, and is not swept before. Of
//! a key in use that is not known: it is looked at again after as long as it has been in use.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shard::{Common, Options, Rule, Shard};
use crate::clock::{Alarm, Clock, OnAlarm};
use crate::error::Error;
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

/// Within this time an idle key is gone, also without calls.
const SPAN: Duration = Duration::from_secs(10);

/// How many keys a caller looks at to find room for a new one.
const LOOKS: usize = 1024;

/// How many keys the alarm looks at before others get their turn of the thread.
const STEP: usize = 4096;

pub(super) struct Table<K, P: Policy, S> {
    pub(super) common: Arc<Common<S>>,
    /// Their number is a power of two.
    pub(super) shards: Box<[OwnLine<Part<K, P, S>>]>,
    /// The number of keys.
    pub(super) keys: AtomicUsize,
    /// The shard at which the next caller without room looks, and that at which the alarm goes on.
    next: AtomicUsize,
    hand: AtomicUsize,
    /// When the alarm goes off, [`NEVER`] if it is not set.
    due: AtomicU64,
    pub(super) alarm: Mutex<Option<Alarm>>,
    /// The number of changes of the rule so far.
    changes: AtomicU64,
    pub(super) this: Weak<Self>,
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
        self.keys.load(Ordering::Relaxed)
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
        let common = Arc::new(Common { clock, hasher, options, observer });
        let rule = Arc::new(rule);
        let shard = |_| {
            let shard = Mutex::new(Shard::new(Arc::clone(&rule), Arc::clone(&common)));
            OwnLine(Part { open: OpenGrant::none(), shard })
        };
        let shards = (0..shards).map(shard).collect();
        Arc::new_cyclic(|this| Self {
            shards,
            common,
            keys: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            due: AtomicU64::new(NEVER.get()),
            alarm: Mutex::new(None),
            changes: AtomicU64::new(0),
            this: this.clone(),
        })
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

    /// Removes the idle keys of a shard. Returns how many keys it looked at.
    pub(super) fn sweep(&self, number: usize) -> usize {
        let mut shard = self.lock(number);
        let now = shard.now();
        let (looked, keys) = shard.sweep_idle(now);
        drop(shard);
        self.drop_keys(keys);
        looked
    }

    /// Drops keys that were removed, without a lock, and then there is room for others. Returns their number.
    pub(super) fn drop_keys(&self, keys: Vec<K>) -> usize {
        let count = keys.len();
        drop(keys);
        self.keys.fetch_sub(count, Ordering::Relaxed);
        count
    }

    /// Removes all idle keys. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        let sweep = |shard: &mut Shard<K, P, S>| {
            let now = shard.now();
            shard.sweep_idle(now).1
        };
        self.each(sweep).map(|keys| self.drop_keys(keys)).sum()
    }

    /// Removes all keys that `keep` does not keep and that are not in use. Returns their number.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K) -> bool) -> usize {
        let sweep = |shard: &mut Shard<K, P, S>| {
            let now = shard.now();
            shard.sweep(now, |key, _| !keep(key))
        };
        self.each(sweep).map(|keys| self.drop_keys(keys)).sum()
    }

    /// Removes idle keys until there is room for another one, which asks at this shard.
    pub(super) fn make_room(&self, asked: usize) -> Result<(), Error> {
        let (max, mut looks) = (self.common.options.max_keys, 0);
        for _ in 0..self.shards.len() {
            if self.len() < max || looks >= LOOKS {
                break;
            }
            looks += self.sweep(self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len());
        }
        if self.len() < max {
            return Ok(());
        }
        self.lock(asked).stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// A key may be idle from then on, and has to go within [`SPAN`].
    pub(super) fn look_by(&self, now: Nanos, idle_at: Nanos) {
        let time = idle_at.max(now.saturating_add(SPAN));
        if time.get() < self.due.load(Ordering::SeqCst) {
            self.set_alarm(time);
        }
    }

    /// Sets the alarm, unless it goes off earlier.
    fn set_alarm(&self, time: Nanos) {
        let mut alarm = self.alarm.lock();
        let clock = &self.common.clock;
        if time.get() < self.due.load(Ordering::SeqCst) && clock.sounds_without_callers() {
            // If a manual clock was moved past it just now, calls drop idle keys, or the next alarm.
            alarm.get_or_insert_with(|| clock.alarm(self.this.clone())).set(time);
            self.due.store(time.get(), Ordering::SeqCst);
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

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (counts, lines) in self.each(|shard| (shard.stats, shard.lines())) {
            stats.add(counts);
            lines.iter().for_each(|line| stats.add(line.stats()));
        }
        stats
    }
}

impl<K, P, S> OnAlarm for Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn on_alarm(&self) {
        // Before the first shard is seen: what comes to one later sets it again.
        self.due.store(NEVER.get(), Ordering::SeqCst);
        let now = self.common.clock.now();
        let (mut looks, mut hand) = (0, self.hand.load(Ordering::Relaxed));
        while hand < self.shards.len() && looks < STEP {
            looks += self.sweep(hand);
            hand += 1;
        }
        let is_over = hand == self.shards.len();
        self.hand.store(if is_over { 0 } else { hand }, Ordering::Relaxed);
        if !is_over {
            return self.set_alarm(now);
        }
        let first = self.each(|shard| shard.look_at).min().unwrap_or(NEVER);
        if first < NEVER {
            self.look_by(now, first);
        }
    }

    /// No caller waits for this alarm.
    fn wake_all(&self) {}
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
