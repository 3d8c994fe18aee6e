//! The future behind the methods that wait at a key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::grant_or_wait::GrantOrWait;
use super::table::Table;
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::{Acquire, Grant};
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
pub struct KeyedAcquire<'a, K, P: Policy, Q: ?Sized = K> {
    stage: Stage<'a, K, P, Q>,
    cost: P::Cost,
    max_wait: Option<Duration>,
}

enum Stage<'a, K, P: Policy, Q: ?Sized> {
    Borrowed { table: &'a Table<K, P>, key: &'a Q },
    Owned { table: Arc<Table<K, P>>, key: K },
    Waiting(Acquire<'static, P>),
    Over,
}

impl<'a, K, P: Policy, Q: ?Sized> KeyedAcquire<'a, K, P, Q> {
    pub(super) fn borrowed(
        table: &'a Table<K, P>,
        key: &'a Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { stage: Stage::Borrowed { table, key }, cost, max_wait }
    }

    pub(super) fn owned(
        table: Arc<Table<K, P>>,
        key: K,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { stage: Stage::Owned { table, key }, cost, max_wait }
    }
}

// No field is ever pinned.
impl<K, P: Policy, Q: ?Sized> Unpin for KeyedAcquire<'_, K, P, Q> {}

impl<'a, K, P, Q> Future for KeyedAcquire<'a, K, P, Q>
where
    K: Hash + Eq + Send + Borrow<Q> + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
{
    type Output = Result<Grant<'a, P>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stage, cost, max_wait } = self.get_mut();
        if !matches!(stage, Stage::Waiting(_)) {
            let arrived = match std::mem::replace(stage, Stage::Over) {
                Stage::Borrowed { table, key } => table.grant_or_wait(key, *cost, *max_wait)?,
                Stage::Owned { table, key } => {
                    table.grant_or_wait(key.borrow(), *cost, *max_wait)?.into_owned()
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

impl<K, P: Policy, Q: ?Sized> fmt::Debug for KeyedAcquire<'_, K, P, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Borrowed { .. } | Stage::Owned { .. } => "outside",
            Stage::Waiting(_) => "waiting",
            Stage::Over => "over",
        };
        f.debug_struct("KeyedAcquire").field("cost", &self.cost).field("stage", &stage).finish()
    }
}
