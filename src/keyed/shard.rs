//! One shard of the keys, under one lock.
//!
//! A key without waiters is the state of its policy and nothing more: a word where that is enough. It gets a record
//! when a grant is kept that may be settled, and a line when a caller has to wait or holds a place in flight; and goes
//! back when that is over.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::arena::Arena;
use super::decide::{Decision, decide};
use super::entry::{Entry, Record, Slot, Word};
use super::hash::NumberHasher;
use super::policy_source::PolicySource;
use super::segments::{Place, Segments, Visit};
use crate::clock::{Clock, Monotone};
use crate::error::Error;
use crate::line::Line;
use crate::observe::Observer;
use crate::policy::packed::Attempt;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::rate_limiter::GrantId;
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::Bounds;

/// More shards than processors, so that a caller rarely finds its shard locked. A model has one key.
pub(super) const SHARDS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// Instead of a number of calls: it is time for a sweep, so each call leaves the short way.
const CLOSED: usize = usize::MAX - 1;

pub(super) struct Shard<K, P: Policy> {
    time: Monotone,
    pub(super) rule: PolicySource<K, P>,
    /// The number of the change that set this rule, from zero on.
    pub(super) rule_number: u64,
    settings: Settings,
    pub(super) stats: Stats,
    pub(super) entries: Segments<Entry<K>>,
    pub(super) records: Arena<Record<P>>,
    /// The grants that were not dropped before the next call came, with the records of their keys.
    held: HashMap<GrantId, Held, NumberHasher>,
    /// The number of grants so far, and the hash and the place of the last one's key.
    grants: u64,
    last: (u64, Place),
    /// The next place that the sweep visits.
    pub(super) hand: Option<Visit>,
    /// The number of calls since the last sweep; or [`CLOSED`].
    calls: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The bounds of each key's queue.
    pub(super) bounds: Bounds,
    /// Whether an absent key begins as a new one instead of an idle one.
    pub(super) absent_is_new: bool,
}

/// The key of a grant that was recorded.
struct Held {
    hash: u64,
    record: u32,
}

/// A key that is not in the table.
pub(super) struct Absent<P: Policy> {
    own: Option<Box<P>>,
    state: P::State,
}

impl<K, P: Policy> Shard<K, P> {
    pub(super) fn new(rule: PolicySource<K, P>, settings: Settings) -> Self {
        Self {
            time: Monotone::new(Nanos::ZERO),
            rule,
            rule_number: 0,
            settings,
            stats: Stats::default(),
            entries: Segments::new(),
            records: Arena::new(),
            held: HashMap::default(),
            grants: 0,
            last: (0, Place::default()),
            hand: None,
            calls: 0,
        }
    }

    /// The current time. It is read under the lock, so that times have the order of events.
    #[inline]
    pub(super) fn now(&mut self, clock: &Clock) -> Nanos {
        self.time.read(clock.now())
    }

    /// Counts this call, unless it is time to sweep; returns whether it did.
    #[inline]
    pub(super) fn count_call(&mut self, calls: usize) -> bool {
        let more = self.calls + 1 < calls;
        self.calls += usize::from(more);
        more
    }

    /// Begins a sweep. An error if the table is closed, where it is always time for one.
    pub(super) fn begin_sweep(&mut self) -> Result<(), Error> {
        self.check_open()?;
        self.calls = 0;
        Ok(())
    }

    /// Lets no caller in any more. Returns the lines, which are to be closed as well.
    pub(super) fn close(&mut self) -> Vec<Arc<Line<P>>> {
        self.calls = CLOSED;
        self.lines()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.calls == CLOSED
    }

    /// Refuses a caller of a closed table.
    pub(super) fn check_open(&mut self) -> Result<(), Error> {
        self.stats.refused += u64::from(self.is_closed());
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// The state of an absent key. Calls the function of the key, which may panic.
    pub(super) fn absent<'a>(&self, key: impl FnOnce() -> &'a K, now: Nanos) -> Absent<P>
    where
        K: 'a,
    {
        let own = match &self.rule {
            PolicySource::One(_) => None,
            each @ PolicySource::Each(_) => each.own(key()),
        };
        let policy = self.rule.policy(own.as_deref());
        let state = if self.settings.absent_is_new { policy.start(now) } else { policy.idle(now) };
        Absent { own, state }
    }

