//! The table of all keys: what a call does at its key.
//!
//! A key belongs to one of many shards by its hash, each with a lock of its own. A hash table that doubles moves all of
//! its keys at once. So there are as many shards as hold [`KEYS_OF_A_SHARD`] each when the table is full, which takes
//! a fraction of a millisecond.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shard::Shard;
use super::states::Rule;
use super::sweep::Sweeps;
use super::to_key::ToKey;
use crate::clock::{Clock, Monotone};
use crate::error::Error;
use crate::limiter::Ask;
use crate::line::{Charge, Inner, Line};
use crate::observe::{Observer, Reports};
use crate::policy::Policy;
use crate::policy::packed::Attempt;
use crate::rate_limiter::{Grant, GrantId, GrantOwner, KeyGuard, Keys, OpenGrant, RateLimiter};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, OwnLine};
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, Bounds, End};

const KEYS_OF_A_SHARD: usize = 8192;

/// More shards than processors, so that a caller rarely finds its shard locked; and not so many that an empty table
/// takes much memory.
const SHARDS: std::ops::Range<usize> = 128..4096;

pub(super) struct Table<K, P: Policy, S> {
    pub(super) common: Arc<Common<S>>,
    /// Their number is a power of two.
    shards: Box<[OwnLine<Part<K, P, S>>]>,
    /// The number of keys.
    pub(super) keys: AtomicUsize,
    pub(super) sweeps: Sweeps,
    /// The number of changes of the rule so far.
    changes: AtomicU64,
    pub(super) this: Weak<Self>,
}

/// What the shards have in common.
pub(super) struct Common<S> {
    pub(super) clock: Clock,
    pub(super) hasher: S,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
}

/// The options chosen in the builder.
pub(super) struct Options {
    pub(super) reports: Reports,
    pub(super) max_keys: usize,
    /// The bounds of each key's queue.
    pub(super) bounds: Bounds,
    /// Whether an absent key begins as a new one instead of an idle one.
    pub(super) absent_is_new: bool,
}

impl<S> Common<S> {
    /// The limiter of a key.
    pub(super) fn line<P: Policy>(&self, policy: P, state: P::State) -> Arc<Line<P>> {
        Line::of_key(policy, state, (&self.clock, &self.observer), self.options.bounds)
    }
}

/// A shard, and beside its lock its last grant.
// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
struct Part<K, P: Policy, S> {
    open: OpenGrant,
    shard: Mutex<Shard<K, P, S>>,
}

/// A call at a key: granted, or sent to the queue of the key, which the caller has still to join.
pub(crate) enum GrantOrWait<'a, P: Policy> {
    Granted(Grant<'a, P>),
    Waiting(RateLimiter<P>),
}

/// A grant that was opened, and the receipt of its charge.
type Opened<'a, P> = ((GrantId, &'a OpenGrant), <P as Policy>::Receipt);

