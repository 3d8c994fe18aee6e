//! One shard of the keys, under one lock: a hash table of keys, and what is kept of each.
//!
//! A call at a key decides on its state, as a limiter does while no caller waits. Where that is not enough the key gets
//! a limiter, [`Line`], and its callers go there.
//!
//! The last grant may still be settled, so its key must stay. Most grants are dropped before the next call: they are
//! only noted, beside the lock. If one is still there when the lock is taken again, its key gets a limiter, in which
//! such corrections are counted, and which the grant finds by its number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use super::states::{Rule, States, Word};
use crate::clock::Monotone;
use crate::error::Error;
use crate::line::{Charge, Line, denied};
use crate::policy::packed::Attempt;
use crate::policy::{Cost, Policy};
use crate::rate_limiter::GrantId;
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, NEVER};

// In the order of use, so that a call needs few cache lines of it.
#[repr(C)]
pub(super) struct Shard<K, P: Policy> {
    pub(super) is_closed: bool,
    pub(super) time: Monotone,
    table: HashTable<Entry<K>>,
    /// The number of grants, and the bucket of the last one's key.
    grants: u64,
    last: usize,
    states: States<K, P>,
    pub(super) stats: Stats,
    /// The number of the change of the rule that holds here.
    changes: u64,
    /// The limiters of grants that are kept.
    pub(super) held: BTreeMap<GrantId, Arc<Line<P>>>,
    /// No key is idle before.
    idle_from: Nanos,
}

struct Entry<K> {
    key: K,
    word: Word,
}

/// What a sweep found.
pub(super) struct Swept {
    /// How many keys it looked at, and how many of them went.
    pub(super) looked: usize,
    pub(super) went: usize,
    /// From when on one of those that stay is idle.
    pub(super) idle_from: Nanos,
    /// Whether there are keys of which this is not known: with waiters, or grants that are kept.
    pub(super) is_in_use: bool,
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
) -> Option<Result<Charge<P::Receipt>, Error>> {
    let is_ready = cost.is_zero() || (P::HOOKS.ready_now)(policy, state, now, cost);
    if is_ready && P::HELD {
        return None;
    }
    if is_ready {
        // No receipt of a key without a limiter can be given back.
        let receipt = (!cost.is_zero()).then(|| (P::HOOKS.charge_alone)(policy, state, now, cost));
        return Some(Ok(Charge { waited: 0, receipt, limited_by: None }));
    }
    refuse(policy, state, now, cost, max_wait).map(Err)
}

/// The error of a caller that is not ready, unless it can wait.
fn refuse<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Option<Error> {
    let ready = match policy.ready_at(state, now, cost) {
        Ok(ready) => ready,
        Err(error) => return Some(error.into()),
    };
    let is_too_late =
        |wait: Duration| wait.is_zero() || now.saturating_add(wait) < ready.earliest();
    max_wait.is_some_and(is_too_late).then(|| denied(policy, state, now, cost, ready))
}

impl<K, P: Policy> Shard<K, P> {
    pub(super) fn new(rule: Arc<Rule<K, P>>) -> Self {
        Self {
            time: Monotone::new(Nanos::ZERO),
            table: HashTable::new(),
            states: States::new(rule),
            stats: Stats::default(),
            is_closed: false,
            changes: 0,
            grants: 0,
            last: 0,
            held: BTreeMap::new(),
            idle_from: NEVER,
        }
    }

    /// Refuses a caller of a closed table.
    pub(super) fn check_open(&mut self) -> Result<(), Error> {
        self.stats.refused += u64::from(self.is_closed);
        if self.is_closed { Err(Error::Closed) } else { Ok(()) }
    }