    /// Decides a call at an absent key. Also returns whether the key has to be stored.
    pub(super) fn decide_absent(
        &self,
        absent: &mut Absent<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> (Result<Decision<P::Receipt>, Error>, bool) {
        let policy = self.rule.policy(absent.own.as_deref());
        let (decision, changed) = decide(policy, &mut absent.state, now, cost, max_wait);
        // What is not stored would begin anew with each call: what a refused caller waits for would never come.
        let is_denied = matches!(decision, Err(Error::Denied { .. }));
        let fills = self.settings.absent_is_new
            && policy.idle_at(&absent.state).is_none_or(|idle| idle > now);
        (decision, changed || is_denied && fills)
    }

    /// Puts an absent key into the table.
    pub(super) fn insert(
        &mut self,
        (hash, key): (u64, K),
        Absent { own, state }: Absent<P>,
        now: Nanos,
        hash_of: impl Fn(&Entry<K>) -> u64,
    ) -> Place {
        let record = Record::quiet(state, own);
        let word = self.pack(&record, now).unwrap_or_else(|| self.record(record));
        self.entries.insert(hash, Entry { key, word }, hash_of)
    }

    fn record(&mut self, record: Record<P>) -> Word {
        Word::record(self.records.insert(record))
    }

    /// A record as one word, if nothing is lost.
    fn pack(&self, record: &Record<P>, now: Nanos) -> Option<Word> {
        let packed = P::HOOKS.packed?;
        match (record, &self.rule) {
            (Record { slot: Slot::Quiet(state), own: None, pins: 0 }, PolicySource::One(one)) => {
                (packed.pack)(one, state, now).map(Word::packed)
            }
            _ => None,
        }
    }

    /// The state of a word.
    pub(super) fn unpack(&self, word: u64) -> P::State {
        let packed = P::HOOKS.packed.expect("packed by this table");
        (packed.unpack)(self.rule.policy(None), word)
    }

    /// Replaces the state of a key that had a word.
    pub(super) fn store(&mut self, place: Place, state: P::State, now: Nanos) {
        let record = Record::quiet(state, None);
        let word = self.pack(&record, now).unwrap_or_else(|| self.record(record));
        self.entries.get_mut(place).word = word;
    }

    /// The record of a key, made if it has none.
    pub(super) fn record_of(&mut self, place: Place) -> u32 {
        match self.entries.get(place).word.read() {
            Err(index) => index,
            Ok(word) => {
                let index = self.records.insert(Record::quiet(self.unpack(word), None));
                self.entries.get_mut(place).word = Word::record(index);
                index
            }
        }
    }

    /// A key goes back from its record to a word, if that is enough.
    pub(super) fn compact(&mut self, place: Place, index: u32, now: Nanos) {
        if let Some(word) = self.pack(self.records.get(index), now) {
            self.entries.get_mut(place).word = word;
            self.records.remove(index);
        }
    }

    /// Decides a call by the word of its key, if there is one and it is enough. With a grant goes the place of its key.
    /// Counts nothing.
    #[inline(always)]
    pub(super) fn attempt(
        &mut self,
        hash: u64,
        is_it: impl Fn(&Entry<K>) -> bool,
        now: Nanos,
        cost: P::Cost,
    ) -> Attempt<(Place, P::Receipt)> {
        let (Some(packed), PolicySource::One(one)) = (P::HOOKS.packed, &self.rule) else {
            return Attempt::Undecided;
        };
        let Some((place, Entry { word, .. })) = self.entries.find_mut(hash, is_it) else {
            return Attempt::Undecided;
        };
        let Ok(state) = word.read() else { return Attempt::Undecided };
        if cost.is_zero() {
            return Attempt::Undecided;
        }
        match (packed.attempt)(one, state, now, cost) {
            Attempt::Granted((state, receipt)) => {
                *word = Word::packed(state);
                Attempt::Granted((place, receipt))
            }
            Attempt::NotBefore(due) => Attempt::NotBefore(due),
            Attempt::Undecided => Attempt::Undecided,
        }
    }

    /// Decides a call at a key in the table.
    pub(super) fn decide(
        &mut self,
        place: Place,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Decision<P::Receipt>, Error> {
        let Ok(word) = self.entries.get(place).word.read() else {
            return self.decide_by_record(place, now, cost, max_wait);
        };
        let mut state = self.unpack(word);
        let one = self.rule.policy(None);
        let (decision, changed) = decide(one, &mut state, now, cost, max_wait);
        if changed {
            match P::HOOKS.packed.and_then(|packed| (packed.pack)(one, &state, now)) {
                Some(word) => self.entries.get_mut(place).word = Word::packed(word),
                None => self.store(place, state, now),
            }
        }
        decision
    }

    #[inline(never)]
    fn decide_by_record(
        &mut self,
        place: Place,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Decision<P::Receipt>, Error> {
        let index = self.record_of(place);
        if !P::HELD {
            self.demote(index, now);
        }
        let record = self.records.get_mut(index);
        let policy = self.rule.policy(record.own.as_deref());
        let Slot::Quiet(state) = &mut record.slot else { return Ok(Decision::NeedsLine) };
        decide(policy, state, now, cost, max_wait).0
    }

    /// A grant at a key, not dropped yet.
    #[inline]
    pub(super) fn grant(&mut self, hash: u64, place: Place) -> u64 {
        self.last = (hash, place);
        self.grants += 1;
        self.grants
    }

    /// Records the last grant, because another call comes before it is dropped.
    #[cold]
    pub(super) fn hold(&mut self, id: GrantId) {
        let (hash, place) = self.last;
        let record = self.record_of(place);
        self.records.get_mut(record).pins += 1;
        self.held.insert(id, Held { hash, record });
    }

    /// The record of the key of a grant.
    pub(super) fn held(&self, id: GrantId) -> Option<u32> {
        self.held.get(&id).map(|held| held.record)
    }

    /// A grant of a key can no longer be settled. Returns the time, if the key is not kept by other grants.
    pub(super) fn let_go(&mut self, id: GrantId, clock: &Clock) -> Option<Nanos> {
        let Held { hash, record: index } = self.held.remove(&id)?;
        if self.held.is_empty() {
            self.held = HashMap::default();
        }
        let pins = &mut self.records.get_mut(index).pins;
        *pins -= 1;
        if *pins > 0 {
            return None;
        }
        let now = self.now(clock);
        let is_it = |entry: &Entry<K>| entry.word == Word::record(index);
        if let Some(place) = self.entries.find(hash, is_it) {
            self.compact(place, index, now);
        }
        Some(now)
    }

    /// Turns a line that is no longer needed back into a state.
    pub(super) fn demote(&mut self, index: u32, now: Nanos) {
        let record = self.records.get_mut(index);
        if let Slot::Busy(line) = &record.slot
            && Arc::strong_count(line) == 1
            && let Some((state, stats)) = line.quiet_state(now)
        {
            self.stats.add(stats);
            record.slot = Slot::Quiet(state);
        }
    }

    /// The key's line, created if there is none.
    pub(super) fn line(
        &mut self,
        place: Place,
        clock: &Clock,
        observer: &Arc<Observer>,
    ) -> Arc<Line<P>> {
        let index = self.record_of(place);
        let record = self.records.get_mut(index);
        let line = match &record.slot {
            Slot::Busy(line) => return Arc::clone(line),
            Slot::Quiet(state) => {
                let policy = self.rule.policy(record.own.as_deref()).clone();
                Line::of_key(policy, state.clone(), (clock, observer), self.settings.bounds)
            }
        };
        record.slot = Slot::Busy(Arc::clone(&line));
        line
    }

    pub(super) fn lines(&self) -> Vec<Arc<Line<P>>> {
        let line = |record: &Record<P>| match &record.slot {
            Slot::Busy(line) => Some(Arc::clone(line)),
            Slot::Quiet(_) => None,
        };
        self.records.iter().filter_map(line).collect()
    }

    /// The policy in force for a record, and its slot.
    pub(super) fn parts(&mut self, index: u32) -> (&P, &mut Slot<P>) {
        let record = self.records.get_mut(index);
        (self.rule.policy(record.own.as_deref()), &mut record.slot)
    }

    pub(super) fn parts_of(&self, index: u32) -> (&P, &Slot<P>) {
        let record = self.records.get(index);
        (self.rule.policy(record.own.as_deref()), &record.slot)
    }

    /// Looks at the state of an absent key.
    pub(super) fn look_absent<R>(
        &self,
        absent: &Absent<P>,
        look: impl FnOnce(&P, &P::State) -> R,
    ) -> R {
        look(self.rule.policy(absent.own.as_deref()), &absent.state)
    }

    /// Puts a key with a record under another rule; `change` does this for a line. Returns the key's old policy.
    pub(super) fn renew(
        &mut self,
        place: Place,
        own: Option<Box<P>>,
        (old, new): (&PolicySource<K, P>, &PolicySource<K, P>),
        now: Nanos,
        change: impl FnOnce(&Line<P>, P),
    ) -> Option<Box<P>> {
        let index = self.record_of(place);
        let record = self.records.get_mut(index);
        let (old, new) = (old.policy(record.own.as_deref()), new.policy(own.as_deref()));
        match &mut record.slot {
            Slot::Quiet(state) => {
                new.migrate(old, state, now);
            }
            Slot::Busy(line) => {
                change(line, new.clone());
            }
        }
        std::mem::replace(&mut record.own, own)
    }
}
