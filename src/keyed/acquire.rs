//! The future behind the methods that wait at a key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::grant_or_wait::GrantOrWait;
use super::hash::FastHash;
use super::table::Table;
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::{Acquire, Grant, GrantOwner, Reservation};
use crate::park::block_on;
use crate::policy::Policy;

/// A future that waits for a [`Grant`] at a key, returned by
/// [`acquire`](crate::KeyedRateLimiter::acquire) and
/// [`try_acquire_timeout`](crate::KeyedRateLimiter::try_acquire_timeout).
///
/// `Q` is the borrowed form of the key that the caller passed.
///
/// # Cancel safety
///
/// Dropping it leaves the queue of the key; see [`RateLimiter::acquire`](crate::RateLimiter::acquire).
///
/// # Panics
///
/// If it is polled again after it returned `Poll::Ready`.
///
/// ```
/// use tollgate::{KeyedAcquire, KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(5.0), 1);
/// let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::auto_advance());
/// limiter.try_acquire("alice", 1)?;
/// let acquire: KeyedAcquire<'_, String, TokenBucket, str> = limiter.acquire("alice", 1);
/// assert_eq!(acquire.await?.waited().as_millis(), 200);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct KeyedAcquire<'a, K, P: Policy, Q: ?Sized = K, S = FastHash> {
    stage: Stage<'a, K, P, Q, S>,
    cost: P::Cost,
    max_wait: Option<Duration>,
    ahead: Duration,
}

enum Stage<'a, K, P: Policy, Q: ?Sized, S> {
    Borrowed { table: &'a Table<K, P, S>, key: &'a Q },
    Owned { table: Arc<Table<K, P, S>>, key: K },
    Waiting(Acquire<'static, P>),
    Over,
}

impl<'a, K, P: Policy, Q: ?Sized, S> KeyedAcquire<'a, K, P, Q, S> {
    pub(super) fn borrowed(
        table: &'a Table<K, P, S>,
        key: &'a Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { stage: Stage::Borrowed { table, key }, cost, max_wait, ahead: Duration::ZERO }
    }

    pub(super) fn owned(
        table: Arc<Table<K, P, S>>,
        key: K,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { stage: Stage::Owned { table, key }, cost, max_wait, ahead: Duration::ZERO }
    }

    /// Enters the queue of the key as if this caller had come `ahead` earlier; see [`Acquire::ahead_by`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// # let clock = ManualClock::new();
    /// # let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, clock);
    /// limiter.try_acquire("alice", 1)?;
    /// let batch = limiter.reserve("alice", 1)?;
    /// let urgent = limiter.acquire("alice", 1).ahead_by(Duration::from_secs(60)).reserve()?;
    /// assert_eq!((urgent.delay().as_millis(), batch.delay().as_millis()), (200, 400));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.go_ahead_by(ahead);
        self
    }

    pub(crate) fn go_ahead_by(&mut self, ahead: Duration) {
        self.ahead = ahead;
    }
}

impl<'a, K, P, Q, S> KeyedAcquire<'a, K, P, Q, S>
where
    K: Hash + Eq + Send + Borrow<Q> + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Joins the queue of the key now, without waiting; see [`Acquire::reserve`].
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// # Panics
    ///
    /// If the future has returned `Poll::Ready`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// # let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::new());
    /// let first = limiter.acquire(&7, 1).reserve()?;
    /// let second = limiter.try_acquire_timeout(&7, 1, Duration::from_secs(1)).reserve()?;
    /// assert_eq!(second.delay().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reserve(self) -> Result<Reservation<P>, Error> {
        let line = match self.stage {
            Stage::Borrowed { table, key } => table.line(key)?,
            Stage::Owned { table, key } => table.line(key.borrow())?,
            Stage::Waiting(acquire) => return acquire.reserve(),
            Stage::Over => panic!("`KeyedAcquire` used after it was ready"),
        };
        let acquire = Acquire::new(GrantOwner::owned(line), self.cost, self.max_wait);
        acquire.ahead_by(self.ahead).reserve()
    }

    /// Waits on this thread; see [`Acquire::blocking_wait`].
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(5.0), 1);
    /// # let limiter = KeyedRateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.acquire(&7, 1).blocking_wait()?;
    /// assert_eq!(limiter.acquire(&7, 1).blocking_wait()?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_wait(self) -> Result<Grant<'a, P>, Error> {
        block_on(self)
    }
}

// No field is ever pinned.
impl<K, P: Policy, Q: ?Sized, S> Unpin for KeyedAcquire<'_, K, P, Q, S> {}

impl<'a, K, P, Q, S> Future for KeyedAcquire<'a, K, P, Q, S>
where
    K: Hash + Eq + Send + Borrow<Q> + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
    type Output = Result<Grant<'a, P>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stage, cost, max_wait, ahead } = self.get_mut();
        if !matches!(stage, Stage::Waiting(_)) {
            let arrived = match std::mem::replace(stage, Stage::Over) {
                Stage::Borrowed { table, key } => {
                    table.grant_or_wait(key, *cost, *max_wait, *ahead)?
                }
                Stage::Owned { table, key } => {
                    table.grant_or_wait(key.borrow(), *cost, *max_wait, *ahead)?.into_owned()
                }
                Stage::Waiting(_) | Stage::Over => {
                    panic!("`KeyedAcquire` polled after it was ready")
                }
            };
            match arrived {
                GrantOrWait::Granted(grant) => return Poll::Ready(Ok(grant)),
                GrantOrWait::Waiting(acquire) => *stage = Stage::Waiting(acquire),
            }
        }
        let Stage::Waiting(acquire) = stage else { unreachable!("just entered") };
        let granted = std::task::ready!(Pin::new(acquire).poll(context));
        *stage = Stage::Over;
        Poll::Ready(granted)
    }
}

impl<K, P: Policy, Q: ?Sized, S> fmt::Debug for KeyedAcquire<'_, K, P, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Borrowed { .. } | Stage::Owned { .. } => "outside",
            Stage::Waiting(_) => "waiting",
            Stage::Over => "over",
        };
        f.debug_struct("KeyedAcquire").field("cost", &self.cost).field("stage", &stage).finish()
    }
}
