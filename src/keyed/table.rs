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
use crate::wait_queue::{Bounds, End};

const KEYS_OF_A_SHARD: usize = 8192;

/// More shards than processors, so that a caller rarely finds its shard locked; and not so many that an empty table
/// takes much memory.
const SHARDS: std::ops::Range<usize> = 128..4096;

pub(super) struct Table<K, P: Policy, S> {
    pub(super) clock: Clock,
    hasher: S,
    /// Their number is a power of two.
    shards: Box<[OwnLine<Part<K, P>>]>,
    /// The number of keys.
    pub(super) keys: AtomicUsize,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
    pub(super) sweeps: Sweeps,
    /// The number of changes of the rule so far.
    changes: AtomicU64,
    this: Weak<Self>,
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

/// A shard, and beside its lock its last grant.
// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
struct Part<K, P: Policy> {
    open: OpenGrant,
    shard: Mutex<Shard<K, P>>,
}

/// A call at a key: granted, or sent to the queue of the key, which the caller has still to join.
pub(crate) enum GrantOrWait<'a, P: Policy> {
    Granted(Grant<'a, P>),
    Waiting(RateLimiter<P>),
}

/// A grant that was opened, and the receipt of its charge.
type Opened<'a, P> = ((GrantId, &'a OpenGrant), <P as Policy>::Receipt);

/// A key in the table, which is locked. The fields are dropped in this order.
struct Entered<'a, K, P: Policy> {
    shard: MutexGuard<'a, Shard<K, P>>,
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

