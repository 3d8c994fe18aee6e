//! One shard of the keys, under one lock: a hash table of keys, and what is kept of each.
//!
//! A key is kept as a word if its policy has that form, else as a state beside the table. Both decide as a limiter does
//! while no caller waits. A key at which a caller waits, a grant is kept, or the policy is the key's own is a limiter, a
//! [`Line`]. It goes back to a word or a state when the limiter has nothing to do.
//!
//! The last grant may still be settled, so its key must stay. Most grants are dropped before the next call: they are
//! only noted, beside the lock. If one is still there when the lock is taken again, its key becomes a limiter, which
//! counts corrections, and which the grant finds by its number.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use slab::Slab;

use crate::clock::{AfterUnlock, Clock, Monotone};
use crate::error::Error;
use crate::line::{self, Charge, Decided, Line};
use crate::observe::{Observer, Reports};
use crate::policy::schedule::Attempt;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::rate_limiter::GrantId;
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{Bounds, NEVER};

/// So few keys stay, idle or not.
const FEW: usize = 16;

/// What the shards have in common.
pub(super) struct Common {
    pub(super) clock: Clock,
    pub(super) hasher: DefaultHashBuilder,
    pub(super) options: Options,
    /// Of all keys.
    pub(super) observer: Arc<Observer>,
    /// The number of keys.
    pub(super) keys: AtomicUsize,
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

impl Common {
    /// The limiter of a key.
    fn line<P: Policy>(&self, policy: P, state: P::State) -> Arc<Line<P>> {
        let shared = (self.clock.clone(), Arc::clone(&self.observer));
        Line::new(policy, Some(state), shared, self.options.bounds)
    }
}

/// Where the policy of a key comes from.
pub(super) enum Rule<K, P> {
    One(P),
    /// A function of the key. Each key is a limiter then.
    Each(Box<dyn Fn(&K) -> P + Send + Sync>),
}

impl<K, P: Clone> Rule<K, P> {
    fn policy(&self, key: &K) -> P {
        match self {
            Self::One(policy) => policy.clone(),
            Self::Each(policy_of) => policy_of(key),
        }
    }
}

/// A key with its state in 63 bits, or with the top bit and the place of its [`Other`] form. A word has no room for what
/// refunds need, so no grant of its key is kept.
// 16 bytes if the key takes 8: no key lies in two cache lines, and more of them in the processor's caches.
struct Entry<K> {
    key: K,
    word: u64,
}

const OTHER: u64 = 1 << 63;

/// What is kept of a key that is no word.
enum Other<P: Policy> {
    State(P::State),
    Line(Arc<Line<P>>),
}

/// What is kept of a key, with the rule and the counts of its shard.
struct Kept<'a, K, P: Policy> {
    word: &'a mut u64,
    others: &'a mut Slab<Other<P>>,
    rule: &'a Rule<K, P>,
    stats: &'a mut Stats,
}

