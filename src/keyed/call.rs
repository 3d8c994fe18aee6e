//! How a call at a key is decided.
//!
//! [`decide`](Call::decide) decides most calls of a borrowed key: the key is there, and its word says whether the permits are ready. All
//! others [`arrive`](Call::arrive): they add the key to the table, are decided by its state, or wait in the queue of its
//! limiter.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::table::{Part, Table};
use crate::clock::{AfterUnlock, Monotone};
use crate::error::Error;
use crate::line::{Charge, Inner, Line};
use crate::policy::Policy;
use crate::rate_limiter::{Grant, GrantOwner, RateLimiter};
use crate::sync::MutexGuard;
use crate::units::Nanos;

/// A key, in the borrowed form that the caller passed. Its grants borrow the table alone.
pub(super) struct Call<'t, 'k, Q: ToOwned + ?Sized, P: Policy> {
    pub(super) table: &'t Table<Q::Owned, P>,
    pub(super) key: &'k Q,
}

/// The grant of a call, or the limiter of the key, whose queue the caller has still to join.
pub(super) type GrantOrWait<'a, P> = Result<Grant<'a, P>, RateLimiter<P>>;

/// A shard that is locked.
type Locked<'a, K, P> = MutexGuard<'a, Shard<K, P>>;

impl<'t, Q, P: Policy> Call<'t, '_, Q, P>
where
    Q: ToOwned<Owned: Hash + Eq + Send + 'static> + Hash + Eq + ?Sized,
{
    /// Grants or refuses, or sends the caller to the queue of the key.
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'t, P>, Error> {
        let (hash, part) = self.place();
        if P::ONE_RATE.is_some() {
            // Before the lock: to read the clock under it would keep other callers waiting.
            let now = self.table.common.clock.now();
            let mut shard = part.lock();
            if let Some(charge) = shard.attempt((hash, |key| self.is_it(key)), now, cost, max_wait)
            {
                return Ok(Ok(self.grant(part, shard, cost, charge?)));
            }
        }
        // Moved, as this answer is in memory, where the others would have to be as well.
        let answer = self.arrive(cost, max_wait)?;
        Ok(answer)
    }

    #[inline(always)]
    fn is_it(&self, key: &Q::Owned) -> bool {
        Borrow::<Q>::borrow(key) == self.key
    }

    /// The hash of the key, and its shard.
    #[inline(always)]
    fn place(&self) -> (u64, &'t Part<Q::Owned, P>) {
        let hash = self.table.common.hasher.hash_one(self.key);
        (hash, self.table.part(hash))
    }

    /// A grant at the key that was asked last in this shard.
    #[inline(always)]
    fn grant(
        &self,
        part: &'t Part<Q::Owned, P>,
        mut shard: Locked<'t, Q::Owned, P>,
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Grant<'t, P> {
        let id = shard.grant();
        part.open.open(id);
        drop(shard);
        Grant::new(GrantOwner::key(self.table, &part.open, id), cost, charge)
    }

    /// As [`decide`](Self::decide), for a call at any key.
    #[inline(never)]
    pub(super) fn arrive(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'t, P>, Error> {
        let (mut shard, bucket) = self.find_or_add(false)?;
        match shard.decide(bucket, cost, max_wait) {
            Some(charge) => Ok(Ok(self.grant(self.place().1, shard, cost, charge?))),
            None => Ok(Err(RateLimiter::of_line(shard.line(bucket)))),
        }
    }

    /// The limiter of the key, made if it has none. `closes`: for a caller that closes the key, which needs no room and no
    /// open table.
    pub(super) fn line(&self, closes: bool) -> Result<Arc<Line<P>>, Error> {
        let (mut shard, bucket) = self.find_or_add(closes)?;
        Ok(shard.line(bucket))
    }

    /// Finds the key, or puts it into the table. Returns its bucket.
    fn find_or_add(&self, closes: bool) -> Result<(Locked<'t, Q::Owned, P>, usize), Error> {
        let Self { table, key } = *self;
        let (hash, part) = self.place();
        let max_keys = if closes { usize::MAX } else { table.common.options.max_keys };
        loop {
            // Dropped after unlocking, like all keys.
            let (_gone, new);
            let mut shard = part.lock();
            if shard.is_closed && !closes {
                shard.stats.refused += 1;
                return Err(Error::Closed);
            }
            let now = shard.now();
            if let Some(bucket) = shard.find(hash, |key| self.is_it(key)) {
                return Ok((shard, bucket));
            }
            _gone = shard.make_room();
            new = key.to_owned();
            let state = shard.absent(&new, now);
            if table.count_one(max_keys) {
                let bucket = shard.insert((hash, new), state, now);
                return Ok((shard, bucket));
            }
            drop(shard);
            table.make_room().inspect_err(|_| part.lock().stats.refused += 1)?;
        }
    }

    /// Looks at the limiter of the key. One without is looked at as if it had one, an absent one as if it came now.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let (hash, part) = self.place();
        // Dropped after unlocking, like all keys.
        let absent;
        let mut shard = part.lock();
        let now = shard.now();
        let copy = match shard.find(hash, |key| self.is_it(key)) {
            Some(bucket) => shard.copy(bucket, now).ok_or_else(|| shard.line(bucket)),
            None => {
                absent = self.key.to_owned();
                Ok(shard.absent(&absent, now))
            }
        };
        drop(shard);
        match copy {
            Ok((policy, state)) => look(&mut Inner::new(policy, state, Monotone::new(now)), now),
            Err(line) => line.with_lock(look),
        }
    }

    /// Calls the function of the key again.
    pub(super) fn refresh(&self) {
        let (hash, part) = self.place();
        let mut shard = part.lock();
        let found = shard.find(hash, |key| self.is_it(key));
        let after = found.and_then(|bucket| shard.refresh(bucket));
        drop(shard);
        after.into_iter().for_each(AfterUnlock::run);
    }
}
