//! One shard of the keys, under one lock: a hash table of keys, and what is kept of each.
//!
//! A call at a key decides on its state, as a limiter does while no caller waits. Where that is not enough the key gets
//! a limiter, [`Line`], and its callers go there.
//!
//! The last grant may still be settled, so its key must stay. Most grants are dropped before the next call: they are
//! only noted, beside the lock. If one is still there when the lock is taken again, its key gets a limiter, in which
//! such corrections are counted, and which the grant finds by its number.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use super::common::Common;
use super::states::{Rule, States, Word};
use crate::clock::Monotone;
use crate::line::{self, Charge, Decided, Line};
use crate::policy::packed::Attempt;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::rate_limiter::GrantId;
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, NEVER};

// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
pub(super) struct Shard<K, P: Policy, S> {
    pub(super) is_closed: bool,
    pub(super) time: Monotone,
    table: HashTable<Entry<K>>,
    /// The number of grants, and the bucket of the key that was asked last.
    grants: u64,
    last: usize,
    pub(super) stats: Stats,
    states: States<K, P>,
    /// The number of the change of the rule that holds here.
    changes: u64,
    /// The limiters of grants that are kept.
    pub(super) held: BTreeMap<GrantId, Arc<Line<P>>>,
    /// No key is idle before, and the alarm need not look before.
    idle_from: Nanos,
    pub(super) look_at: Nanos,
    /// Since when there have been keys of which the first is not known: with waiters, or grants that are kept.
    in_use_since: Option<Nanos>,
    common: Arc<Common<S>>,
}

struct Entry<K> {
    key: K,
    word: Word,
}

/// A bucket is valid until a key is added or the lock is released.
const FOUND: &str = "found under this lock";

/// Decides about a caller at a key at which none waits. `None`: it has to wait, or holds a place. Both need a limiter.
fn decide<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Decided<P> {
    if P::HELD && (cost.is_zero() || policy.is_ready(state, now, cost)) {
        // No receipt of a key without a limiter can be given back.
        return None;
    }
    if cost.is_zero() {
        Some(Ok(Charge::at_once(None)))
    } else {
        line::decide(policy, state, now, cost, max_wait)
    }
}

impl<K: Hash, P: Policy, S: BuildHasher> Shard<K, P, S> {
    pub(super) fn new(rule: Arc<Rule<K, P>>, common: Arc<Common<S>>) -> Self {
        Self {
            is_closed: false,
            time: Monotone::new(Nanos::ZERO),
            table: HashTable::new(),
            grants: 0,
            last: 0,
            stats: Stats::default(),
            states: States::new(rule),
            changes: 0,
            held: BTreeMap::new(),
            idle_from: NEVER,
            look_at: NEVER,
            in_use_since: None,
            common,
        }
    }

    /// The current time, in the order of the decisions under this lock.
    pub(super) fn now(&mut self) -> Nanos {
        self.time.read(self.common.clock.now())
    }

    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<usize> {
        self.table.find_bucket_index(hash, |entry| is_it(&entry.key))
    }

    /// Decides a call by the word of its key, if there is one and it is enough. Counts nothing.
    #[inline(always)]
    pub(super) fn attempt(
        &mut self,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        now: Nanos,
        cost: P::Cost,
    ) -> Attempt<P::Receipt> {
        let Ok(entry) = self.table.find_entry(hash, |entry| is_it(&entry.key)) else {
            return Attempt::Undecided;
        };
        self.last = entry.bucket_index();
        self.states.attempt(&mut entry.into_mut().word, now, cost)
    }