impl<K, P: Policy> Kept<'_, K, P> {
    fn place(&self) -> Option<usize> {
        usize::try_from(self.word.checked_sub(OTHER)?).ok()
    }

    fn other(&mut self) -> Option<&mut Other<P>> {
        self.others.get_mut(self.place()?)
    }

    fn remove(&mut self) -> Option<Other<P>> {
        self.place().map(|place| self.others.remove(place))
    }

    fn set_line(&mut self, line: Arc<Line<P>>) {
        self.remove();
        *self.word = OTHER + self.others.insert(Other::Line(line)) as u64;
    }

    fn set_state(&mut self, policy: &P, state: P::State, now: Nanos) {
        self.remove();
        let word =
            P::ONE_RATE.and_then(|one| (one.schedule)(policy)?.pack((one.state)(&state), now));
        *self.word = word.unwrap_or_else(|| OTHER + self.others.insert(Other::State(state)) as u64);
    }

    /// Uses the state with its policy. `None`: the key is a limiter.
    fn with<R>(&mut self, now: Nanos, act: impl FnOnce(&P, &mut P::State) -> R) -> Option<R> {
        let Rule::One(policy) = self.rule else { return None };
        match self.other() {
            Some(Other::Line(_)) => None,
            Some(Other::State(state)) => Some(act(policy, state)),
            None => {
                let one = P::ONE_RATE?;
                let mut state = (one.from_state)((one.schedule)(policy)?.unpack(*self.word));
                let result = act(policy, &mut state);
                self.set_state(policy, state, now);
                Some(result)
            }
        }
    }

    /// From when on the key is idle; `None` while it is in use. A limiter that has nothing to do becomes a state.
    fn idle_at(&mut self, now: Nanos) -> Option<Nanos> {
        let rule = self.rule;
        if let Some(Other::Line(line)) = self.other() {
            // No one else can get at a limiter that this table alone has.
            let is_alone = Arc::strong_count(line) == 1;
            let (state, counts) = line.quiet_state(now).filter(|_| is_alone)?;
            let Rule::One(policy) = rule else {
                return Some(line.policy().idle_at(&state).unwrap_or(NEVER));
            };
            self.stats.add(counts);
            self.set_state(policy, state, now);
        }
        self.with(now, |policy, state| policy.idle_at(state).unwrap_or(NEVER))
    }
}

// What a granted call writes comes first, in one cache line with the lock: two processors pass it to each other.
#[repr(C)]
pub(super) struct Shard<K, P: Policy> {
    table: HashTable<Entry<K>>,
    /// The last grant, and the bucket of the key that was asked last.
    id: GrantId,
    last: usize,
    rule: Arc<Rule<K, P>>,
    others: Slab<Other<P>>,
    pub(super) is_closed: bool,
    shards: usize,
    common: Arc<Common>,
    time: Monotone,
    /// No key is idle before.
    idle_from: Nanos,
    /// The number of keys at which idle ones go.
    sweep_at: usize,
    /// The limiters of grants that are kept.
    pub(super) held: BTreeMap<GrantId, Arc<Line<P>>>,
    /// Without the grants of keys that have no limiter, which `id` counts.
    pub(super) stats: Stats,
    /// Grants of no permits: they are not counted.
    free: u64,
}

impl<K: Hash, P: Policy> Shard<K, P> {
    pub(super) fn new(
        rule: Arc<Rule<K, P>>,
        common: Arc<Common>,
        (number, shards): (usize, usize),
    ) -> Self {
        Self {
            table: HashTable::new(),
            id: GrantId::before(number, shards),
            last: 0,
            rule,
            others: Slab::new(),
            is_closed: false,
            shards,
            common,
            time: Monotone::new(Nanos::ZERO),
            idle_from: NEVER,
            sweep_at: FEW,
            held: BTreeMap::new(),
            stats: Stats::default(),
            free: 0,
        }
    }

    /// The current time, in the order of the decisions under this lock, but for those of [`attempt`](Self::attempt).
    pub(super) fn now(&mut self) -> Nanos {
        self.time.read(self.common.clock.now())
    }

