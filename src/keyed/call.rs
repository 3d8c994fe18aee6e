//! What a call does at its key, and where it stands there.
//!
//! Most calls are decided by [`attempt`](Call::attempt): the key is there, and its word says whether the permits are
//! ready. All others [`arrive`](Call::arrive): they put the key into the table, are decided by its state, or wait in
//! the queue of its limiter.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::hash::FastHash;
use super::shard::Shard;
use super::table::Table;
use super::to_key::ToKey;
use crate::clock::Monotone;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, InProcess, Queue, sealed::Sealed};
use crate::line::{Charge, Inner, Line};
use crate::policy::Policy;
use crate::policy::schedule::Attempt;
use crate::rate_limiter::{Grant, GrantId, GrantOwner, OpenGrant, RateLimiter};
use crate::sync::MutexGuard;
use crate::units::Nanos;
use crate::wait_queue::AfterUnlock;

/// One key of a [`KeyedRateLimiter`](crate::KeyedRateLimiter), borrowed: what a call waits at. `Q` is the borrowed form of the key that
/// the caller passed.
pub struct KeyRef<'a, K, P: Policy, Q: ?Sized = K, S = FastHash>(
    pub(super) Call<'a, 'a, K, P, Q, S>,
);

/// A key, in the borrowed form that the caller passed. Its grants borrow the table alone.
pub(super) struct Call<'t, 'k, K, P: Policy, Q: ?Sized, S> {
    pub(super) table: &'t Table<K, P, S>,
    pub(super) key: &'k Q,
}

/// A call at a key: granted, or sent to the queue of the key, which the caller has still to join.
pub(crate) enum GrantOrWait<'a, P: Policy> {
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

