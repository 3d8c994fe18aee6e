//! The table of all keys: shards, each with its own lock.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::ToKey;
use super::shard::{BoundsOf, Decision, Entry, PolicySource, Settings, Shard, Slot};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::{EntryRef, Keys, Shared};
use crate::line::{Change, Charge};
use crate::observe::{Observer, Reports};
use crate::policy::{Policy, Quota};
use crate::stats::{Stats, Waits};
use crate::sync::{Mutex, MutexGuard, OwnLine};
use crate::units::Nanos;
use crate::wait_queue::AfterUnlock;

/// More shards than processors, so that a caller rarely finds its shard locked. Smaller shards also make for
/// shorter pauses when one of them grows.
const SHARDS: usize = 256;

/// The maximum number of buckets visited to find room for a new key.
const LOOKS: usize = 1024;

/// The number of calls between two sweeps. A sweep visits two buckets per call of the shortest interval,
/// so that idle keys are removed faster than new ones can arrive. While sweeps find no idle key, the interval
/// grows.
const CALLS_PER_SWEEP: std::ops::Range<usize> = 32..1024;

/// The default maximum number of keys.
pub(super) const MAX_KEYS: usize = 1 << 20;

pub(super) struct Table<K, P: Policy> {
    pub(super) clock: Clock,
    hasher: DefaultHashBuilder,
    shards: Box<[Part<K, P>]>,
    keys: AtomicUsize,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
    /// The shard at which the next sweep continues, and the number of calls until then.
    next: AtomicUsize,
    calls_per_sweep: AtomicUsize,
    /// The number of changes of the rule so far.
    rules: AtomicU64,
    this: Weak<Self>,
}

/// The options chosen in the builder.
pub(super) struct Options {
    pub(super) reports: Reports,
    pub(super) max_keys: usize,
    pub(super) settings: Settings,
}

type Part<K, P> = OwnLine<Mutex<Shard<K, P>>>;

/// The outcome of a call.
pub(super) enum KeyAdmission<P: Policy> {
    Granted(EntryRef, Charge<P::Receipt>),
    /// The call continues in the key's line.
    Line(Arc<Shared<P>>),
}

impl<K, P: Policy> Table<K, P> {
    pub(super) fn new(
        rule: &PolicySource<K, P>,
        bounds_of: Option<&BoundsOf<K>>,
        clock: Clock,
        options: Options,
    ) -> Arc<Self> {
        let step = clock.step();
        let settings = options.settings;
        let shard =
            || OwnLine(Mutex::new(Shard::new(rule.clone(), settings, bounds_of.cloned(), step)));
        Arc::new_cyclic(|this| Self {
            clock,
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            keys: AtomicUsize::new(0),
            observer: Observer::new(options.reports.clone()),
            options,
            next: AtomicUsize::new(0),
            rules: AtomicU64::new(0),
            calls_per_sweep: AtomicUsize::new(CALLS_PER_SWEEP.start),
            this: this.clone(),
        })
    }

    pub(super) fn share(&self) -> Arc<Self> {
        self.this.upgrade().expect("borrowed from its owner")
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<K, P>> {
        // The hash table of a shard uses the other bits.
        let bits = usize::try_from(hash >> 32).unwrap_or_default();
        self.shards[bits % SHARDS].0.lock()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Grants `cost` at a key if it is ready, refuses it, or sends the caller to the key's line. Also returns
    /// whether it is time for [`sweep_in_turn`](Self::sweep_in_turn). The caller runs the sweep later: it may
    /// panic at another key, and such a panic must not lose the grant made here.
    pub(super) fn arrive<Q>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> (Result<KeyAdmission<P>, Error>, bool)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut absent = None;
        loop {
            let mut shard = self.shard(hash);
            let now = shard.now(&self.clock);
            let sweep = shard.is_time_to_sweep(self.calls_per_sweep.load(Ordering::Relaxed));
            let arrived = if let Some(place) = shard.find(hash, |other| other.borrow() == key) {
                let decision = shard.decide(place, now, cost, max_wait);
                self.follow(&mut shard, place, hash, decision)
            } else {
                let key =
                    absent.take().map_or_else(|| key.to_key(), |entry: Entry<K, P>| entry.key);
                let entry = absent.insert(shard.absent(hash, key, now));
                match shard.decide_absent(entry, now, cost, max_wait) {
                    // The refusal did not change the state, so the key need not be stored.
                    (Err(error), false) => {
                        shard.stats.refused += 1;
                        Err(error)
                    }
                    (decision, _) if self.take_room() => {
                        let place = shard.insert(absent.take().expect("made just now"));
                        self.follow(&mut shard, place, hash, decision)
                    }
                    _ => {
                        drop(shard);
                        match self.make_room(hash) {
                            Ok(()) => continue,
                            Err(error) => return (Err(error), sweep),
                        }
                    }
                }
            };
            return (arrived, sweep);
        }
    }

    /// Removes some idle keys, if it is time for a sweep.
    pub(super) fn sweep_in_turn(&self, is_time: bool) {
        if is_time {
            let idle = self.sweep(2 * CALLS_PER_SWEEP.start, || false);
            let calls = self.calls_per_sweep.load(Ordering::Relaxed);
            let calls = if idle == 0 { 2 * calls } else { CALLS_PER_SWEEP.start };
            self.calls_per_sweep.store(calls.min(CALLS_PER_SWEEP.end), Ordering::Relaxed);
        }
    }

    /// Removes all idle keys. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        self.sweep(usize::MAX, || false)
    }

