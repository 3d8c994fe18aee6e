//! What a limiter knows of its keys.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::{KeyedRateLimiter, ToKey};
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe;
use crate::policy::{Limit, Policy, Quota};
use crate::stats::{Stats, Waits};

impl<K, P, S> KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The permits that can be acquired at `key` now without a wait for the next caller; see
    /// [`RateLimiter::available`](crate::RateLimiter::available).
    #[must_use]
    pub fn available<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> P::Cost {
        self.quota(key).remaining
    }

    /// The limit at `key` and what remains of it; see
    /// [`RateLimiter::quota`](crate::RateLimiter::quota).
    #[must_use]
    pub fn quota<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Quota<P::Cost> {
        self.key(key).look(|inner, now| inner.quota(now))
    }

    /// How long a call for `n` permits of a key would wait if it came now; see
    /// [`RateLimiter::would_wait`](crate::RateLimiter::would_wait). It creates no key.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if waiting does not help.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(10.0), 1);
    /// let keys = KeyedRateLimiter::<&str, _>::with_clock(policy, ManualClock::new());
    /// keys.try_acquire(&"alice", 1)?;
    /// assert_eq!(keys.would_wait(&"alice", 1)?, Some(Duration::from_millis(100)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn would_wait<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: P::Cost,
    ) -> Result<Option<Duration>, Error> {
        Ok(self.key(key).look(|inner, now| inner.would_wait(now, n))?)
    }

    /// How much is left of each limit at `key`, for a request of `cost`.
    pub(crate) fn limits<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
    ) -> Vec<Limit<P::Cost>> {
        self.key(key).look(|inner, now| inner.limits(now, cost))
    }

    /// The number of waiters at `key`.
    #[must_use]
    pub fn queue_len<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> usize {
        self.key(key).look(|inner, _| inner.queue_len())
    }

    /// The permits that callers of a key wait for, all costs together.
    #[must_use]
    pub fn queued_permits<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u64 {
        self.key(key).look(|inner, _| inner.queued_permits())
    }

    /// The number of keys in the table, including idle keys that have not been dropped yet.
    ///
    /// They [go soon](Self#idle-keys-go), so this number is an upper bound of the keys in use. For an exact gauge,
    /// call [`remove_idle`](Self::remove_idle) first.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table holds no key; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name given to the [builder](crate::KeyedRateLimiterBuilder::name).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.table.common.observer.name.as_deref()
    }

    /// The clock that decides and wakes waiters.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.table.common.clock
    }

    /// The maximum number of keys; see [`crate::KeyedRateLimiterBuilder::max_keys`].
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.table.common.options.max_keys
    }

    /// The maximum number of waiters at each key; `usize::MAX` if the
    /// [builder](crate::KeyedRateLimiterBuilder::max_waiters) set none.
    #[must_use]
    pub fn max_waiters(&self) -> usize {
        self.table.common.options.bounds.waiters
    }

    /// The maximum number of permits that the waiters of one key together may ask for; `u64::MAX` if
    /// the [builder](crate::KeyedRateLimiterBuilder::max_queued_permits) set none.
    #[must_use]
    pub fn max_queued_permits(&self) -> u64 {
        self.table.common.options.bounds.permits
    }

    /// The keys in the table, in no particular order. They are read shard by shard, not atomically.
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.table.keys()
    }

    /// Counters of all keys together since the limiter was created.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// How long callers waited at all keys, and for which limit of the policy.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.table.common.observer.waits()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self) -> observe::Observe {
        observe::observe(
            &self.table,
            |table| &table.common.observer,
            |table| observe::Observation {
                stats: table.stats(),
                waits: table.common.observer.waits(),
                waiting: table.queue_len(),
                ..observe::Observation::default()
            },
        )
    }
}

impl<K, P: Policy, S> fmt::Debug for KeyedRateLimiter<K, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KeyedRateLimiter");
        if let Some(name) = &self.table.common.observer.name {
            shown.field("name", name);
        }
        shown
            .field("keys", &self.table.len())
            .field("clock", &self.table.common.clock)
            .finish_non_exhaustive()
    }
}
