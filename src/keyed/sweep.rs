//! Idle keys go: by calls that need their room, and all of them by an alarm within [`SPAN`], without any call.
//!
//! A sweep locks one shard at a time, which is short. A shard knows from when on one of its keys may be idle, and is not
//! swept before.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::shard::{Shard, Swept};
use super::table::{Gone, Table};
use crate::clock::{Alarm, OnAlarm};
use crate::error::Error;
use crate::policy::Policy;
use crate::sync::Mutex;
use crate::units::Nanos;
use crate::wait_queue::NEVER;

/// Within this time an idle key is gone, also without calls.
pub(super) const SPAN: Duration = Duration::from_secs(10);

/// How many keys a caller looks at to find room for a new one.
const LOOKS: usize = 1024;

/// How many keys the alarm looks at before others get their turn of the thread.
const STEP: usize = 4096;

pub(super) struct Sweeps {
    /// The shard at which the next caller without room looks.
    next: AtomicUsize,
    /// When the alarm goes off, [`NEVER`] if it is not set.
    due: AtomicU64,
    /// Whether there are keys that the round has not seen, or saw before they changed.
    again: AtomicBool,
    pub(super) alarm: Mutex<Option<Alarm>>,
    /// `None` while a step is made.
    round: Mutex<Option<Round>>,
}

/// A visit of all shards by the alarm, step by step.
struct Round {
    /// The next one.
    shard: usize,
    /// Whether it has removed keys, and when the first of those that stay is idle.
    went: bool,
    earliest: Nanos,
    /// Whether there are keys in use, and how long it is to the next look at those.
    is_in_use: bool,
    patience: Duration,
}

impl Round {
    fn begin(patience: Duration) -> Self {
        Self { shard: 0, went: false, earliest: NEVER, is_in_use: false, patience }
    }
}

impl Default for Sweeps {
    fn default() -> Self {
        Self {
            next: AtomicUsize::new(0),
            due: AtomicU64::new(NEVER.get()),
            again: AtomicBool::new(false),
            alarm: Mutex::new(None),
            round: Mutex::new(Some(Round::begin(SPAN))),
        }
    }
}

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Removes keys of a shard by `remove`, which gets the hash function.
    fn sweep(
        &self,
        number: usize,
        remove: impl FnOnce(&mut Shard<K, P>, Nanos, &dyn Fn(&K) -> u64) -> (Vec<K>, Swept),
    ) -> Swept {
        let mut gone = Gone { keys: Vec::new(), of: &self.keys };
        let mut shard = self.lock(number);
        let now = shard.time.read(self.clock.now());
        let swept;
        (gone.keys, swept) = remove(&mut shard, now, &|key| self.hash_of(key));
        swept
    }

    fn sweep_idle(&self, number: usize) -> Swept {
        self.sweep(number, |shard, now, hash_of| shard.sweep_idle(now, hash_of))
    }

    /// Removes all idle keys. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        (0..self.shards()).map(|number| self.sweep_idle(number).went).sum()
    }

    /// Removes all keys that `keep` does not keep and that are not in use. Returns their number.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K) -> bool) -> usize {
        let mut remove = |number| {
            self.sweep(number, |shard, now, hash_of| shard.sweep(now, hash_of, |key, _| !keep(key)))
        };
        (0..self.shards()).map(|number| remove(number).went).sum()
    }

    /// Removes idle keys until there is room for another one, which asks at this shard.
    pub(super) fn make_room(&self, asked: usize) -> Result<(), Error> {
        let (max, mut looks) = (self.options.max_keys, 0);
        for _ in 0..self.shards() {
            if self.len() < max || looks >= LOOKS {
                break;
            }
            let next = self.sweeps.next.fetch_add(1, Ordering::Relaxed) % self.shards();
            looks += self.sweep_idle(next).looked;
        }
        if self.len() < max {
            return Ok(());
        }
        self.lock(asked).stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// A key came or may be idle earlier than it was: a round has to see it within [`SPAN`].
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

    /// Visits the next shards. Returns when the alarm has to go off again.
    fn step(&self, round: &mut Round) -> Option<Nanos> {
        if round.shard == 0 {
            self.sweeps.again.store(false, Ordering::SeqCst);
        }
        let (now, mut looks) = (self.clock.now(), 0);
        while round.shard < self.shards() {
            if looks >= STEP {
                return Some(now);
            }
            let swept = self.sweep_idle(round.shard);
            round.shard += 1;
            looks += swept.looked;
            round.went |= swept.went > 0;
            round.earliest = round.earliest.min(swept.idle_from);
            round.is_in_use |= swept.is_in_use;
        }
        let is_news = self.sweeps.again.load(Ordering::SeqCst);
        let patience = if round.went || is_news { SPAN } else { round.patience };
        let Round { earliest, is_in_use, .. } =
            std::mem::replace(round, Round::begin(patience.saturating_mul(2)));
        let soon = now.saturating_add(SPAN);
        let look = if is_in_use { now.saturating_add(patience) } else { NEVER };
        let next = if is_news { soon } else { earliest.max(soon).min(look) };
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
