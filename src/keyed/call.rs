//! How a call at a key is decided.
//!
//! Most calls are decided by [`attempt`](Call::attempt): the key is there, and its word says whether the permits are
//! ready. All others [`arrive`](Call::arrive): they put the key into the table, are decided by its state, or wait in
//! the queue of its limiter.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::table::Table;
use crate::clock::Monotone;
use crate::error::Error;
use crate::line::{Charge, Inner, Line};
use crate::policy::Policy;
use crate::policy::schedule::Attempt;
use crate::rate_limiter::{Grant, GrantId, GrantOwner, OpenGrant, RateLimiter};
use crate::sync::MutexGuard;
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, Ask};

/// A key, in the borrowed form that the caller passed. Its grants borrow the table alone.
pub(super) struct Call<'t, 'k, Q: ToOwned + ?Sized, P: Policy, S> {
    pub(super) table: &'t Table<Q::Owned, P, S>,
    pub(super) key: &'k Q,
}

/// A call at a key: granted, or sent to the queue of the key, which the caller has still to join.
pub(super) enum GrantOrWait<'a, P: Policy> {
    Granted(Grant<'a, P>),
    Waiting(RateLimiter<P>),
}

/// A grant that was opened, and the receipt of its charge.
type Opened<'a, P> = ((GrantId, &'a OpenGrant), <P as Policy>::Receipt);

/// A key in the table, which is locked.
struct Entered<'a, K, P: Policy, S> {
    shard: MutexGuard<'a, Shard<K, P, S>>,
    number: usize,
    bucket: usize,
    now: Nanos,
    is_new: bool,
}