    /// Decides a call by the state of its key, and counts it. `None`: it takes the [line](Self::line) of the key.
    pub(super) fn decide(
        &mut self,
        bucket: usize,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Decided<P> {
        self.last = bucket;
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        let decide = |policy: &P, state: &mut _| decide(policy, state, now, cost, max_wait);
        let decided = self.states.with(word, now, decide)??;
        match &decided {
            Ok(charge) => self.stats.granted += u64::from(charge.receipt.is_some()),
            Err(_) => self.stats.refused += 1,
        }
        Some(decided)
    }

    /// A grant was made at the key that was asked last. Its number among those of this shard.
    #[inline]
    pub(super) fn grant(&mut self) -> u64 {
        self.grants += 1;
        self.grants
    }

    /// Another call comes before the last grant is dropped.
    #[cold]
    pub(super) fn hold(&mut self, id: GrantId) {
        let line = self.line(self.last);
        self.held.insert(id, line);
    }

    /// The limiter of a key, made if it has none.
    pub(super) fn line(&mut self, bucket: usize) -> Arc<Line<P>> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        if let Some(line) = self.states.line(*word) {
            return Arc::clone(line);
        }
        let Some(state) = self.states.take(*word) else { unreachable!("it has no limiter") };
        let line = self.common.line(self.states.one().clone(), state);
        *word = self.states.add_line(Arc::clone(&line));
        self.may_be_idle(Nanos::ZERO);
        line
    }

    /// All limiters.
    pub(super) fn lines(&self) -> Vec<Arc<Line<P>>> {
        self.table.iter().filter_map(|entry| self.states.line(entry.word)).cloned().collect()
    }