    #[inline(always)]
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
    ) -> Attempt<(usize, P::Receipt)> {
        let Ok(entry) = self.table.find_entry(hash, |entry| is_it(&entry.key)) else {
            return Attempt::Undecided;
        };
        let bucket = entry.bucket_index();
        match self.states.attempt(&mut entry.into_mut().word, now, cost) {
            Attempt::Granted(receipt) => Attempt::Granted((bucket, receipt)),
            Attempt::NotBefore(due) => Attempt::NotBefore(due),
            Attempt::Undecided => Attempt::Undecided,
        }
    }

    /// Decides a call, and counts it. `None`: it takes the [line](Self::line) of the key.
    pub(super) fn decide(
        &mut self,
        bucket: usize,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        let decided = self
            .states
            .with(word, now, |policy, state| decide(policy, state, now, cost, max_wait))??;
        match &decided {
            Ok(charge) => self.stats.granted += u64::from(charge.receipt.is_some()),
            Err(_) => self.stats.refused += 1,
        }
        Some(decided)
    }

    /// A grant was made. Its number among those of this shard.
    #[inline]
    pub(super) fn grant(&mut self, bucket: usize) -> u64 {
        self.last = bucket;
        self.grants += 1;
        self.grants
    }

    /// Another call comes before the last grant is dropped.
    #[cold]
    pub(super) fn hold(&mut self, id: GrantId, new: impl FnOnce(P, P::State) -> Arc<Line<P>>) {
        let line = self.line(self.last, new);
        self.held.insert(id, line);
    }

    /// The limiter of a key, made by `new` if it has none.
    pub(super) fn line(
        &mut self,
        bucket: usize,
        new: impl FnOnce(P, P::State) -> Arc<Line<P>>,
    ) -> Arc<Line<P>> {
        self.idle_from = Nanos::ZERO;
        self.states.line(&mut self.table.get_bucket_mut(bucket).expect(FOUND).word, new)
    }

    /// All limiters.
    pub(super) fn lines(&self) -> Vec<Arc<Line<P>>> {
        self.states.lines().cloned().collect()
    }

    /// Puts a key back into as little as it needs.
    pub(super) fn settle(&mut self, bucket: usize, now: Nanos) {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        self.states.settle(word, now, &mut self.stats);
    }

    /// A copy of the policy and the state of a key. `None`: it has a limiter.
    pub(super) fn copy(&mut self, bucket: usize, now: Nanos) -> Option<(P, P::State)> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        self.states.with(word, now, |policy, state| (policy.clone(), state.clone()))
    }

    /// Adds a key that is absent. The table must have [room](Self::make_room).
    pub(super) fn insert(
        &mut self,
        (hash, key): (u64, K),
        (state, own): (P::State, Option<Box<P>>),
        now: Nanos,
        hash_of: impl Fn(&K) -> u64,
    ) -> usize {
        let word = self.states.add(state, own, now);
        let entry = Entry { key, word };
        self.table.insert_unique(hash, entry, |entry| hash_of(&entry.key)).bucket_index()
    }

    /// Before the table doubles, the keys that are idle go.
    pub(super) fn make_room(&mut self, now: Nanos, hash_of: impl Fn(&K) -> u64) -> Vec<K> {
        if self.table.len() < self.table.capacity() {
            return Vec::new();
        }
        let gone = self.sweep_idle(now, &hash_of).0;
        if gone.len() <= self.table.len() / 4 {
            self.table.reserve(self.table.len() + 1, |entry| hash_of(&entry.key));
        }
        gone
    }

    /// From when on a key is idle; `None` while it is in use.
    pub(super) fn idle_at(&mut self, bucket: usize, now: Nanos) -> Option<Nanos> {
        let word = &mut self.table.get_bucket_mut(bucket).expect(FOUND).word;
        let idle_at = self.states.with(word, now, |policy, state| policy.idle_at(state))?;
        Some(idle_at.unwrap_or(NEVER))
    }

    /// A key may be idle from then on.
    pub(super) fn may_be_idle(&mut self, from: Nanos) {
        self.idle_from = self.idle_from.min(from);
    }

    pub(super) fn remove(&mut self, bucket: usize) -> K {
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { unreachable!("{FOUND}") };
        let Entry { key, word } = entry.remove().0;
        self.states.remove(word);
        key
    }

    /// Removes all idle keys, and returns them: the drop of a key may run any code, and needs to be without a lock.
    pub(super) fn sweep_idle(
        &mut self,
        now: Nanos,
        hash_of: impl Fn(&K) -> u64,
    ) -> (Vec<K>, Swept) {
        if self.idle_from > now {
            let idle_from = self.idle_from;
            return (Vec::new(), Swept { looked: 0, went: 0, idle_from, is_in_use: false });
        }
        self.sweep(now, hash_of, |_, idle_at| idle_at <= now)
    }

    /// Removes the keys that are not in use and for which `goes` returns `true`.
    pub(super) fn sweep(
        &mut self,
        now: Nanos,
        hash_of: impl Fn(&K) -> u64,
        mut goes: impl FnMut(&K, Nanos) -> bool,
    ) -> (Vec<K>, Swept) {
        let Self { table, states, stats, .. } = self;
        let (looked, mut idle_from, mut is_in_use) = (table.len(), NEVER, false);
        let leaves = |Entry { key, word }: &mut Entry<K>| {
            states.settle(word, now, stats);
            let Some(idle_at) = states.with(word, now, |policy, state| policy.idle_at(state))
            else {
                is_in_use = true;
                return false;
            };
            let idle_at = idle_at.unwrap_or(NEVER);
            let goes = goes(key, idle_at);
            if goes {
                states.remove(*word);
            } else {
                idle_from = idle_from.min(idle_at);
            }
            goes
        };
        let gone: Vec<_> = table.extract_if(leaves).map(|entry| entry.key).collect();
        // Memory comes back in steps as short as those of growth.
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |entry| hash_of(&entry.key));
        }
        states.shrink();
        self.idle_from = if is_in_use { Nanos::ZERO } else { idle_from };
        let went = gone.len();
        (gone, Swept { looked, went, idle_from, is_in_use })
    }

    /// Puts all keys under another rule, unless a later one holds already. `after` gets what is left to do without a
    /// lock, as is the drop of the old rule.
    pub(super) fn set_rule(
        &mut self,
        (number, rule): (u64, &Arc<Rule<K, P>>),
        now: Nanos,
        after: &mut Vec<AfterUnlock>,
    ) -> Option<Arc<Rule<K, P>>> {
        if self.changes > number {
            return None;
        }
        // The function of the key may panic: before anything is changed.
        let own: Vec<_> = self.table.iter().map(|entry| rule.own(&entry.key)).collect();
        let old = std::mem::replace(&mut self.states.rule, Arc::clone(rule));
        for (entry, own) in self.table.iter_mut().zip(own) {
            self.states.renew(&mut entry.word, own, &old, now, after);
        }
        (self.changes, self.idle_from) = (number, Nanos::ZERO);
        Some(old)
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh(&mut self, bucket: usize, now: Nanos, after: &mut Vec<AfterUnlock>) {
        let entry = self.table.get_bucket_mut(bucket).expect(FOUND);
        let rule = Arc::clone(&self.states.rule);
        if let own @ Some(_) = rule.own(&entry.key) {
            self.states.renew(&mut entry.word, own, &rule, now, after);
            self.idle_from = Nanos::ZERO;
        }
    }

    /// The state of an absent key, with its policy if it has one of its own. Calls the function of the key.
    pub(super) fn absent(&self, key: &K, is_new: bool, now: Nanos) -> (P::State, Option<Box<P>>) {
        let own = self.states.rule.own(key);
        let policy = self.states.rule.policy(&own);
        (if is_new { policy.start(now) } else { policy.idle(now) }, own)
    }

    pub(super) fn policy<'a>(&'a self, own: &'a Option<Box<P>>) -> &'a P {
        self.states.rule.policy(own)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.table.iter().map(|entry| &entry.key)
    }
}