impl<'t, Q, P, S> Call<'t, '_, Q, P, S>
where
    Q: ToOwned<Owned: Hash + Eq + Send + 'static> + Hash + Eq + ?Sized,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Decides a call that need not wait, if the word of its key decides it. A refusal says after which time the call
    /// would be ready.
    // As `Line::decide`.
    #[inline(always)]
    fn attempt(&self, cost: P::Cost, max_wait: Option<Duration>) -> Attempt<Opened<'t, P>> {
        if P::ONE_RATE.is_none() {
            return Attempt::Undecided;
        }
        let (hash, number) = self.place();
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = self.table.common.clock.now();
        let mut shard = self.table.lock(number);
        match shard.attempt((hash, |key: &_| self.is_it(key)), read, cost, max_wait) {
            Attempt::Granted(receipt) => Attempt::Granted((self.open(&mut shard, number), receipt)),
            Attempt::ReadyAt(wait) => Attempt::ReadyAt(wait),
            Attempt::Undecided => Attempt::Undecided,
        }
    }

    #[inline(always)]
    fn is_it(&self, key: &Q::Owned) -> bool {
        Borrow::<Q>::borrow(key) == self.key
    }

    /// The hash of the key, and its shard.
    #[inline(always)]
    fn place(&self) -> (u64, usize) {
        let hash = self.table.common.hasher.hash_one(self.key);
        (hash, self.table.number_of(hash))
    }

    /// A grant is made at the key that was asked last in this shard.
    #[inline(always)]
    fn open(&self, shard: &mut Shard<Q::Owned, P, S>, number: usize) -> (GrantId, &'t OpenGrant) {
        let open = &self.table.shards[number].0.open;
        let id = GrantId::new(shard.grant(), number, self.table.shards.len());
        open.open(id);
        (id, open)
    }

    #[inline(always)]
    fn grant(
        &self,
        (id, open): (GrantId, &'t OpenGrant),
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Grant<'t, P> {
        Grant::new(GrantOwner::key(self.table, open, id), cost, charge)
    }

    /// Grants or refuses without a wait.
    #[inline(always)]
    pub(super) fn try_acquire(&self, cost: P::Cost) -> Result<Grant<'t, P>, Error> {
        match self.attempt(cost, Some(Duration::ZERO)) {
            // Not built before the answer is known: it would be written to memory.
            Attempt::Granted((open, receipt)) => {
                Ok(self.grant(open, cost, Charge::at_once(Some(receipt))))
            }
            Attempt::ReadyAt(wait) => Err(refused(wait)),
            Attempt::Undecided => self.arrive_now(cost),
        }
    }

    #[inline(never)]
    fn arrive_now(&self, cost: P::Cost) -> Result<Grant<'t, P>, Error> {
        match self.arrive(cost, Some(Duration::ZERO))? {
            GrantOrWait::Granted(grant) => Ok(grant),
            GrantOrWait::Waiting(limiter) => limiter.take_now(cost),
        }
    }

    /// Grants or refuses, or sends the caller to the queue of the key.
    #[inline]
    pub(super) fn grant_or_wait(&self, ask: &Ask<P::Cost>) -> Result<GrantOrWait<'t, P>, Error> {
        match self.attempt(ask.cost, ask.max_wait) {
            Attempt::Granted((open, receipt)) => {
                let charge = Charge::at_once(Some(receipt));
                Ok(GrantOrWait::Granted(self.grant(open, ask.cost, charge)))
            }
            Attempt::ReadyAt(wait) => Err(refused(wait)),
            Attempt::Undecided => self.arrive(ask.cost, ask.max_wait),
        }
    }

    /// Decides a call at any key.
    #[inline(never)]
    fn arrive(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<GrantOrWait<'t, P>, Error> {
        // Dropped after unlocking, like all keys.
        let _removed;
        let Entered { mut shard, number, bucket, now, is_new } = self.enter(false)?;
        match shard.decide(bucket, now, cost, max_wait) {
            Some(Ok(charge)) => {
                let open = self.open(&mut shard, number);
                Ok(GrantOrWait::Granted(self.grant(open, cost, charge)))
            }
            Some(Err(error)) => {
                _removed = is_new.then(|| shard.remove(bucket, &error, now));
                Err(error)
            }
            None => Ok(GrantOrWait::Waiting(RateLimiter::of_line(shard.line(bucket)))),
        }
    }

    /// The limiter of the key, made if it has none. `closes`: for a caller that closes the key, which needs no room and no
    /// open table.
    pub(super) fn line(&self, closes: bool) -> Result<Arc<Line<P>>, Error> {
        let Entered { mut shard, bucket, .. } = self.enter(closes)?;
        Ok(shard.line(bucket))
    }

    /// Finds the key, or puts it into the table.
    fn enter(&self, closes: bool) -> Result<Entered<'t, Q::Owned, P, S>, Error> {
        let Self { table, key } = *self;
        let max_keys = if closes { usize::MAX } else { table.common.options.max_keys };
        let (hash, number) = self.place();
        loop {
            // Dropped after unlocking, like all keys.
            let (_gone, new);
            let mut shard = table.lock(number);
            if shard.is_closed && !closes {
                shard.stats.refused += 1;
                return Err(Error::Closed);
            }
            let now = shard.now();
            if let Some(bucket) = shard.find(hash, |key| self.is_it(key)) {
                return Ok(Entered { shard, number, bucket, now, is_new: false });
            }
            _gone = shard.make_room(now);
            new = key.to_owned();
            let state = shard.absent(&new, now);
            if table.count_one(max_keys) {
                let bucket = shard.insert((hash, new), state, now);
                return Ok(Entered { shard, number, bucket, now, is_new: true });
            }
            drop(shard);
            table.make_room(number)?;
        }
    }

    /// Looks at the limiter of the key. One without is looked at as if it had one, an absent one as if it came now.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let (hash, number) = self.place();
        // Dropped after unlocking, like all keys.
        let absent;
        let mut shard = self.table.lock(number);
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
        let (hash, number) = self.place();
        let mut shard = self.table.lock(number);
        let found = shard.find(hash, |key| self.is_it(key));
        let after = found.and_then(|bucket| shard.refresh(bucket));
        drop(shard);
        after.into_iter().for_each(AfterUnlock::run);
    }
}

#[inline(always)]
fn refused(wait: Nanos) -> Error {
    Error::Denied { retry_after: Some(wait.since(Nanos::ZERO)), part: None }
}
