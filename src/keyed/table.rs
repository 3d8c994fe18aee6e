//! The table of all keys: shards, each with its own lock.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::ToKey;
use super::decide::Decision;
use super::entry::{Entry, Slot};
use super::hash::spread;
use super::policy_source::{BoundsOf, PolicySource};
use super::round::Sweeps;
use super::segments::Place;
use super::shard::{Attempt, SHARDS, Settings, Shard};
use crate::clock::Clock;
use crate::error::Error;
use crate::line::Charge;
use crate::observe::{Observer, Reports};
use crate::policy::Policy;
use crate::rate_limiter::{GrantId, OpenGrant, Shared};
use crate::stats::{Stats, Waits};
use crate::sync::{OwnLine, ShortMutex, SpinMutexGuard};
use crate::units::Nanos;

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

/// A grant that was opened, with the word that says so.
type Opened<'a, P> = (GrantId, &'a OpenGrant, <P as Policy>::Receipt);

/// The outcome of a call.
pub(super) enum KeyAdmission<'a, P: Policy> {
    Granted(&'a OpenGrant, GrantId, Charge<P::Receipt>),
    /// The call continues in the key's line.
    Line(Arc<Shared<P>>),
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
    fn open(&self, shard: usize, number: u64) -> GrantId {
        let id = GrantId::new(number, shard, SHARDS);
        self.open.open(id);
        id
    }
}

