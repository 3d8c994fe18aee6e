//! Callers that come to a key: granted or refused at once, or sent to the line of the key.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use super::ToKey;
use super::attempt::Undecided;
use super::decide::Decision;
use super::entry::Entry;
use super::grant_or_wait::GrantOrWait;
use super::segments::Place;
use super::shard::Shard;
use super::table::Table;
use crate::error::Error;
use crate::line::Line;
use crate::policy::Policy;
use crate::rate_limiter::RateLimiter;

impl<K: Hash + Eq + Send + 'static, P: Policy, S: BuildHasher + Send + Sync + 'static>
    Table<K, P, S>
{
    /// Grants `cost` at a key if it is ready, refuses it, or sends the caller to the key's line. Also returns
    /// whether it is time for [`sweep_in_turn`](Self::sweep_in_turn). The caller runs the sweep later: it may
    /// panic at another key, and such a panic must not lose the grant made here.
    pub(super) fn arrive<Q: ToKey<K> + ?Sized>(
        &self,
        Undecided { mut shard, hash, now, is_time_to_sweep: sweep }: Undecided<'_, K, P>,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> (Result<GrantOrWait<'_, P>, Error>, bool) {
        if sweep && let Err(closed) = shard.begin_sweep() {
            return (Err(closed), false);
        }
        let Some(place) = shard.entries.find(hash, |entry| key.is_key(&entry.key)) else {
            drop(shard);
            return (self.arrive_new(key, hash, cost, max_wait), sweep);
        };
        let decision = shard.decide(place, now, cost, max_wait);
        (self.follow(&mut shard, (hash, place), cost, decision), sweep)
    }

    fn follow(
        &self,
        shard: &mut Shard<K, P>,
        (hash, place): (u64, Place),
        cost: P::Cost,
        decision: Result<Decision<P::Receipt>, Error>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        match decision {
            Ok(Decision::Granted(charge)) => {
                shard.stats.granted += u64::from(charge.receipt.is_some());
                let number = Self::shard_of(hash);
                let part = self.part(number);
                let opened = part.open(number, shard.grant(hash, place));
                Ok(GrantOrWait::Granted(self.granted(opened, cost, charge)))
            }
            Ok(Decision::NeedsLine) => {
                let line = shard.line(place, &self.clock, &self.observer);
                Ok(GrantOrWait::Waiting(RateLimiter::of_line(line)))
            }
            Err(error) => {
                shard.stats.refused += 1;
                Err(error)
            }
        }
    }

    /// The same at a key that was not in the table a moment ago.
    #[inline(never)]
    fn arrive_new<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        let part = self.part(Self::shard_of(hash));
        // Dropped after unlocking, like all keys.
        let mut owned = Some(key.to_key());
        loop {
            let mut shard = part.lock();
            shard.check_open()?;
            let now = shard.now(&self.clock);
            let mut is_new = false;
            let (place, decision) = match shard.entries.find(hash, |entry| key.is_key(&entry.key)) {
                Some(place) => (place, shard.decide(place, now, cost, max_wait)),
                None => {
                    let new = owned.as_ref().expect("not stored yet");
                    let mut absent = shard.absent(|| new, now);
                    let (decision, is_stored) =
                        shard.decide_absent(&mut absent, now, cost, max_wait);
                    // A refusal that did not change the state: the key need not be stored.
                    if !is_stored && let Err(error) = decision {
                        shard.stats.refused += 1;
                        return Err(error);
                    }
                    if !self.take_room(self.options.max_keys) {
                        drop(shard);
                        self.make_room(hash)?;
                        continue;
                    }
                    is_new = true;
                    let new = owned.take().expect("not stored yet");
                    let hash_of = |entry: &Entry<K>| self.hash_of(&entry.key);
                    (shard.insert((hash, new), absent, now, hash_of), decision)
                }
            };
            let admission = self.follow(&mut shard, (hash, place), cost, decision);
            drop(shard);
            if is_new {
                self.look_again_after(now);
            }
            return admission;
        }
    }

    /// The line of a key, created if the key has none.
    pub(super) fn line<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Arc<Line<P>>, Error> {
        self.line_for(key, false)
    }

    /// The same. `closes`: for a caller that closes the key, which needs no room and no open table.
    pub(super) fn line_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        closes: bool,
    ) -> Result<Arc<Line<P>>, Error> {
        let max = if closes { usize::MAX } else { self.options.max_keys };
        let hash = self.hash_of(key);
        let part = self.part(Self::shard_of(hash));
        let mut owned = None;
        loop {
            let mut shard = part.lock();
            let now = shard.now(&self.clock);
            let sweep = !closes && !shard.count_call(self.sweeps.calls());
            if sweep {
                shard.begin_sweep()?;
            }
            let mut place = shard.entries.find(hash, |entry| key.is_key(&entry.key));
            let is_new = place.is_none();
            if is_new {
                let new = owned.take().unwrap_or_else(|| key.to_key());
                let absent = shard.absent(|| &new, now);
                if self.take_room(max) {
                    let hash_of = |entry: &Entry<K>| self.hash_of(&entry.key);
                    place = Some(shard.insert((hash, new), absent, now, hash_of));
                } else {
                    owned = Some(new);
                }
            }
            let line = place.map(|place| shard.line(place, &self.clock, &self.observer));
            drop(shard);
            let Some(line) = line else {
                self.make_room(hash)?;
                continue;
            };
            if is_new {
                self.look_again_after(now);
            }
            self.sweep_in_turn(sweep);
            return Ok(line);
        }
    }
}
