//! Changes of limits, pauses, and the removal of keys.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::states::Rule;
use super::{KeyedRateLimiter, ToKey};
use crate::error::Error;
use crate::observe::Event;
use crate::policy::Policy;
use crate::rate_limiter::RateLimiter;
use crate::wait_queue::End;

impl<K, P, S> KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Puts **all** keys under one policy, and drops the function of the key if there was one. The change reaches
    /// callers that already wait; see [`RateLimiter::set_policy`](crate::RateLimiter::set_policy). Keys are
    /// changed one after another, not atomically.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let slow = TokenBucket::new(Rate::per_second(1.0), 10);
    /// let limiter = KeyedRateLimiter::with_clock(slow, ManualClock::new());
    /// limiter.try_acquire(&7, 10)?;
    /// limiter.set_policy(TokenBucket::new(Rate::per_second(100.0), 10));
    /// assert_eq!(limiter.try_acquire(&7, 1).unwrap_err().retry_after().unwrap().as_millis(), 10);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_policy(&self, policy: P) {
        self.table.set_rule(Rule::One(policy));
        self.table.common.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Puts each key under the policy that `policy_of` returns for it; see
    /// [`with_policies`](Self::with_policies).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let rate = Rate::per_second(1.0);
    /// let policy = TokenBucket::new(rate, 10);
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.set_policies(move |&key| TokenBucket::new(rate, key));
    /// assert_eq!((limiter.available(&3), limiter.available(&30)), (3, 30));
    /// ```
    pub fn set_policies(&self, policy_of: impl Fn(&K) -> P + Send + Sync + 'static) {
        self.table.set_rule(Rule::Each(Box::new(policy_of)));
        self.table.common.observer.report(&Event::PolicyChanged { rate: None });
    }

    /// Calls the function of the key again for this key; use it after the function's result has changed. Does
    /// nothing if the key is absent, or if all keys have [one policy](Self::set_policy).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    ///
    /// let capacity = Arc::new(AtomicU32::new(5));
    /// let plan = Arc::clone(&capacity);
    /// let policy_of =
    ///     move |_: &i32| TokenBucket::new(Rate::per_second(1.0), plan.load(Ordering::Relaxed));
    /// let limiter = KeyedRateLimiter::with_policies(policy_of, ManualClock::new());
    /// limiter.try_acquire(&7, 1)?;
    /// capacity.store(50, Ordering::Relaxed);
    /// assert!(limiter.try_acquire(&7, 50).is_err());
    /// limiter.refresh(&7);
    /// assert_eq!(limiter.quota(&7).limit, 50);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn refresh<Q: ToKey<K> + ?Sized>(&self, key: &Q) {
        self.key(key).refresh();
    }

    /// Grants nothing at `key` for `duration` from now; see
    /// [`RateLimiter::pause_for`](crate::RateLimiter::pause_for).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`]: the key is absent, and there is no room for it.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// # use std::time::Duration;
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.pause_for(&7, Duration::from_secs(30))?;
    /// assert_eq!(limiter.blocking_acquire(&8, 1)?.waited().as_secs(), 0);
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_secs(), 30);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn pause_for<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        duration: Duration,
    ) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.pause(now, duration));
        self.table.common.observer.paused(duration);
        Ok(())
    }

    /// Ends a pause of `key` now; see [`RateLimiter::resume`](crate::RateLimiter::resume).
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// # use std::time::Duration;
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.pause_for(&7, Duration::from_secs(30))?;
    /// limiter.resume(&7)?;
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_secs(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn resume<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.resume(now));
        self.table.common.observer.report(&Event::Resumed);
        Ok(())
    }

    /// A key begins anew; see [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// # Errors
    ///
    /// [`Error::TooManyKeys`].
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(10.0), 5);
    /// let keys = KeyedRateLimiter::<&str, _>::with_clock(policy, ManualClock::new());
    /// keys.try_acquire(&"alice", 5)?;
    /// keys.reset(&"alice")?;
    /// assert_eq!(keys.available(&"alice"), 5);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reset<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<(), Error> {
        self.key(key).line(false)?.with_lock(|inner, now| inner.reset(now));
        Ok(())
    }

    /// Closes **all** keys: waiters and later calls get [`Error::Closed`], also calls that pause a key. See
    /// [`Limiter::close`](crate::Limiter::close). A key that is closed alone, by [`at`](Self::at), stays in the table,
    /// even beyond `max_keys`.
    ///
    /// ```
    /// # use tollgate::{Error, InFlight, KeyedRateLimiter, Limiter};
    /// let limiter = KeyedRateLimiter::new(InFlight::new(1));
    /// limiter.at(7).close();
    /// assert_eq!(limiter.try_acquire(&7, 1).unwrap_err(), Error::Closed);
    /// assert!(limiter.try_acquire(&8, 1).is_ok());
    /// limiter.close();
    /// assert_eq!(limiter.try_acquire(&8, 1).unwrap_err(), Error::Closed);
    /// ```
    pub fn close(&self) {
        self.table.close(End::Close);
    }

    /// Closes all keys to new callers, and serves their queues; see [`Limiter::drain`](crate::Limiter::drain).
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::drain`](crate::Limiter::drain).
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = KeyedRateLimiter::new(InFlight::new(1));
    /// let call = limiter.try_acquire(&7, 1)?;
    /// tokio::join!(limiter.drain(), async { drop(call) });
    /// assert!(limiter.is_closed());
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn drain(&self) {
        for line in self.table.close(End::Serve) {
            RateLimiter::of_line(line).drain().await;
        }
    }

    /// Whether new callers get [`Error::Closed`] at all keys.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.is_closed()
    }

    /// Drops all idle keys now, and returns their number. This changes no decision.
    ///
    /// It visits every key, under one short lock after another. Idle keys [go anyway](Self#idle-keys-go); use this
    /// for an exact gauge, or to free memory now.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// let limiter = KeyedRateLimiter::with_clock(policy, &clock);
    /// limiter.try_acquire(&7, 1)?;
    /// clock.advance(Duration::from_millis(199));
    /// limiter.try_acquire(&8, 1)?;
    /// assert_eq!(limiter.remove_idle(), 0);
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!((limiter.remove_idle(), limiter.len()), (1, 1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn remove_idle(&self) -> usize {
        self.table.remove_idle()
    }

    /// Drops all keys for which `keep` returns `false`, such as former customers, and returns their number.
    ///
    /// **What they owe is forgotten**: the next call at such a key finds an idle one. Keys in use stay: keys with
    /// waiters, kept grants or places in flight, and paused keys.
    ///
    /// `keep` runs under a lock that other keys need, as [`with_policies`](Self::with_policies) describes.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::new());
    /// for key in ["eu-1", "eu-2", "us-1"] {
    ///     limiter.try_acquire(key, 3)?;
    /// }
    /// let held = limiter.try_acquire("eu-3", 3)?;
    /// assert_eq!(limiter.retain(|key| !key.starts_with("eu")), 2);
    /// assert_eq!((limiter.len(), limiter.available("eu-1"), limiter.available("eu-3")), (2, 3, 0));
    /// # drop(held);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn retain(&self, keep: impl FnMut(&K) -> bool) -> usize {
        self.table.retain(keep)
    }
}