    /// A copy of the policy and the state of a key. `None`: it has a limiter.
    pub(super) fn copy(&mut self, bucket: usize, now: Nanos) -> Option<(P, P::State)> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        self.states.with(word, now, |policy, state| (policy.clone(), state.clone()))
    }

    /// The policy and the state of an absent key. Calls the function of the key.
    pub(super) fn absent(&self, key: &K, now: Nanos) -> (P, P::State) {
        let policy = self.states.rule.policy_of(key);
        let is_new = self.common.options.absent_is_new;
        let state = if is_new { policy.start(now) } else { policy.idle(now) };
        (policy, state)
    }

    /// Adds a key that is absent. Before the table doubles, the keys that are idle go: they are returned.
    pub(super) fn insert(
        &mut self,
        (hash, key): (u64, K),
        (policy, state): (P, P::State),
        now: Nanos,
    ) -> (usize, Vec<K>) {
        let mut gone = Vec::new();
        if self.table.len() == self.table.capacity() {
            gone = self.sweep_idle(now).1;
            if self.table.len() >= self.table.num_buckets() / 2 {
                let hash_of = |entry: &Entry<K>| self.common.hasher.hash_one(&entry.key);
                self.table.reserve(self.table.len() + 1, hash_of);
            }
        }
        let word = match &*self.states.rule {
            Rule::One(_) => self.states.add_state(&policy, state, now),
            Rule::Each(_) => self.states.add_line(self.common.line(policy, state)),
        };
        let hash_of = |entry: &Entry<K>| self.common.hasher.hash_one(&entry.key);
        (self.table.insert_unique(hash, Entry { key, word }, hash_of).bucket_index(), gone)
    }

    pub(super) fn remove(&mut self, bucket: usize) -> K {
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { unreachable!("{FOUND}") };
        let Entry { key, word } = entry.remove().0;
        self.states.remove(word, &mut self.stats);
        key
    }

    /// From when on a key is idle; `None` while it is in use. A limiter that has nothing to do becomes a state again.
    pub(super) fn idle_at(&mut self, bucket: usize, now: Nanos) -> Option<Nanos> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        self.states.idle_at(word, now, &mut self.stats)
    }

    /// A limiter that has nothing to do becomes a state again.
    pub(super) fn settle(&mut self, bucket: usize, now: Nanos) {
        let word = self.table.get_bucket(bucket).expect(FOUND).word;
        if self.states.line(word).is_some() && matches!(*self.states.rule, Rule::One(_)) {
            self.idle_at(bucket, now);
        }
    }

    /// A key may be idle from then on.
    pub(super) fn may_be_idle(&mut self, from: Nanos) {
        self.idle_from = self.idle_from.min(from);
        self.look_at = self.look_at.min(from);
        self.in_use_since = None;
    }

    /// Removes all idle keys, unless it is known that there are none. Returns how many keys it looked at, and those that
    /// go: the drop of a key may run any code, and needs to be without a lock.
    pub(super) fn sweep_idle(&mut self, now: Nanos) -> (usize, Vec<K>) {
        if self.idle_from > now {
            return (0, Vec::new());
        }
        (self.table.len(), self.sweep(now, |_, idle_at| idle_at <= now))
    }

    /// Removes the keys that are not in use and for which `goes` returns `true`.
    pub(super) fn sweep(&mut self, now: Nanos, mut goes: impl FnMut(&K, Nanos) -> bool) -> Vec<K> {
        let Self { table, states, stats, common, .. } = self;
        let (mut earliest, mut is_in_use) = (NEVER, false);
        let leaves = |Entry { key, word }: &mut Entry<K>| {
            let Some(idle_at) = states.idle_at(word, now, stats) else {
                is_in_use = true;
                return false;
            };
            let goes = goes(key, idle_at);
            if goes {
                states.remove(*word, stats);
            } else {
                earliest = earliest.min(idle_at);
            }
            goes
        };
        let gone = table.extract_if(leaves).map(|entry| entry.key).collect();
        // Memory comes back in steps as short as those of growth.
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |entry| common.hasher.hash_one(&entry.key));
        }
        states.shrink();
        (self.idle_from, self.look_at) = (earliest, earliest);
        if is_in_use {
            // To be looked at after as long again.
            let since = *self.in_use_since.get_or_insert(now);
            self.idle_from = Nanos::ZERO;
            self.look_at = earliest.min(now.saturating_add(now.since(since)));
        } else {
            self.in_use_since = None;
        }
        gone
    }

    /// Puts all keys under another rule, unless a later one holds already. Returns what is left to do without a lock: also
    /// to drop the old rule.
    pub(super) fn set_rule(
        &mut self,
        number: u64,
        rule: &Arc<Rule<K, P>>,
    ) -> (Vec<AfterUnlock>, Option<Arc<Rule<K, P>>>) {
        let (now, mut after) = (self.now(), Vec::new());
        if self.changes > number {
            return (after, None);
        }
        match &**rule {
            Rule::One(policy) => {
                for entry in &mut self.table {
                    if let Some(line) = self.states.line(entry.word) {
                        after.push(line.set_policy_quietly(policy.clone()));
                    } else if let Some(mut state) = self.states.take(entry.word) {
                        policy.migrate(self.states.one(), &mut state, now);
                        entry.word = self.states.add_state(policy, state, now);
                    }
                }
            }
            Rule::Each(policy_of) => {
                // The function of the key may panic: before anything is changed.
                let policy_of = |entry: &Entry<K>| policy_of(&entry.key);
                let policies: Vec<_> = self.table.iter().map(policy_of).collect();
                let buckets: Vec<_> = self.table.iter_buckets().collect();
                for (bucket, policy) in buckets.into_iter().zip(policies) {
                    after.push(self.line(bucket).set_policy_quietly(policy));
                }
            }
        }
        self.may_be_idle(Nanos::ZERO);
        self.changes = number;
        (after, Some(std::mem::replace(&mut self.states.rule, Arc::clone(rule))))
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh(&mut self, bucket: usize) -> Option<AfterUnlock> {
        let key = &self.table.get_bucket(bucket).expect(FOUND).key;
        let Rule::Each(policy_of) = &*self.states.rule else { return None };
        let policy = policy_of(key);
        self.may_be_idle(Nanos::ZERO);
        Some(self.line(bucket).set_policy_quietly(policy))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.table.iter().map(|entry| &entry.key)
    }
}