impl<'t, K, P, Q, S> Call<'t, '_, K, P, Q, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
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
        if shard.is_closed {
            return Attempt::Undecided;
        }
        let now = shard.time.read(read);
        // Zero first: `try_acquire` is compiled without the comparison then.
        let is_too_late =
            |due| max_wait.is_some_and(|wait| wait.is_zero() || due > now.saturating_add(wait));
        match shard.attempt(hash, |key| self.key.is_key(key), now, cost) {
            Attempt::Granted(receipt) => {
                shard.stats.granted += 1;
                Attempt::Granted((self.open(&mut shard, number), receipt))
            }
            Attempt::ReadyAt(due) if is_too_late(due) => {
                shard.stats.refused += 1;
                Attempt::ReadyAt(Nanos::new(due.get().saturating_sub(now.get())))
            }
            Attempt::ReadyAt(_) | Attempt::Undecided => Attempt::Undecided,
        }
    }

    /// The hash of the key, and its shard.
    #[inline(always)]
    fn place(&self) -> (u64, usize) {
        let hash = self.table.common.hasher.hash_one(self.key);
        (hash, self.table.number_of(hash))
    }

    /// A grant is made at the key that was asked last in this shard.
    #[inline(always)]
    fn open(&self, shard: &mut Shard<K, P, S>, number: usize) -> (GrantId, &'t OpenGrant) {
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

    /// The grant of a call that a word decided.
    // Not built before the answer is known: it would be written to memory.
    #[inline(always)]
    fn granted(&self, (open, receipt): Opened<'t, P>, cost: P::Cost) -> Grant<'t, P> {
        self.grant(open, cost, Charge::at_once(Some(receipt)))
    }

    /// Grants or refuses without a wait.
    #[inline(always)]
    pub(super) fn try_acquire(&self, cost: P::Cost) -> Result<Grant<'t, P>, Error> {
        match self.attempt(cost, Some(Duration::ZERO)) {
            Attempt::Granted(opened) => Ok(self.granted(opened, cost)),
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
            Attempt::Granted(opened) => Ok(GrantOrWait::Granted(self.granted(opened, ask.cost))),
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
        let mut entered = self.enter(false)?;
        let Entered { ref mut shard, number, bucket, now, is_new } = entered;
        let outcome = match shard.decide(bucket, now, cost, max_wait) {
            Some(Ok(charge)) => {
                let open = self.open(shard, number);
                Ok(GrantOrWait::Granted(self.grant(open, cost, charge)))
            }
            Some(Err(error)) => Err(error),
            None => Ok(GrantOrWait::Waiting(RateLimiter::of_line(shard.line(bucket)))),
        };
        if is_new || matches!(outcome, Ok(GrantOrWait::Waiting(_))) {
            let idle_at = shard.idle_at(bucket, now).unwrap_or_default();
            // A refused key takes no room, unless it would begin anew with each call: what its callers wait for would
            // never come.
            match &outcome {
                Err(Error::Denied { .. }) if idle_at > now => self.changed(entered, idle_at),
                Ok(_) => self.changed(entered, idle_at),
                Err(_) => {
                    let key = shard.remove(bucket);
                    drop(entered);
                    self.table.drop_keys(key.into_iter().collect());
                }
            }
        }
        outcome
    }

    /// The limiter of the key, made if it has none. `closes`: for a caller that closes the key, which needs no room and no
    /// open table.
    pub(super) fn line(&self, closes: bool) -> Result<Arc<Line<P>>, Error> {
        let mut entered = self.enter(closes)?;
        let line = entered.shard.line(entered.bucket);
        self.changed(entered, Nanos::ZERO);
        Ok(line)
    }

    /// Finds the key, or puts it into the table.
    fn enter(&self, closes: bool) -> Result<Entered<'t, K, P, S>, Error> {
        let Self { table, key } = *self;
        let max_keys = if closes { usize::MAX } else { table.common.options.max_keys };
        let (hash, number) = self.place();
        let mut is_swept = false;
        loop {
            // Dropped after unlocking, like all keys.
            let new;
            let mut shard = table.lock(number);
            if shard.is_closed && !closes {
                shard.stats.refused += 1;
                return Err(Error::Closed);
            }
            let now = shard.now();
            if let Some(bucket) = shard.find(hash, |entry| key.is_key(entry)) {
                return Ok(Entered { shard, number, bucket, now, is_new: false });
            }
            // Before the shard doubles, its idle keys go.
            if shard.is_full() && !is_swept {
                drop(shard);
                table.sweep(number);
                is_swept = true;
                continue;
            }
            new = key.to_key();
            let state = shard.absent(&new, now);
            let more = |keys| (keys < max_keys).then_some(keys + 1);
            if table.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
                let bucket = shard.insert((hash, new), state, now);
                return Ok(Entered { shard, number, bucket, now, is_new: true });
            }
            drop(shard);
            table.make_room(number)?;
        }
    }

    /// A key came, or may be idle earlier than it was: from then on.
    fn changed(&self, mut entered: Entered<'_, K, P, S>, idle_at: Nanos) {
        let now = entered.now;
        entered.shard.may_be_idle(idle_at);
        drop(entered);
        self.table.look_by(now, idle_at);
    }

    /// Looks at the limiter of the key. One without is looked at as if it had one, an absent one as if it came now.
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let (hash, number) = self.place();
        // Dropped after unlocking, like all keys.
        let absent;
        let mut shard = self.table.lock(number);
        let now = shard.now();
        let copy = match shard.find(hash, |key| self.key.is_key(key)) {
            Some(bucket) => shard.copy(bucket, now).ok_or_else(|| shard.line(bucket)),
            None => {
                absent = self.key.to_key();
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
        let found = shard.find(hash, |key| self.key.is_key(key));
        let after = found.and_then(|bucket| shard.refresh(bucket));
        let now = shard.now();
        drop(shard);
        after.into_iter().for_each(AfterUnlock::run);
        self.table.look_by(now, Nanos::ZERO);
    }
}

