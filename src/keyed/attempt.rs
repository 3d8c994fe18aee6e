//! Calls that the word of their key decides: most of them.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::ToKey;
use super::shard::Shard;
use super::table::Table;
use crate::error::Error;
use crate::line::Charge;
use crate::policy::Policy;
use crate::policy::packed::Attempt;
use crate::rate_limiter::{Grant, GrantId, GrantOwner, KeyGuard, OpenGrant};
use crate::sync::SpinMutexGuard;
use crate::units::Nanos;

/// A grant that was opened, with the word that says so.
pub(super) type Opened<'a, P> = (GrantId, &'a OpenGrant, <P as Policy>::Receipt);

/// A call that a word does not decide, and the lock under which it was not.
pub(super) struct Undecided<'a, K, P: Policy> {
    pub(super) shard: SpinMutexGuard<'a, Shard<K, P>>,
    pub(super) hash: u64,
    pub(super) now: Nanos,
    pub(super) is_time_to_sweep: bool,
}

impl<K: Hash + Eq + Send + 'static, P: Policy, S: BuildHasher + Send + Sync + 'static>
    Table<K, P, S>
{
    /// Decides a call that need not wait, if a word decides it: most calls. [`arrive`](Self::arrive) decides the others.
    // As `Line::decide`.
    #[inline(always)]
    pub(super) fn attempt<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Result<Opened<'_, P>, Error>, Undecided<'_, K, P>> {
        let hash = self.hash_of(key);
        let number = Self::shard_of(hash);
        let part = self.part(number);
        let mut shard = part.lock();
        let now = shard.now(&self.clock);
        if !shard.count_call(self.sweeps.calls()) {
            return Err(Undecided { shard, hash, now, is_time_to_sweep: true });
        }
        // Zero first: `try_acquire` is compiled without the comparison then.
        let is_too_late =
            |due| max_wait.is_some_and(|wait| wait.is_zero() || due > now.saturating_add(wait));
        match shard.attempt(hash, |entry| key.is_key(&entry.key), now, cost) {
            Attempt::Granted((place, receipt)) => {
                shard.stats.granted += 1;
                let (id, open) = part.open(number, shard.grant(hash, place));
                Ok(Ok((id, open, receipt)))
            }
            Attempt::NotBefore(due) if is_too_late(due) => {
                shard.stats.refused += 1;
                Ok(Err(Error::Denied { retry_after: Some(due.since(now)), part: None }))
            }
            Attempt::NotBefore(_) | Attempt::Undecided => {
                Err(Undecided { shard, hash, now, is_time_to_sweep: false })
            }
        }
    }

    /// A grant that was opened.
    #[inline(always)]
    pub(super) fn granted<'a>(
        &'a self,
        (id, open): (GrantId, &'a OpenGrant),
        cost: P::Cost,
        charge: Charge<P::Receipt>,
    ) -> Grant<'a, P> {
        Grant::new(GrantOwner::key(KeyGuard::new(self, open, id)), cost, charge)
    }
}
