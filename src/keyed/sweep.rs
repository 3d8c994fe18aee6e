//! Idle keys go: by calls that need their room, and all of them by an alarm within [`SPAN`], without any call.
//!
//! A sweep locks one shard at a time, which is short. A shard knows from when on one of its keys may be idle, and is not
//! swept before. Of a key in use that is not known: it is looked at again after as long as it has been in use.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::shard::Shard;
use super::table::{Gone, Table};
use crate::clock::{Alarm, OnAlarm};
use crate::error::Error;
use crate::policy::Policy;
use crate::sync::Mutex;
use crate::units::Nanos;
use crate::wait_queue::NEVER;

/// Within this time an idle key is gone, also without calls.
const SPAN: Duration = Duration::from_secs(10);

/// How many keys a caller looks at to find room for a new one.
const LOOKS: usize = 1024;

/// How many keys the alarm looks at before others get their turn of the thread.
const STEP: usize = 4096;

pub(super) struct Sweeps {
    /// The shard at which the next caller without room looks, and that at which the alarm goes on.
    next: AtomicUsize,
    hand: AtomicUsize,
    /// When the alarm goes off, [`NEVER`] if it is not set.
    due: AtomicU64,
    pub(super) alarm: Mutex<Option<Alarm>>,
}

impl Default for Sweeps {
    fn default() -> Self {
        let [next, hand] = [(); 2].map(|()| AtomicUsize::new(0));
        Self { next, hand, due: AtomicU64::new(NEVER.get()), alarm: Mutex::new(None) }
    }
}

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The keys that are removed from a shard, to be dropped without its lock.
    fn gone(&self, keys: Vec<K>) -> Gone<'_, K> {
        Gone { keys, of: &self.keys }
    }

    /// Removes the idle keys of a shard. Returns how many keys it looked at.
    fn sweep(&self, number: usize) -> usize {
        let mut shard = self.lock(number);
        let now = shard.now();
        let (looked, keys) = shard.sweep_idle(now);
        drop(shard);
        drop(self.gone(keys));
        looked
    }

    /// Removes all idle keys. Returns their number.
    pub(super) fn remove_idle(&self) -> usize {
        let sweep = |shard: &mut Shard<K, P, S>| {
            let now = shard.now();
            shard.sweep_idle(now).1
        };
        self.each(sweep).map(|keys| self.gone(keys).keys.len()).sum()
    }

    /// Removes all keys that `keep` does not keep and that are not in use. Returns their number.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K) -> bool) -> usize {
        let sweep = |shard: &mut Shard<K, P, S>| {
            let now = shard.now();
            shard.sweep(now, |key, _| !keep(key))
        };
        self.each(sweep).map(|keys| self.gone(keys).keys.len()).sum()
    }

    /// Removes idle keys until there is room for another one, which asks at this shard.
    pub(super) fn make_room(&self, asked: usize) -> Result<(), Error> {
        let (max, mut looks) = (self.common.options.max_keys, 0);
        for _ in 0..self.shards() {
            if self.len() < max || looks >= LOOKS {
                break;
            }
            looks += self.sweep(self.sweeps.next.fetch_add(1, Ordering::Relaxed) % self.shards());
        }
        if self.len() < max {
            return Ok(());
        }
        self.lock(asked).stats.refused += 1;
        Err(Error::TooManyKeys { max })
    }

    /// A key may be idle from then on, and has to go within [`SPAN`].
    pub(super) fn look_by(&self, now: Nanos, idle_at: Nanos) {
        let time = idle_at.max(now.saturating_add(SPAN));
        if time.get() < self.sweeps.due.load(Ordering::SeqCst) {
            self.set_alarm(time);
        }
    }

    /// Sets the alarm, unless it goes off earlier.
    fn set_alarm(&self, time: Nanos) {
        let Sweeps { due, alarm, .. } = &self.sweeps;
        let mut alarm = alarm.lock();
        let clock = &self.common.clock;
        if time.get() < due.load(Ordering::SeqCst) && clock.sounds_without_callers() {
            // If a manual clock was moved past it just now, calls drop idle keys, or the next alarm.
            let _ = alarm.get_or_insert_with(|| clock.alarm(self.this.clone())).set(time);
            due.store(time.get(), Ordering::SeqCst);
        }
    }
}

impl<K, P, S> OnAlarm for Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn on_alarm(&self) {
        // Before the first shard is seen: what comes to one later sets it again.
        self.sweeps.due.store(NEVER.get(), Ordering::SeqCst);
        let now = self.common.clock.now();
        let (mut looks, mut hand) = (0, self.sweeps.hand.load(Ordering::Relaxed));
        while hand < self.shards() && looks < STEP {
            looks += self.sweep(hand);
            hand += 1;
        }
        let is_over = hand == self.shards();
        self.sweeps.hand.store(if is_over { 0 } else { hand }, Ordering::Relaxed);
        if !is_over {
            return self.set_alarm(now);
        }
        let first = self.each(|shard| shard.look_at).min().unwrap_or(NEVER);
        if first < NEVER {
            self.set_alarm(first.max(now.saturating_add(SPAN)));
        }
    }

    /// No caller waits for this alarm.
    fn wake_all(&self) {}
}
