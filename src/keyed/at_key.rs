//! A limiter for one key.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::KeyedRateLimiter;
use super::hash::FastHash;
use crate::policy::Policy;

/// One key of a [`KeyedRateLimiter`], as an [`AnyRateLimiter`](crate::AnyRateLimiter); see
/// [`KeyedRateLimiter::at`].
///
/// The handle does not keep its key in the table: an idle key is dropped even while handles to it exist.
///
/// ```
/// use tollgate::{AnyRateLimiter, KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
/// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let alice: Box<dyn AnyRateLimiter> = Box::new(limiter.at("alice".to_owned()));
/// alice.acquire(3).await?;
/// assert_eq!((limiter.available("alice"), limiter.available("bob")), (0, 3));
/// assert_eq!(alice.acquire(1).await?.waited().as_millis(), 200);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AtKey<K, P: Policy, S = FastHash> {
    limiter: KeyedRateLimiter<K, P, S>,
    key: K,
}

impl<K, P, S> KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A handle to one key, for code that takes an [`AnyRateLimiter`](crate::AnyRateLimiter).
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::new(InFlight::new(2));
    /// assert_eq!(limiter.at("alice").key(), &"alice");
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> AtKey<K, P, S> {
        AtKey { limiter: self.clone(), key }
    }
}

impl<K, P: Policy, S> AtKey<K, P, S> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The limiter of all keys.
    #[must_use]
    pub fn limiter(&self) -> &KeyedRateLimiter<K, P, S> {
        &self.limiter
    }
}

impl<K: Clone, P: Policy, S> Clone for AtKey<K, P, S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: self.key.clone() }
    }
}

impl<K: fmt::Debug, P: Policy, S> fmt::Debug for AtKey<K, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtKey").field("key", &self.key).field("limiter", &self.limiter).finish()
    }
}
