//! Idle keys go: some with each few calls, and all of them by an alarm within [`SPAN`], without any call.
//!
//! Neither stops a caller for long. A step visits some thousand places at most, and locks a shard for one table of it
//! at a time.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::{Entry, Record, Slot};
use super::round::{CALLS_PER_SWEEP, Round, SPAN, Sweeps};
use super::segments::{Place, Visit};
use super::shard::{SHARDS, Shard};
use super::table::Table;
use crate::clock::OnAlarm;
use crate::error::Error;
use crate::policy::Policy;
use crate::units::Nanos;
use crate::wait_queue::NEVER;

/// The maximum number of places visited to find room for a new key.
const LOOKS: usize = 1024;

/// How many places the alarm visits before others get their turn of the thread.
const STEP: usize = 4096;

/// Whether a key may go.
enum Idle {
    Now,
    From(Nanos),
    /// It is in use.
    Unknown,
}

/// A part of a shard was visited.
struct Swept {
    /// How many places, taken or not.
    looked: usize,
    /// Where the next part begins; `None` at the end of the shard.
    next: Option<Visit>,
}

/// What is left of keys that have been removed. Their room is released on drop.
struct Removed<'a, K, P: Policy> {
    keys: Vec<K>,
    records: Vec<Record<P>>,
    count: &'a AtomicUsize,
}

impl<K, P: Policy> Drop for Removed<'_, K, P> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.keys.len(), Ordering::Relaxed);
    }
}

fn is_idle<K, P: Policy>(shard: &mut Shard<K, P>, place: Place, now: Nanos) -> bool {
    matches!(shard.idle(place, now), Idle::Now)
}

impl<K, P: Policy> Shard<K, P> {
    fn idle(&mut self, place: Place, now: Nanos) -> Idle {
        if let Err(index) = self.entries.get(place).word.read() {
            self.demote(index, now);
            self.compact(place, index, now);
        }
        let idle_at = match self.entries.get(place).word.read() {
            Ok(word) => self.rule.policy(None).idle_at(&self.unpack(word)),
            Err(index) => match self.parts_of(index) {
                (policy, Slot::Quiet(state)) if self.records.get(index).pins == 0 => {
                    policy.idle_at(state)
                }
                _ => return Idle::Unknown,
            },
        };
        match idle_at {
            Some(time) if time <= now => Idle::Now,
            Some(time) => Idle::From(time),
            // Never: nothing is to be waited for.
            None => Idle::From(NEVER),
        }
    }

    fn remove(&mut self, place: Place, removed: &mut Removed<'_, K, P>) {
        let Entry { key, word } = self.entries.remove(place);
        if let Err(index) = word.read() {
            removed.records.push(self.records.remove(index));
        }
        removed.keys.push(key);
    }