    fn follow(
        &self,
        shard: &mut Shard<K, P>,
        place: usize,
        hash: u64,
        decision: Result<Decision<P::Receipt>, Error>,
    ) -> Result<KeyAdmission<P>, Error> {
        match decision {
            Ok(Decision::Granted(charge)) => {
                shard.stats.granted += u64::from(charge.receipt.is_some());
                let entry = shard.entry_mut(place);
                entry.pins += 1;
                Ok(KeyAdmission::Granted(EntryRef { hash, id: entry.id, hint: place }, charge))
            }
            Ok(Decision::NeedsLine) => {
                Ok(KeyAdmission::Line(shard.line(place, &self.clock, &self.observer)))
            }
            Err(error) => {
                shard.stats.refused += 1;
                Err(error)
            }
        }
    }

    /// Callers waiting at all keys.
    #[cfg(feature = "metrics")]
    pub(super) fn queue_len(&self) -> usize {
        let waiting = |line: &Arc<Shared<P>>| line.look(|inner, _| inner.queue_len());
        let lines = self.shards.iter().flat_map(|shard| shard.0.lock().lines());
        lines.map(|line| waiting(&line)).sum()
    }

    /// The line of a key, created if the key has none.
    pub(super) fn line<Q>(&self, key: &Q) -> Result<Arc<Shared<P>>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        loop {
            let mut absent = None;
            let mut shard = self.shard(hash);
            let now = shard.now(&self.clock);
            let sweep = shard.is_time_to_sweep(self.calls_per_sweep.load(Ordering::Relaxed));
            let found = shard.find(hash, |other| other.borrow() == key);
            let place = found.or_else(|| {
                absent = Some(shard.absent(hash, key.to_key(), now));
                self.take_room().then(|| shard.insert(absent.take().expect("made just now")))
            });
            let line = place.map(|place| shard.line(place, &self.clock, &self.observer));
            drop(shard);
            match line {
                Some(line) => {
                    self.sweep_in_turn(sweep);
                    return Ok(line);
                }
                None => self.make_room(hash)?,
            }
        }
    }

    fn take_room(&self) -> bool {
        let more = |keys| (keys < self.options.max_keys).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Removes idle keys until there is room for another one.
    fn make_room(&self, hash: u64) -> Result<(), Error> {
        let max = self.options.max_keys;
        self.sweep(LOOKS, || self.len() < max);
        if self.len() < max {
            return Ok(());
        }
        self.shard(hash).stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// Continues the sweep, shard by shard, and removes idle keys until `enough` holds or `looks` buckets have
    /// been visited. Returns the number of removed keys.
    fn sweep(&self, mut looks: usize, enough: impl Fn() -> bool) -> usize {
        let mut idle = 0;
        // At most one full round; the first shard may have been visited in part.
        for _ in 0..=SHARDS {
            if looks == 0 || enough() {
                break;
            }
            let next = self.next.load(Ordering::Relaxed) % SHARDS;
            // Dropped without a lock, because the drop of a key may run any code.
            let mut forgotten = Forgotten { entries: Vec::new(), keys: &self.keys };
            let mut shard = self.shards[next].0.lock();
            let now = shard.now(&self.clock);
            let (looked, at_end) = shard.forget_idle(now, looks, &mut forgotten.entries);
            drop(shard);
            looks -= looked;
            if at_end {
                self.next.store(next + 1, Ordering::Relaxed);
            }
            idle += forgotten.entries.len();
        }
        idle
    }

    /// Looks at a key: in its line if it has one, else at its state. An absent key has the state of one that
    /// would be created now.
    pub(super) fn look<Q, R>(
        &self,
        key: &Q,
        in_line: impl FnOnce(&Shared<P>) -> R,
        quiet: impl FnOnce(&P, &P::State, Nanos) -> R,
    ) -> R
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        // Dropped after unlocking, like all keys.
        let absent;
        let mut shard = self.shard(hash);
        let now = shard.now(&self.clock);
        let entry = if let Some(place) = shard.find(hash, |other| other.borrow() == key) {
            shard.entry(place)
        } else {
            absent = shard.absent(hash, key.to_key(), now);
            &absent
        };
        match &entry.slot {
            Slot::Quiet(state) => quiet(shard.policy_of(entry), state, now),
            Slot::Busy(line) => {
                let line = Arc::clone(line);
                drop(shard);
                in_line(&line)
            }
        }
    }

    /// Puts all keys under another rule, shard by shard. If several calls run at once, the last rule wins.
    pub(super) fn set_rule(&self, rule: &PolicySource<K, P>) {
        let number = self.rules.fetch_add(1, Ordering::Relaxed) + 1;
        for shard in &self.shards {
            // Run and dropped after unlocking, even if a policy panics.
            let mut after = After::default();
            let mut shard = shard.0.lock();
            if shard.rule_number > number {
                continue;
            }
            let now = shard.now(&self.clock);
            // Compute all policies before applying any of them: the function of the key may panic.
            let places = (0..shard.buckets()).filter(|&place| shard.is_taken(place));
            let own: Vec<_> =
                places.map(|place| (place, rule.own(&shard.entry(place).key))).collect();
            // A key with its own policy does not need the rule. A key without one needs the old rule until
            // it has its own. In this order each key always has a policy, even after a panic.
            let old_rule = shard.rule.clone();
            if matches!(rule, PolicySource::One(_)) {
                shard.rule = rule.clone();
            }
            for (place, own) in own {
                let old =
                    shard.renew(place, own, (&old_rule, rule), now, |line, policy, bounds| {
                        after.lines.push(line.set_policy_quietly(policy, bounds));
                    });
                after.policies.extend(old);
            }
            shard.rule = rule.clone();
            after.rules.push(old_rule);
            shard.rule_number = number;
        }
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut after = After::default();
        let mut shard = self.shard(hash);
        let Some(place) = shard.find(hash, |other| other.borrow() == key) else { return };
        let rule = shard.rule.clone();
        let own = rule.own(&shard.entry(place).key);
        let now = shard.now(&self.clock);
        let old = shard.renew(place, own, (&rule, &rule), now, |line, policy, bounds| {
            after.lines.push(line.set_policy_quietly(policy, bounds));
        });
        after.policies.extend(old);
        after.rules.push(rule);
    }

    pub(super) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::with_capacity(self.len());
        for shard in &self.shards {
            keys.extend(shard.0.lock().iter().map(|entry| entry.key.clone()));
        }
        keys
    }

    pub(super) fn waits(&self) -> Waits {
        self.observer.waits()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.add(shard.stats);
            let lines = shard.lines();
            drop(shard);
            lines.iter().for_each(|line| stats.add(line.stats()));
        }
        stats
    }
}

