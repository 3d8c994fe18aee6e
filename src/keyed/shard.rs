//! One shard of the keys, under one lock. Keys are found by hash and swept in bucket order.
//!
//! A key without waiters is the state of its policy and nothing more. It becomes a line when a caller has to
//! wait or holds a place in flight, and a state again when no caller does.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use crate::clock::{Clock, Steady};
use crate::error::Error;
use crate::limiter::Shared;
use crate::line::Charge;
use crate::observe::Observer;
use crate::policy::{Cost, Policy, Ready};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::Bounds;

pub(super) struct Shard<K, P: Policy> {
    time: Steady,
    /// The latest time read so far. After the clock is set back, nothing is granted before this time.
    not_before: Nanos,
    pub(super) rule: PolicySource<K, P>,
    /// The number of this rule among all rules that the table has had.
    pub(super) rule_number: u64,
    settings: Settings,
    bounds_of: Option<BoundsOf<K>>,
    pub(super) stats: Stats,
    /// The place of an entry is the index of its bucket.
    entries: HashTable<Entry<K, P>>,
    next_id: u32,
    /// The next bucket that the sweep visits.
    hand: usize,
    /// The number of calls since the last sweep.
    calls: usize,
}

/// The source of a key's policy.
pub(super) enum PolicySource<K, P> {
    One(P),
    /// A function of the key.
    Each(Arc<dyn Fn(&K) -> P + Send + Sync>),
}

/// The bounds of a key's queue, where they differ by key.
pub(super) type BoundsOf<K> = Arc<dyn Fn(&K) -> Bounds + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The bounds of each key's queue, unless they differ by key.
    pub(super) bounds: Bounds,
    /// Whether an absent key begins as a new one instead of an idle one.
    pub(super) absent_is_new: bool,
}

pub(super) struct Entry<K, P: Policy> {
    pub(super) key: K,
    hash: u64,
    pub(super) id: u32,
    /// The number of grants that may still be settled. They keep the key in the table.
    pub(super) pins: u32,
    /// The key's own policy, if each key has one.
    own: Option<Box<P>>,
    pub(super) slot: Slot<P>,
}

pub(super) enum Slot<P: Policy> {
    Quiet(P::State),
    Busy(Arc<Shared<P>>),
}

/// The decision about a call at a key without waiters.
pub(super) enum Decision<R> {
    Granted(Charge<R>),
    /// The call has to wait, or its grant is held. Both need a line.
    NeedsLine,
}

/// A place is valid until the lock is released.
const FOUND: &str = "found under this lock";

impl<K, P: Policy> PolicySource<K, P> {
    /// The key's own policy, to be stored with it; `None` if all keys share one policy.
    pub(super) fn own(&self, key: &K) -> Option<Box<P>> {
        match self {
            Self::One(_) => None,
            Self::Each(policy_of) => Some(Box::new(policy_of(key))),
        }
    }

    fn policy<'a>(&'a self, own: Option<&'a P>) -> &'a P {
        match (own, self) {
            (Some(policy), _) | (None, Self::One(policy)) => policy,
            (None, Self::Each(_)) => unreachable!("each key has its own"),
        }
    }
}

impl<K, P: Policy> Clone for PolicySource<K, P> {
    fn clone(&self) -> Self {
        match self {
            Self::One(policy) => Self::One(policy.clone()),
            Self::Each(policy_of) => Self::Each(Arc::clone(policy_of)),
        }
    }
}

impl<K, P: Policy> Shard<K, P> {
    pub(super) fn new(
        rule: PolicySource<K, P>,
        settings: Settings,
        bounds_of: Option<BoundsOf<K>>,
        step: Duration,
    ) -> Self {
        Self {
            time: Steady::new(Nanos::ZERO, step),
            not_before: Nanos::ZERO,
            rule,
            rule_number: 0,
            settings,
            bounds_of,
            stats: Stats::default(),
            entries: HashTable::new(),
            next_id: 0,
            hand: 0,
            calls: 0,
        }
    }

    /// The current time. It is read under the lock, so that times have the order of events.
    pub(super) fn now(&mut self, clock: &Clock) -> Nanos {
        let now = self.time.read(clock.now());
        self.not_before = self.not_before.max(now);
        now
    }

    /// The time from which refunds are computed.
    pub(super) fn since(&self) -> Nanos {
        self.not_before
    }

    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<usize> {
        self.entries.find_bucket_index(hash, |entry| entry.hash == hash && is_it(&entry.key))
    }