    /// Visits places from `hand` on, at most `most` and of one table, and removes those that `goes` names.
    fn sweep(
        &mut self,
        hand: Option<Visit>,
        most: usize,
        removed: &mut Removed<'_, K, P>,
        mut goes: impl FnMut(&mut Self, Place) -> bool,
        hash_of: impl Fn(&Entry<K>) -> u64,
    ) -> Swept {
        let Some(mut visit) = hand.or_else(|| self.entries.first()) else {
            return Swept { looked: 1, next: None };
        };
        let table = visit.place.table();
        let mut looked = 0;
        loop {
            looked += 1;
            let next = self.entries.next(visit);
            self.hand = next;
            if self.entries.is_taken(visit.place) && goes(self, visit.place) {
                self.remove(visit.place, removed);
            }
            match next {
                Some(next) if next.place.table() == table => {
                    visit = next;
                    if looked >= most {
                        return Swept { looked, next: Some(next) };
                    }
                }
                next => {
                    self.entries.tidy(table, hash_of);
                    return Swept { looked, next };
                }
            }
        }
    }
}

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Removes some idle keys, if it is time for a sweep.
    #[inline]
    pub(super) fn sweep_in_turn(&self, is_time: bool) {
        if is_time {
            self.sweep_by_call();
        }
    }

    #[inline(never)]
    fn sweep_by_call(&self) {
        let idle = self.sweep(2 * CALLS_PER_SWEEP.start, || false);
        let calls = if idle == 0 { 2 * self.sweeps.calls() } else { CALLS_PER_SWEEP.start };
        self.sweeps.calls.store(calls.min(CALLS_PER_SWEEP.end), Ordering::Relaxed);
    }

    /// Removes all idle keys. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        (0..SHARDS).map(|shard| self.sweep_all(shard, is_idle)).sum()
    }

    /// Removes all keys that `keep` does not keep and that are not in use. Returns their number.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K) -> bool) -> usize {
        let mut goes = |shard: &mut Shard<K, P>, place, now| {
            !keep(&shard.entries.get(place).key) && !matches!(shard.idle(place, now), Idle::Unknown)
        };
        (0..SHARDS).map(|shard| self.sweep_all(shard, &mut goes)).sum()
    }

    /// Removes idle keys until there is room for another one.
    pub(super) fn make_room(&self, hash: u64) -> Result<(), Error> {
        let max = self.options.max_keys;
        self.sweep(LOOKS, || self.len() < max);
        if self.len() < max {
            return Ok(());
        }
        self.part(Self::shard_of(hash)).lock().stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// Visits all places of a shard, table by table. Returns how many keys went.
    fn sweep_all(
        &self,
        shard: usize,
        mut goes: impl FnMut(&mut Shard<K, P>, Place, Nanos) -> bool,
    ) -> usize {
        let (mut hand, mut count) = (None, 0);
        loop {
            let (swept, removed) = self.sweep_table(shard, |_| hand, usize::MAX, &mut goes);
            (hand, count) = (swept.next, count + removed);
            if hand.is_none() {
                return count;
            }
        }
    }

    /// Visits places of a shard from `hand` on, at most `most` and of one table. Also returns how many keys went.
    fn sweep_table(
        &self,
        shard: usize,
        hand: impl FnOnce(&Shard<K, P>) -> Option<Visit>,
        most: usize,
        mut goes: impl FnMut(&mut Shard<K, P>, Place, Nanos) -> bool,
    ) -> (Swept, usize) {
        // Dropped without a lock, because the drop of a key may run any code.
        let mut removed = Removed { keys: Vec::new(), records: Vec::new(), count: &self.keys };
        let mut shard = self.part(shard).lock();
        let now = shard.now(&self.clock);
        let hash_of = |entry: &Entry<K>| self.hash_of(&entry.key);
        let goes = |shard: &mut Shard<K, P>, place| goes(shard, place, now);
        let hand = hand(&shard);
        let swept = shard.sweep(hand, most, &mut removed, goes, hash_of);
        drop(shard);
        (swept, removed.keys.len())
    }

    /// Continues the sweep, shard by shard, and removes idle keys until `enough` holds or `looks` places have
    /// been visited. Returns the number of removed keys.
    fn sweep(&self, mut looks: usize, enough: impl Fn() -> bool) -> usize {
        let (mut idle, mut shards) = (0, 0);
        // At most one full round; the first shard may have been visited in part.
        while looks > 0 && shards <= SHARDS && !enough() {
            let next = self.sweeps.next.load(Ordering::Relaxed) % SHARDS;
            let (swept, removed) = self.sweep_table(next, |shard| shard.hand, looks, is_idle);
            looks = looks.saturating_sub(swept.looked);
            if swept.next.is_none() {
                self.sweeps.next.store(next + 1, Ordering::Relaxed);
                shards += 1;
            }
            idle += removed;
        }
        idle
    }

    /// A key came or may be idle earlier than it was: it has to be seen by a round within [`SPAN`].
    #[inline]
    pub(super) fn look_again_after(&self, now: Nanos) {
        let Sweeps { again, due, .. } = &self.sweeps;
        if again.load(Ordering::SeqCst) {
            return;
        }
        again.store(true, Ordering::SeqCst);
        let latest = now.saturating_add(SPAN);
        if due.load(Ordering::SeqCst) > latest.get() {
            self.set_alarm(latest);
        }
    }

    /// Sets the alarm, unless it goes off earlier.
    fn set_alarm(&self, time: Nanos) {
        let mut alarm = self.sweeps.alarm.lock();
        if time.get() < self.sweeps.due.load(Ordering::SeqCst)
            && self.clock.sounds_without_callers()
        {
            // If a manual clock was moved past it just now, calls drop idle keys, or the next alarm.
            let _ = alarm.get_or_insert_with(|| self.clock.alarm(self.weak())).set(time);
            self.sweeps.due.store(time.get(), Ordering::SeqCst);
        }
    }

    /// Visits the next places. Returns when the alarm has to go off again.
    fn step(&self, round: &mut Round) -> Option<Nanos> {
        if (round.shard, round.hand) == (0, None) {
            self.sweeps.again.store(false, Ordering::SeqCst);
            (round.earliest, round.unknown, round.went) = (NEVER, false, 0);
        }
        let now = self.clock.now();
        let mut looks = STEP;
        while looks > 0 && round.shard < SHARDS {
            let Round { shard, hand, earliest, unknown, went, .. } = &mut *round;
            let (swept, removed) = self.sweep_table(
                *shard,
                |_| *hand,
                looks,
                |shard, place, now| {
                    match shard.idle(place, now) {
                        Idle::Now => return true,
                        Idle::From(time) => *earliest = time.min(*earliest),
                        Idle::Unknown => *unknown = true,
                    }
                    false
                },
            );
            looks = looks.saturating_sub(swept.looked);
            *hand = swept.next;
            *shard += usize::from(hand.is_none());
            *went += removed;
        }
        if round.shard < SHARDS {
            return Some(now);
        }
        round.shard = 0;
        let soon = now.saturating_add(SPAN);
        if round.went > 0 || self.sweeps.again.load(Ordering::SeqCst) {
            round.patience = SPAN;
        }
        if self.sweeps.again.load(Ordering::SeqCst) {
            return Some(soon);
        }
        let look = if round.unknown { now.saturating_add(round.patience) } else { NEVER };
        round.patience = round.patience.saturating_mul(2);
        let next = round.earliest.max(soon).min(look);
        (next < NEVER).then_some(next)
    }
}

impl<K, P, S> OnAlarm for Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn on_alarm(&self) {
        let round = self.sweeps.round.lock().take();
        // A key that is dropped may run anything, and so be in the midst of a step.
        let Some(mut round) = round else { return };
        self.sweeps.due.store(NEVER.get(), Ordering::SeqCst);
        let next = self.step(&mut round);
        *self.sweeps.round.lock() = Some(round);
        if let Some(next) = next {
            self.set_alarm(next);
        }
    }

    /// No caller waits for this alarm.
    fn wake_all(&self) {}
}