/// Keys that have been removed. Their room is released on drop, even if the policy panics at the next key.
struct Forgotten<'a, K, P: Policy> {
    entries: Vec<Entry<K, P>>,
    keys: &'a AtomicUsize,
}

impl<K, P: Policy> Drop for Forgotten<'_, K, P> {
    fn drop(&mut self) {
        self.keys.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}

/// The work that is left after unlocking. Wakers and drops may run any code.
struct After<K, P: Policy> {
    lines: Vec<AfterUnlock>,
    policies: Vec<Box<P>>,
    rules: Vec<PolicySource<K, P>>,
}

impl<K, P: Policy> Default for After<K, P> {
    fn default() -> Self {
        Self { lines: Vec::new(), policies: Vec::new(), rules: Vec::new() }
    }
}

impl<K, P: Policy> Drop for After<K, P> {
    fn drop(&mut self) {
        self.lines.drain(..).for_each(AfterUnlock::run);
    }
}

impl<K: Send + 'static, P: Policy> Keys<P> for Table<K, P> {
    fn change(&self, place: EntryRef, change: Change<P>) -> Result<Option<P::Receipt>, Error> {
        let mut shard = self.shard(place.hash);
        let Some(found) = shard.find_id(place.hash, place.id, place.hint) else { return Ok(None) };
        let now = shard.now(&self.clock);
        let since = shard.since();
        let (policy, slot) = shard.parts(found);
        match slot {
            Slot::Quiet(state) => Ok(change.apply(policy, state, now, since)?),
            Slot::Busy(line) => {
                let line = Arc::clone(line);
                drop(shard);
                line.change(change)
            }
        }
    }

    fn quota(&self, place: EntryRef) -> Option<Quota<P::Cost>> {
        let mut shard = self.shard(place.hash);
        let now = shard.now(&self.clock);
        let found = shard.find_id(place.hash, place.id, place.hint)?;
        let (policy, slot) = shard.parts(found);
        match slot {
            Slot::Quiet(state) => Some(Quota::of(policy, state, now)),
            Slot::Busy(line) => {
                let line = Arc::clone(line);
                drop(shard);
                Some(line.quota())
            }
        }
    }

    fn pin(&self, place: EntryRef) {
        let mut shard = self.shard(place.hash);
        if let Some(found) = shard.find_id(place.hash, place.id, place.hint) {
            shard.entry_mut(found).pins += 1;
        }
    }

    fn unpin(&self, place: EntryRef) {
        let mut shard = self.shard(place.hash);
        if let Some(found) = shard.find_id(place.hash, place.id, place.hint) {
            shard.unpin(found);
        }
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        Table::share(self)
    }
}