#[inline(always)]
fn refused(wait: Nanos) -> Error {
    Error::Denied { retry_after: Some(wait.since(Nanos::ZERO)), part: None }
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
        let rule = Arc::new(rule);
        let shard = |_| {
            let shard = Mutex::new(Shard::new(Arc::clone(&rule)));
            OwnLine(Part { open: OpenGrant::none(), shard })
        };
        Arc::new_cyclic(|this| Self {
            clock,
            hasher,
            shards: (0..shards).map(shard).collect(),
            keys: AtomicUsize::new(0),
            observer: Observer::new(options.reports.clone()),
            options,
            sweeps: Sweeps::default(),
            changes: AtomicU64::new(0),
            this: this.clone(),
        })
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        self.this.clone()
    }

    pub(super) fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
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

    #[inline]
    fn part(&self, number: usize) -> &Part<K, P> {
        &self.shards[number].0
    }

    /// Locks a shard. What it holds is exact then: a grant that is kept has been recorded.
    #[inline]
    pub(super) fn lock(&self, number: usize) -> MutexGuard<'_, Shard<K, P>> {
        let part = self.part(number);
        let mut shard = part.shard.lock();
        if let Some(id) = part.open.take() {
            shard.hold(id, |policy, state| self.new_line(policy, state));
        }
        shard
    }

    fn new_line(&self, policy: P, state: P::State) -> Arc<Line<P>> {
        Line::of_key(policy, state, (&self.clock, &self.observer), self.options.bounds)
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
        let read = self.clock.now();
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
    fn open(&self, shard: &mut Shard<K, P>, number: usize, bucket: usize) -> (GrantId, &OpenGrant) {
        let open = &self.part(number).open;
        let id = GrantId::new(shard.grant(bucket), number, self.shards.len());
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
            shard.settle(bucket, now);
        }
        let outcome = match shard.decide(bucket, now, cost, max_wait) {
            Some(Ok(charge)) => {
                let open = self.open(shard, number, bucket);
                Ok(GrantOrWait::Granted(self.grant(open, cost, charge)))
            }
            Some(Err(error)) => Err(error),
            None => {
                let line = shard.line(bucket, |policy, state| self.new_line(policy, state));
                Ok(GrantOrWait::Waiting(RateLimiter::of_line(line)))
            }
        };
        if !is_new {
            return outcome;
        }
        let idle_at = shard.idle_at(bucket, now);
        // A refused key takes no room, unless it would begin anew with each call: what its callers wait for would never
        // come.
        let fills = || idle_at.is_none_or(|idle_at| idle_at > now);
        match &outcome {
            Err(Error::Denied { .. }) if fills() => self.added(entered, idle_at),
            Ok(_) => self.added(entered, idle_at),
            Err(_) => {
                let key = shard.remove(bucket);
                entered.gone.keys.push(key);
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
        let new = |policy, state| self.new_line(policy, state);
        let line = entered.shard.line(entered.bucket, new);
        if entered.is_new {
            self.added(entered, None);
        }
        Ok(line)
    }

    /// Finds a key, or puts it into the table.
    fn enter<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        closes: bool,
    ) -> Result<Entered<'_, K, P>, Error> {
        let Options { absent_is_new, max_keys, .. } = self.options;
        let max_keys = if closes { usize::MAX } else { max_keys };
        let hash = self.hash_of(key);
        let number = self.number_of(hash);
        loop {
            let mut gone = Gone { keys: Vec::new(), of: &self.keys };
            let mut shard = self.lock(number);
            if !closes {
                shard.check_open()?;
            }
            let now = shard.time.read(self.clock.now());
            if let Some(bucket) = shard.find(hash, |entry| key.is_key(entry)) {
                return Ok(Entered { shard, gone, number, bucket, now, is_new: false });
            }
            let new = key.to_key();
            let state = shard.absent(&new, absent_is_new, now);
            let more = |keys| (keys < max_keys).then_some(keys + 1);
            if self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                drop(shard);
                drop(new);
                self.make_room(number)?;
                continue;
            }
            let hash_of = |key: &K| self.hash_of(key);
            gone.keys = shard.make_room(now, hash_of);
            let bucket = shard.insert((hash, new), state, now, hash_of);
            return Ok(Entered { shard, gone, number, bucket, now, is_new: true });
        }
    }

    /// A key that is new stays in the table, and is idle from then on, if that is known.
    fn added(&self, entered: Entered<'_, K, P>, idle_at: Option<Nanos>) {
        let Entered { mut shard, now, gone, .. } = entered;
        shard.may_be_idle(idle_at.unwrap_or(Nanos::ZERO));
        drop((shard, gone));
        self.look_again_after(now);
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
        let now = shard.time.read(self.clock.now());
        let copy = match shard.find(hash, |entry| key.is_key(entry)) {
            Some(bucket) => shard
                .copy(bucket, now)
                .ok_or_else(|| shard.line(bucket, |policy, state| self.new_line(policy, state))),
            None => {
                absent = key.to_key();
                let (state, own) = shard.absent(&absent, self.options.absent_is_new, now);
                Ok((shard.policy(&own).clone(), state))
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
        let rule = (self.changes.fetch_add(1, Ordering::Relaxed), &Arc::new(rule));
        for number in 0..self.shards.len() {
            let mut after = Vec::new();
            let mut shard = self.lock(number);
            let now = shard.time.read(self.clock.now());
            let old = shard.set_rule(rule, now, &mut after);
            drop(shard);
            drop(old);
            after.into_iter().for_each(crate::wait_queue::AfterUnlock::run);
            self.look_again_after(now);
        }
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh<Q: ToKey<K> + ?Sized>(&self, key: &Q) {
        let hash = self.hash_of(key);
        let mut after = Vec::new();
        let mut shard = self.lock(self.number_of(hash));
        let Some(bucket) = shard.find(hash, |entry| key.is_key(entry)) else { return };
        let now = shard.time.read(self.clock.now());
        shard.refresh(bucket, now, &mut after);
        drop(shard);
        after.into_iter().for_each(crate::wait_queue::AfterUnlock::run);
        self.look_again_after(now);
    }

    /// Lets no caller in at any key. Returns the limiters, at which callers may wait.
    pub(super) fn close(&self, end: End<'_>) -> Vec<Arc<Line<P>>> {
        let close = |number| {
            let mut shard = self.lock(number);
            shard.is_closed = true;
            shard.lines()
        };
        let mut lines: Vec<_> = (0..self.shards.len()).flat_map(close).collect();
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
        (0..self.shards.len()).flat_map(|number| self.lock(number).lines()).map(waiting).sum()
    }

    pub(super) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::with_capacity(self.len());
        for number in 0..self.shards.len() {
            keys.extend(self.lock(number).keys().cloned());
        }
        keys
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for number in 0..self.shards.len() {
            let shard = self.lock(number);
            stats.add(shard.stats);
            let lines = shard.lines();
            drop(shard);
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
        if self.part(number).open.close(id) {
            return;
        }
        let mut shard = self.lock(number);
        let line = shard.held.remove(&id);
        let now = shard.time.read(self.clock.now());
        drop(shard);
        drop(line);
        self.look_again_after(now);
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        self.this.upgrade().unwrap_or_else(|| unreachable!("borrowed from its owner"))
    }
}