    /// The bucket of a key. It is valid until a key is added or the lock is released.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<usize> {
        self.table.find_bucket_index(hash, |entry| is_it(&entry.key))
    }

    fn kept(&mut self, bucket: usize) -> Kept<'_, K, P> {
        let Self { table, others, rule, stats, .. } = self;
        let Entry { word, .. } = table.get_bucket_mut(bucket).expect("found under this lock");
        Kept { word, others, rule, stats }
    }

    /// Decides a call by the word of its key, if there is one and it is enough, and counts a refusal: the same decision as by
    /// its state, in fewer steps.
    #[inline(always)]
    pub(super) fn attempt(
        &mut self,
        (hash, is_it): (u64, impl Fn(&K) -> bool),
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Decided<P> {
        if self.is_closed || cost.is_zero() {
            return None;
        }
        let entry = self.table.find_entry(hash, |entry| is_it(&entry.key)).ok()?;
        self.last = entry.bucket_index();
        let (Rule::One(policy), one) = (&*self.rule, P::ONE_RATE?) else { return None };
        let word = Some(&mut entry.into_mut().word).filter(|word| **word < OTHER)?;
        // Time that goes back by nanoseconds from one processor to another only delays a grant: no order of times is kept.
        match (one.schedule)(policy)?.attempt_packed(*word, now, cost.number(0)) {
            Attempt::Granted((state, receipt)) => {
                *word = state;
                Some(Ok(Charge::at_once(Some((one.receipt)(receipt)))))
            }
            Attempt::ReadyAt(due) if line::is_too_late(max_wait, due, now) => {
                self.stats.refused += 1;
                Some(Err(Error::Denied { retry_after: Some(due.since(now)), part: None }))
            }
            Attempt::ReadyAt(_) | Attempt::Undecided => None,
        }
    }

    /// Decides a call by the state of its key, and counts a refusal. `None`: it takes the [line](Self::line) of the key, to
    /// wait or to hold a place.
    pub(super) fn decide(
        &mut self,
        bucket: usize,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Decided<P> {
        self.last = bucket;
        let now = self.time.latest();
        let mut kept = self.kept(bucket);
        if !P::HELD && matches!(kept.rule, Rule::One(_)) {
            // A limiter that has nothing to do becomes a state again.
            kept.idle_at(now);
        }
        let decide = |policy: &P, state: &mut _| {
            if P::HELD && (cost.is_zero() || policy.is_ready(state, now, cost)) {
                // No receipt of a key without a limiter can be given back.
                None
            } else if cost.is_zero() {
                Some(Ok(Charge::at_once(None)))
            } else {
                line::decide(policy, state, now, cost, max_wait)
            }
        };
        let decided = kept.with(now, decide)??;
        match &decided {
            Ok(charge) => self.free += u64::from(charge.receipt.is_none()),
            Err(_) => self.stats.refused += 1,
        }
        Some(decided)
    }

    /// A grant is made at the key that was asked last.
    #[inline]
    pub(super) fn grant(&mut self) -> GrantId {
        self.id = self.id.next(self.shards);
        self.id
    }

    /// The counts of all keys without a limiter.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.granted += self.id.count(self.shards) - self.free;
        stats
    }

    /// Another call comes before the last grant is dropped.
    #[cold]
    pub(super) fn hold(&mut self, id: GrantId) {
        let line = self.line(self.last);
        self.held.insert(id, line);
    }

    /// The limiter of a key, made if it has none.
    pub(super) fn line(&mut self, bucket: usize) -> Arc<Line<P>> {
        // What is done with it may make the key idle earlier.
        self.idle_from = Nanos::ZERO;
        if let Some((policy, state)) = self.copy(bucket, self.time.latest()) {
            let line = self.common.line(policy, state);
            self.kept(bucket).set_line(line);
        }
        let mut kept = self.kept(bucket);
        let Some(Other::Line(line)) = kept.other() else { unreachable!("it has one now") };
        Arc::clone(line)
    }

    /// All limiters.
    pub(super) fn lines(&self) -> Vec<Arc<Line<P>>> {
        let line = |(_, other): (usize, &Other<P>)| match other {
            Other::Line(line) => Some(Arc::clone(line)),
            Other::State(_) => None,
        };
        self.others.iter().filter_map(line).collect()
    }

    /// A copy of the policy and the state of a key. `None`: it is a limiter.
    pub(super) fn copy(&mut self, bucket: usize, now: Nanos) -> Option<(P, P::State)> {
        self.kept(bucket).with(now, |policy, state| (policy.clone(), state.clone()))
    }

    /// The policy and the state of an absent key. Calls the function of the key.
    pub(super) fn absent(&self, key: &K, now: Nanos) -> (P, P::State) {
        let policy = self.rule.policy(key);
        let is_new = self.common.options.absent_is_new;
        let state = if is_new { policy.start(now) } else { policy.idle(now) };
        (policy, state)
    }

    /// Removes idle keys before another one comes, each time that there are twice as many keys as were left the last time.
    /// What goes is to be dropped without the lock, as the drop of a key may run any code.
    pub(super) fn make_room(&mut self) -> Vec<K> {
        if self.table.len() < self.sweep_at {
            return Vec::new();
        }
        let gone = self.sweep().1;
        self.sweep_at = FEW.max(2 * self.table.len());
        gone
    }

    /// Adds a key that is absent and has been counted.
    pub(super) fn insert(
        &mut self,
        (hash, key): (u64, K),
        (policy, state): (P, P::State),
        now: Nanos,
    ) -> usize {
        self.idle_from = Nanos::ZERO;
        let hash_of = |entry: &Entry<K>| self.common.hasher.hash_one(&entry.key);
        let entry = self.table.insert_unique(hash, Entry { key, word: 0 }, hash_of);
        let bucket = entry.bucket_index();
        match &*self.rule {
            Rule::One(_) => self.kept(bucket).set_state(&policy, state, now),
            Rule::Each(_) => {
                let line = self.common.line(policy, state);
                self.kept(bucket).set_line(line);
            }
        }
        bucket
    }

    /// Removes all idle keys, unless it is known that there are none. Returns how many keys it looked at, and those that
    /// go.
    pub(super) fn sweep(&mut self) -> (usize, Vec<K>) {
        let now = self.now();
        if self.idle_from > now {
            return (0, Vec::new());
        }
        let Self { table, others, rule, stats, common, .. } = self;
        let (looked, mut idle_from) = (table.len(), NEVER);
        let leaves = |Entry { word, .. }: &mut Entry<K>| {
            let mut kept = Kept { word, others, rule, stats };
            let idle_at = kept.idle_at(now);
            let goes = idle_at.is_some_and(|idle_at| idle_at <= now);
            if !goes {
                // Of a key in use it is not known.
                idle_from = idle_from.min(idle_at.unwrap_or_default());
            } else if let Some(Other::Line(line)) = kept.remove() {
                // What it has counted stays.
                stats.add(line.stats());
            }
            goes
        };
        let gone: Vec<_> = table.extract_if(leaves).map(|entry| entry.key).collect();
        common.keys.fetch_sub(gone.len(), Ordering::Relaxed);
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |entry| common.hasher.hash_one(&entry.key));
            others.shrink_to_fit();
        }
        self.idle_from = idle_from;
        (looked, gone)
    }

    /// Puts all keys under another rule. Returns what is left to do without the lock: also to drop the old rule.
    pub(super) fn set_rule(
        &mut self,
        rule: &Arc<Rule<K, P>>,
    ) -> (Vec<AfterUnlock>, Arc<Rule<K, P>>) {
        let (now, mut after) = (self.now(), Vec::new());
        // The function of the key may panic: before anything is changed.
        let policies: Vec<_> = self.keys().map(|key| rule.policy(key)).collect();
        let buckets: Vec<_> = self.table.iter_buckets().collect();
        for (bucket, policy) in buckets.into_iter().zip(policies) {
            match (&**rule, self.copy(bucket, now)) {
                (Rule::One(_), Some((old, mut state))) => {
                    policy.migrate(&old, &mut state, now);
                    self.kept(bucket).set_state(&policy, state, now);
                }
                _ => after.push(self.line(bucket).set_policy(|_| policy)),
            }
        }
        self.idle_from = Nanos::ZERO;
        (after, mem::replace(&mut self.rule, Arc::clone(rule)))
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh(&mut self, bucket: usize) -> Option<AfterUnlock> {
        let Rule::Each(policy_of) = &*self.rule else { return None };
        let policy = policy_of(&self.table.get_bucket(bucket)?.key);
        Some(self.line(bucket).set_policy(|_| policy))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.table.iter().map(|entry| &entry.key)
    }
}