impl<K, P: Policy, S> Table<K, P, S> {
    pub(super) fn new(
        rule: &PolicySource<K, P>,
        bounds_of: Option<&BoundsOf<K>>,
        (clock, hasher): (Clock, S),
        options: Options,
    ) -> Arc<Self> {
        let settings = options.settings;
        let shard = |_| {
            let shard = Shard::new(rule.clone(), settings, bounds_of.cloned());
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

    /// Callers waiting at all keys.
    #[cfg(feature = "metrics")]
    pub(super) fn queue_len(&self) -> usize {
        let waiting = |line: &Arc<Shared<P>>| line.look(|inner, _| inner.queue_len());
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

    pub(super) fn take_room(&self) -> bool {
        let more = |keys| (keys < self.options.max_keys).then_some(keys + 1);
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

    /// Decides a call that does not wait, if a word decides it: most calls. `None`: [`arrive`](Self::arrive) has to.
    // As `Line::decide`.
    #[inline(always)]
    pub(super) fn attempt<Q>(&self, key: &Q, cost: P::Cost) -> Option<Result<Opened<'_, P>, Error>>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        P::HOOKS.packed.as_ref()?;
        let hash = self.hash_of(key);
        let number = Self::shard_of(hash);
        let part = self.part(number);
        let mut shard = part.lock();
        let now = shard.now(&self.clock);
        if !shard.count_call(self.sweeps.calls()) {
            return None;
        }
        match shard.attempt(hash, |entry| entry.key.borrow() == key, now, cost) {
            Attempt::Granted(place, receipt) => {
                let id = part.open(number, shard.grant(hash, place));
                Some(Ok((id, &part.open, receipt)))
            }
            Attempt::NotBefore(due) => {
                Some(Err(Error::Denied { retry_after: Some(due.since(now)), part: None }))
            }
            Attempt::Undecided => None,
        }
    }

    /// Grants `cost` at a key if it is ready, refuses it, or sends the caller to the key's line. Also returns
    /// whether it is time for [`sweep_in_turn`](Self::sweep_in_turn). The caller runs the sweep later: it may
    /// panic at another key, and such a panic must not lose the grant made here.
    pub(super) fn arrive<Q>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> (Result<KeyAdmission<'_, P>, Error>, bool)
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hash_of(key);
        let mut shard = self.part(Self::shard_of(hash)).lock();
        let now = shard.now(&self.clock);
        let sweep = shard.is_time_to_sweep(self.sweeps.calls());
        let Some(place) = shard.entries.find(hash, |entry| entry.key.borrow() == key) else {
            drop(shard);
            return (self.arrive_new(key, hash, cost, max_wait), sweep);
        };
        let decision = shard.decide(place, now, cost, max_wait);
        (self.follow(&mut shard, (hash, place), decision), sweep)
    }

    fn follow(
        &self,
        shard: &mut Shard<K, P>,
        (hash, place): (u64, Place),
        decision: Result<Decision<P::Receipt>, Error>,
    ) -> Result<KeyAdmission<'_, P>, Error> {
        match decision {
            Ok(Decision::Granted(charge)) => {
                shard.stats.granted += u64::from(charge.receipt.is_some());
                let number = Self::shard_of(hash);
                let part = self.part(number);
                let id = part.open(number, shard.grant(hash, place));
                Ok(KeyAdmission::Granted(&part.open, id, charge))
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

    /// The same at a key that was not in the table a moment ago.
    #[inline(never)]
    fn arrive_new<Q>(
        &self,
        key: &Q,
        hash: u64,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<KeyAdmission<'_, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let part = self.part(Self::shard_of(hash));
        // Dropped after unlocking, like all keys.
        let mut owned = Some(key.to_key());
        loop {
            let mut shard = part.lock();
            let now = shard.now(&self.clock);
            let mut is_new = false;
            let (place, decision) =
                match shard.entries.find(hash, |entry| entry.key.borrow() == key) {
                    Some(place) => (place, shard.decide(place, now, cost, max_wait)),
                    None => {
                        let new = owned.as_ref().expect("not stored yet");
                        let mut absent = shard.absent(|| new, now);
                        let (decision, is_stored) =
                            shard.decide_absent(&mut absent, now, cost, max_wait);
                        // A refusal that did not change the state: the key need not be stored.
                        if !is_stored && let Err(error) = decision {
                            shard.stats.refused += 1;
                            return Err(error);
                        }
                        if !self.take_room() {
                            drop(shard);
                            self.make_room(hash)?;
                            continue;
                        }
                        is_new = true;
                        let new = owned.take().expect("not stored yet");
                        let hash_of = |entry: &Entry<K>| self.hash_of(&entry.key);
                        (shard.insert((hash, new), absent, now, hash_of), decision)
                    }
                };
            let admission = self.follow(&mut shard, (hash, place), decision);
            drop(shard);
            if is_new {
                self.look_again_after(now);
            }
            return admission;
        }
    }

    /// The line of a key, created if the key has none.
    pub(super) fn line<Q>(&self, key: &Q) -> Result<Arc<Shared<P>>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let hash = self.hash_of(key);
        let part = self.part(Self::shard_of(hash));
        let mut owned = None;
        loop {
            let mut shard = part.lock();
            let now = shard.now(&self.clock);
            let sweep = shard.is_time_to_sweep(self.sweeps.calls());
            let mut place = shard.entries.find(hash, |entry| entry.key.borrow() == key);
            let is_new = place.is_none();
            if is_new {
                let new = owned.take().unwrap_or_else(|| key.to_key());
                let absent = shard.absent(|| &new, now);
                if self.take_room() {
                    let hash_of = |entry: &Entry<K>| self.hash_of(&entry.key);
                    place = Some(shard.insert((hash, new), absent, now, hash_of));
                } else {
                    owned = Some(new);
                }
            }
            let line = place.map(|place| shard.line(place, &self.clock, &self.observer));
            drop(shard);
            let Some(line) = line else {
                self.make_room(hash)?;
                continue;
            };
            if is_new {
                self.look_again_after(now);
            }
            self.sweep_in_turn(sweep);
            return Ok(line);
        }
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
        let hash = self.hash_of(key);
        // Dropped after unlocking, like all keys.
        let owned;
        let mut shard = self.part(Self::shard_of(hash)).lock();
        let now = shard.now(&self.clock);
        let Some(place) = shard.entries.find(hash, |entry| entry.key.borrow() == key) else {
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