/// A key in the table, which is locked. The fields are dropped in this order.
struct Entered<'a, K, P: Policy, S> {
    shard: MutexGuard<'a, Shard<K, P, S>>,
    gone: Gone<'a, K>,
    number: usize,
    bucket: usize,
    now: Nanos,
    is_new: bool,
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

    fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.common.hasher.hash_one(key)
    }

    /// The shard of a hash. Some get twice as many keys as others, and the rest lie between: if all doubled at once, a key
    /// would take twice the memory right after that.
    #[inline]
    fn number_of(&self, hash: u64) -> usize {
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

    /// Decides a call that need not wait, if the word of its key decides it: most calls. [`arrive`](Self::arrive) decides
    /// the others. A refusal says after which time the call would be ready.
    // As `Line::decide`.
    #[inline(always)]
    fn attempt<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Attempt<Opened<'_, P>> {
        if P::HOOKS.packed.is_none() {
            return Attempt::Undecided;
        }
        let hash = self.hash_of(key);
        let number = self.number_of(hash);
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = self.common.clock.now();
        let mut shard = self.lock(number);
        if shard.is_closed {
            return Attempt::Undecided;
        }
        let now = shard.time.read(read);
        // Zero first: `try_acquire` is compiled without the comparison then.
        let is_too_late =
            |due| max_wait.is_some_and(|wait| wait.is_zero() || due > now.saturating_add(wait));
        match shard.attempt(hash, |entry| key.is_key(entry), now, cost) {
            Attempt::Granted((bucket, receipt)) => {
                shard.stats.granted += 1;
                Attempt::Granted((self.open(&mut shard, number, bucket), receipt))
            }
            Attempt::NotBefore(due) if is_too_late(due) => {
                shard.stats.refused += 1;
                Attempt::NotBefore(Nanos::new(due.get().saturating_sub(now.get())))
            }
            Attempt::NotBefore(_) | Attempt::Undecided => Attempt::Undecided,
        }
    }

    /// A grant is made at a key of this shard.
    #[inline(always)]
    fn open(
        &self,
        shard: &mut Shard<K, P, S>,
        number: usize,
        bucket: usize,
    ) -> (GrantId, &OpenGrant) {
        let open = &self.shards[number].0.open;
        let id = GrantId::new(shard.grant(bucket), number, self.shards());
        open.open(id);
        (id, open)
    }

    #[inline(always)]
    fn grant<'a>(
        &'a self,
        (id, open): (GrantId, &'a OpenGrant),
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Grant<'a, P> {
        Grant::new(GrantOwner::key(KeyGuard::new(self, open, id)), cost, charge)
    }

    /// The grant of a call that a word decided.
    // Not built before the answer is known: it would be written to memory.
    #[inline(always)]
    fn granted<'a>(&'a self, (open, receipt): Opened<'a, P>, cost: P::Cost) -> Grant<'a, P> {
        self.grant(open, cost, Charge { waited: 0, receipt: Some(receipt), limited_by: None })
    }

    /// Grants or refuses without a wait.
    #[inline(always)]
    pub(super) fn try_at<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
    ) -> Result<Grant<'_, P>, Error> {
        match self.attempt(key, cost, Some(Duration::ZERO)) {
            Attempt::Granted(opened) => Ok(self.granted(opened, cost)),
            Attempt::NotBefore(wait) => Err(refused(wait)),
            Attempt::Undecided => self.arrive_now(key, cost),
        }
    }

    #[inline(never)]
    fn arrive_now<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
    ) -> Result<Grant<'_, P>, Error> {
        match self.arrive(key, cost, Some(Duration::ZERO))? {
            GrantOrWait::Granted(grant) => Ok(grant),
            GrantOrWait::Waiting(limiter) => limiter.take_now(cost),
        }
    }

    /// Grants or refuses, or sends the caller to the queue of the key.
    #[inline]
    pub(super) fn grant_or_wait<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: &Ask<P::Cost>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        match self.attempt(key, ask.cost, ask.max_wait) {
            Attempt::Granted(opened) => Ok(GrantOrWait::Granted(self.granted(opened, ask.cost))),
            Attempt::NotBefore(wait) => Err(refused(wait)),
            Attempt::Undecided => self.arrive(key, ask.cost, ask.max_wait),
        }
    }

    /// Decides a call at any key.
    #[inline(never)]
    fn arrive<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        let mut entered = self.enter(key, false)?;
        let Entered { ref mut shard, number, bucket, now, is_new, .. } = entered;
        if !P::HELD {
            // A limiter that has nothing to do becomes a state again.
            shard.idle_at(bucket, now);
        }
        let outcome = match shard.decide(bucket, now, cost, max_wait) {
            Some(Ok(charge)) => {
                let open = self.open(shard, number, bucket);
                Ok(GrantOrWait::Granted(self.grant(open, cost, charge)))
            }
            Some(Err(error)) => Err(error),
            None => Ok(GrantOrWait::Waiting(RateLimiter::of_line(shard.line(bucket)))),
        };
        if is_new {
            let idle_at = shard.idle_at(bucket, now).unwrap_or_default();
            // A refused key takes no room, unless it would begin anew with each call: what its callers wait for would
            // never come.
            let fills = || idle_at > now;
            match &outcome {
                Err(Error::Denied { .. }) if fills() => self.added(entered, idle_at),
                Ok(_) => self.added(entered, idle_at),
                Err(_) => entered.gone.keys.push(shard.remove(bucket)),
            }
        }
        outcome
    }

    /// The limiter of a key, made if it has none. `closes`: for a caller that closes the key, which needs no room and no
    /// open table.
    pub(super) fn line<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        closes: bool,
    ) -> Result<Arc<Line<P>>, Error> {
        let mut entered = self.enter(key, closes)?;
        let line = entered.shard.line(entered.bucket);
        if entered.is_new {
            self.added(entered, Nanos::ZERO);
        }
        Ok(line)
    }

    /// Finds a key, or puts it into the table.
    fn enter<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        closes: bool,
    ) -> Result<Entered<'_, K, P, S>, Error> {
        let max_keys = if closes { usize::MAX } else { self.common.options.max_keys };
        let hash = self.hash_of(key);
        let number = self.number_of(hash);
        loop {
            let mut gone = Gone { keys: Vec::new(), of: &self.keys };
            let mut shard = self.lock(number);
            if shard.is_closed && !closes {
                shard.stats.refused += 1;
                return Err(Error::Closed);
            }
            let now = shard.now();
            if let Some(bucket) = shard.find(hash, |entry| key.is_key(entry)) {
                return Ok(Entered { shard, gone, number, bucket, now, is_new: false });
            }
            // Dropped after unlocking, like all keys.
            let new = key.to_key();
            let state = shard.absent(&new, now);
            let more = |keys| (keys < max_keys).then_some(keys + 1);
            if self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
                let bucket;
                (bucket, gone.keys) = shard.insert((hash, new), state, now);
                return Ok(Entered { shard, gone, number, bucket, now, is_new: true });
            }
            drop(shard);
            self.make_room(number)?;
        }
    }

    /// A key that is new stays in the table, and may be idle from then on.
    fn added(&self, mut entered: Entered<'_, K, P, S>, idle_at: Nanos) {
        let now = entered.now;
        entered.shard.may_be_idle(idle_at);
        drop(entered);
        self.look_by(now, idle_at);
    }

    /// Looks at the limiter of a key. One without is looked at as if it had one, an absent one as if it came now.
    pub(super) fn look<Q: ToKey<K> + ?Sized, R>(
        &self,
        key: &Q,
        look: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> R {
        let hash = self.hash_of(key);
        // Dropped after unlocking, like all keys.
        let absent;
        let mut shard = self.lock(self.number_of(hash));
        let now = shard.now();
        let copy = match shard.find(hash, |entry| key.is_key(entry)) {
            Some(bucket) => shard.copy(bucket, now).ok_or_else(|| shard.line(bucket)),
            None => {
                absent = key.to_key();
                Ok(shard.absent(&absent, now))
            }
        };
        drop(shard);
        match copy {
            Ok((policy, state)) => look(&mut Inner::new(policy, state, Monotone::new(now)), now),
            Err(line) => line.with_lock(look),
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

    /// Calls the function of the key again for one key.
    pub(super) fn refresh<Q: ToKey<K> + ?Sized>(&self, key: &Q) {
        let hash = self.hash_of(key);
        let mut shard = self.lock(self.number_of(hash));
        let found = shard.find(hash, |entry| key.is_key(entry));
        let after = found.and_then(|bucket| shard.refresh(bucket));
        drop(shard);
        after.map(AfterUnlock::run);
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

#[inline(always)]
fn refused(wait: Nanos) -> Error {
    Error::Denied { retry_after: Some(wait.since(Nanos::ZERO)), part: None }
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
