//! Idle keys go: by calls that need their room, and all of them by an alarm within ten seconds, without any call.
//!
//! A sweep locks one shard at a time, which is short. A shard knows from when on one of its keys may be idle, and is not
//! swept before. Of a key in use that is not known: it is looked at again after as long as it has been in use.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use super::shard::Shard;
use super::table::{Gone, Table};
use crate::clock::OnAlarm;
use crate::error::Error;
use crate::policy::Policy;
use crate::wait_queue::NEVER;

/// How many keys a caller looks at to find room for a new one.
const LOOKS: usize = 1024;

/// How many keys the alarm looks at before others get their turn of the thread.
const STEP: usize = 4096;

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
            self.look_by(now, first);
        }
    }

    /// No caller waits for this alarm.
    fn wake_all(&self) {}
}