#[inline(always)]
fn refused(wait: Nanos) -> Error {
    Error::Denied { retry_after: Some(wait.since(Nanos::ZERO)), part: None }
}

/// Where a caller of a key stands: at the limiter of the key, once it has asked.
#[derive(Default)]
pub enum KeyPlace<P: Policy> {
    #[default]
    Outside,
    At(Acquire<RateLimiter<P>>),
    Over,
}

impl<P: Policy> KeyPlace<P> {
    pub(super) fn poll<'a>(
        &mut self,
        ask: &Ask<P::Cost>,
        arrive: impl FnOnce() -> Result<GrantOrWait<'a, P>, Error>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        if matches!(self, Self::Outside) {
            *self = Self::Over;
            match arrive()? {
                GrantOrWait::Granted(grant) => return Poll::Ready(Ok(grant)),
                GrantOrWait::Waiting(limiter) => *self = Self::At(Acquire::new(limiter, *ask)),
            }
        }
        let polled = Pin::new(self.at()).poll(context);
        if polled.is_ready() {
            // The key is not kept for a caller that has its grant.
            *self = Self::Over;
        }
        polled
    }

    pub(super) fn enter(
        &mut self,
        line: impl FnOnce() -> Result<Arc<Line<P>>, Error>,
        ask: &Ask<P::Cost>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if matches!(self, Self::Outside) {
            *self = Self::At(Acquire::new(RateLimiter::of_line(line()?), *ask));
        }
        self.at().poll_enter(context)
    }

    #[track_caller]
    fn at(&mut self) -> &mut Acquire<RateLimiter<P>> {
        let Self::At(acquire) = self else { panic!("`Acquire` polled after it was ready") };
        acquire
    }

    pub(super) fn leave(&mut self) {
        *self = Self::Over;
    }

    pub(super) fn delay(&self) -> Duration {
        if let Self::At(acquire) = self { acquire.delay() } else { Duration::ZERO }
    }

    pub(super) fn into_owned(self) -> Acquire<RateLimiter<P>> {
        let Self::At(acquire) = self else { unreachable!("it has entered") };
        acquire
    }
}

impl<P: Policy> fmt::Debug for KeyPlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside => f.write_str("outside"),
            Self::At(acquire) => acquire.place().fmt(f),
            Self::Over => f.write_str("over"),
        }
    }
}

impl<K, P: Policy, Q: ?Sized, S> Clone for KeyRef<'_, K, P, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Policy, Q: ?Sized, S> Copy for KeyRef<'_, K, P, Q, S> {}

impl<K, P: Policy, Q: ?Sized, S> Clone for Call<'_, '_, K, P, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Policy, Q: ?Sized, S> Copy for Call<'_, '_, K, P, Q, S> {}

impl<K, P: Policy, Q: fmt::Debug + ?Sized, S> fmt::Debug for KeyRef<'_, K, P, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRef").field(&self.0.key).finish()
    }
}

impl<K, P: Policy, Q: ?Sized, S> Sealed for KeyRef<'_, K, P, Q, S> {}

impl<K, P: Policy, Q: ?Sized, S> InProcess for KeyRef<'_, K, P, Q, S> where Self: Queue {}

impl<'a, K, P, Q, S> Queue for KeyRef<'a, K, P, Q, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
    type Cost = P::Cost;
    type Grant = Grant<'a, P>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        place.poll(ask, || limiter.0.grant_or_wait(ask), context)
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        place.enter(|| limiter.0.line(false), ask, context)
    }

    fn leave(_: &Self, _: &Ask<P::Cost>, place: &mut KeyPlace<P>) {
        place.leave();
    }

    fn delay(_: &Self, place: &KeyPlace<P>) -> Duration {
        place.delay()
    }

    fn into_owned(_: &Self, _: &Ask<P::Cost>, place: KeyPlace<P>) -> Acquire<RateLimiter<P>> {
        place.into_owned()
    }
}