    /// The place of the entry `id`; `hint` is its last known place.
    pub(super) fn find_id(&self, hash: u64, id: u32, hint: usize) -> Option<usize> {
        let is_it = |entry: &Entry<K, P>| entry.hash == hash && entry.id == id;
        if self.entries.get_bucket(hint).is_some_and(is_it) {
            return Some(hint);
        }
        self.entries.find_bucket_index(hash, is_it)
    }

    pub(super) fn entry(&self, place: usize) -> &Entry<K, P> {
        self.entries.get_bucket(place).expect(FOUND)
    }

    pub(super) fn entry_mut(&mut self, place: usize) -> &mut Entry<K, P> {
        self.entries.get_bucket_mut(place).expect(FOUND)
    }

    pub(super) fn is_taken(&self, place: usize) -> bool {
        self.entries.get_bucket(place).is_some()
    }

    pub(super) fn buckets(&self) -> usize {
        self.entries.num_buckets()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K, P>> {
        self.entries.iter()
    }

    /// An entry for an absent key, not in the table yet. Calls the function of the key, which may panic.
    pub(super) fn absent(&self, hash: u64, key: K, now: Nanos) -> Entry<K, P> {
        let own = self.rule.own(&key);
        let policy = self.rule.policy(own.as_deref());
        let state = if self.settings.absent_is_new { policy.start(now) } else { policy.idle(now) };
        Entry { key, hash, id: 0, pins: 0, own, slot: Slot::Quiet(state) }
    }

    pub(super) fn insert(&mut self, mut entry: Entry<K, P>) -> usize {
        entry.id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.entries.insert_unique(entry.hash, entry, |entry| entry.hash).bucket_index()
    }

    /// Counts this call, and returns whether `calls` calls have arrived since the last sweep.
    pub(super) fn is_time_to_sweep(&mut self, calls: usize) -> bool {
        self.calls += 1;
        let is_time = self.calls >= calls;
        if is_time {
            self.calls = 0;
        }
        is_time
    }

    /// Visits the next buckets, at most `most`, and removes idle keys. Returns the number of buckets visited,
    /// and whether the last bucket was among them.
    pub(super) fn forget_idle(
        &mut self,
        now: Nanos,
        most: usize,
        forgotten: &mut Vec<Entry<K, P>>,
    ) -> (usize, bool) {
        let start = self.hand;
        while self.hand < self.buckets() && self.hand - start < most {
            let place = self.hand;
            // Advanced before the policy is called: if it panics at this key, the next sweep skips it.
            self.hand += 1;
            if self.is_taken(place)
                && self.is_idle(place, now)
                && let Ok(entry) = self.entries.get_bucket_entry(place)
            {
                forgotten.push(entry.remove().0);
            }
        }
        let looked = self.hand - start;
        let at_end = self.hand >= self.buckets();
        if at_end {
            self.hand = 0;
            if self.entries.len() < self.buckets() / 8 {
                self.entries.shrink_to(2 * self.entries.len(), |entry| entry.hash);
            }
        }
        (looked, at_end)
    }

    fn is_idle(&mut self, place: usize, now: Nanos) -> bool {
        self.demote(place, now);
        let entry = self.entry(place);
        let Slot::Quiet(state) = &entry.slot else { return false };
        entry.pins == 0 && self.policy_of(entry).idle_at(state).is_some_and(|time| time <= now)
    }

    /// Turns a line that is no longer needed back into a state.
    fn demote(&mut self, place: usize, now: Nanos) {
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        if let Slot::Busy(line) = &entry.slot
            && Arc::strong_count(line) == 1
            && let Some((state, stats)) = line.quiet_state(now)
        {
            self.stats.add(stats);
            entry.slot = Slot::Quiet(state);
            entry.forget_receipts(&self.rule);
        }
    }

    /// The key's line, created if there is none.
    pub(super) fn line(
        &mut self,
        place: usize,
        clock: &Clock,
        observer: &Arc<Observer>,
    ) -> Arc<Shared<P>> {
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        let line = match &entry.slot {
            Slot::Busy(line) => return Arc::clone(line),
            Slot::Quiet(state) => {
                let policy = self.rule.policy(entry.own.as_deref()).clone();
                let bounds_of = self.bounds_of.as_ref();
                let bounds =
                    bounds_of.map_or(self.settings.bounds, |bounds_of| bounds_of(&entry.key));
                Shared::of_key(policy, state.clone(), (clock, observer), bounds, self.not_before)
            }
        };
        entry.slot = Slot::Busy(Arc::clone(&line));
        line
    }

    /// Decides a call at a key in the table.
    pub(super) fn decide(
        &mut self,
        place: usize,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Decision<P::Receipt>, Error> {
        if !P::HELD {
            self.demote(place, now);
        }
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        let policy = self.rule.policy(entry.own.as_deref());
        let Slot::Quiet(state) = &mut entry.slot else { return Ok(Decision::NeedsLine) };
        decide(policy, state, entry.pins, now, self.not_before, cost, max_wait).0
    }

    /// Decides a call at an absent key. Also returns whether the key has to be stored.
    pub(super) fn decide_absent(
        &self,
        entry: &mut Entry<K, P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> (Result<Decision<P::Receipt>, Error>, bool) {
        let policy = self.rule.policy(entry.own.as_deref());
        let Slot::Quiet(state) = &mut entry.slot else { unreachable!("made just now") };
        decide(policy, state, entry.pins, now, self.not_before, cost, max_wait)
    }

    /// A grant of a key can no longer be settled.
    pub(super) fn unpin(&mut self, place: usize) {
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        entry.pins -= 1;
        entry.forget_receipts(&self.rule);
    }

    pub(super) fn lines(&self) -> Vec<Arc<Shared<P>>> {
        let line = |entry: &Entry<K, P>| match &entry.slot {
            Slot::Busy(line) => Some(Arc::clone(line)),
            Slot::Quiet(_) => None,
        };
        self.iter().filter_map(line).collect()
    }

    /// The policy in force for an entry, and its slot.
    pub(super) fn parts(&mut self, place: usize) -> (&P, &mut Slot<P>) {
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        (self.rule.policy(entry.own.as_deref()), &mut entry.slot)
    }

    pub(super) fn policy_of<'a>(&'a self, entry: &'a Entry<K, P>) -> &'a P {
        self.rule.policy(entry.own.as_deref())
    }

    /// Puts a key under another rule; `change` does this for a line. Returns the key's old policy.
    pub(super) fn renew(
        &mut self,
        place: usize,
        own: Option<Box<P>>,
        (old, new): (&PolicySource<K, P>, &PolicySource<K, P>),
        now: Nanos,
        change: impl FnOnce(&Shared<P>, P, Option<Bounds>),
    ) -> Option<Box<P>> {
        let entry = self.entries.get_bucket_mut(place).expect(FOUND);
        let (old, new) = (old.policy(entry.own.as_deref()), new.policy(own.as_deref()));
        match &mut entry.slot {
            Slot::Quiet(state) => new.migrate(old, state, now),
            Slot::Busy(line) => {
                let bounds = self.bounds_of.as_ref().map(|bounds_of| bounds_of(&entry.key));
                change(line, new.clone(), bounds);
            }
        }
        if entry.pins == 0
            && let Slot::Quiet(state) = &mut entry.slot
        {
            new.forget_receipts(state);
        }
        std::mem::replace(&mut entry.own, own)
    }
}

impl<K, P: Policy> Entry<K, P> {
    /// Without a grant that can be settled, a key keeps only what decides later calls.
    fn forget_receipts(&mut self, rule: &PolicySource<K, P>) {
        if self.pins == 0
            && let Slot::Quiet(state) = &mut self.slot
        {
            rule.policy(self.own.as_deref()).forget_receipts(state);
        }
    }
}

/// Also returns whether the state of the policy has changed. `pins`: how many grants may still be settled.
fn decide<P: Policy>(
    policy: &P,
    state: &mut P::State,
    pins: u32,
    now: Nanos,
    not_before: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> (Result<Decision<P::Receipt>, Error>, bool) {
    if cost.is_zero() {
        let nothing = Charge { waited: 0, receipt: None, limited_by: None };
        let decision = if P::HELD { Decision::NeedsLine } else { Decision::Granted(nothing) };
        return (Ok(decision), true);
    }
    let ready = match policy.ready_at(state, now, cost) {
        Ok(ready) => ready.and(Ready::At(not_before)),
        Err(error) => return (Err(error.into()), false),
    };
    if ready.has_come(now) {
        if P::HELD {
            return (Ok(Decision::NeedsLine), true);
        }
        let receipt = Some(if pins == 0 {
            policy.charge_alone(state, now, cost)
        } else {
            policy.charge(state, now, cost)
        });
        return (Ok(Decision::Granted(Charge { waited: 0, receipt, limited_by: None })), true);
    }
    let cannot_wait = |ready: Ready| {
        max_wait.is_some_and(|wait| wait.is_zero() || now.saturating_add(wait) < ready.earliest())
    };
    if !cannot_wait(ready) {
        return (Ok(Decision::NeedsLine), true);
    }
    let changed = policy.refused(state, now, cost);
    let ready = policy.ready_at(state, now, cost).unwrap_or(ready).and(Ready::At(not_before));
    let part = policy.limited_by(state, now, cost);
    (Err(Error::Denied { retry_after: ready.wait(now), part }), changed)
}
