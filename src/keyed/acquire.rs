//! The future behind the verbs that wait at a key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{GrantOrWait, KeyedRateLimiter, ToKey};
use crate::error::Error;
use crate::limiter::{Acquire, Grant};
use crate::policy::Policy;

/// A caller on its way to a [`Grant`] at a key: the future of
/// [`KeyedRateLimiter::acquire`] and [`try_acquire_timeout`](KeyedRateLimiter::try_acquire_timeout).
///
/// `Q` is the form in which the key was named.
///
/// # Cancel safety
///
/// Dropping it leaves the queue of the key; see [`RateLimiter::acquire`](crate::RateLimiter::acquire).
///
/// # Panics
///
/// When it is polled again after it was ready.
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
    place: Place<'a, K, P, Q>,
    cost: P::Cost,
    max_wait: Option<Duration>,
}

enum Place<'a, K, P: Policy, Q: ?Sized> {
    Borrowed { limiter: &'a KeyedRateLimiter<K, P>, key: &'a Q },
    Owned { limiter: KeyedRateLimiter<K, P>, key: K },
    Waiting(Acquire<'static, P>),
    Over,
}

impl<'a, K, P: Policy, Q: ?Sized> KeyedAcquire<'a, K, P, Q> {
    pub(super) fn borrowed(
        limiter: &'a KeyedRateLimiter<K, P>,
        key: &'a Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { place: Place::Borrowed { limiter, key }, cost, max_wait }
    }

    pub(crate) fn owned(
        limiter: KeyedRateLimiter<K, P>,
        key: K,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        Self { place: Place::Owned { limiter, key }, cost, max_wait }
    }
}

// Nothing in it is ever pinned.
impl<K, P: Policy, Q: ?Sized> Unpin for KeyedAcquire<'_, K, P, Q> {}

impl<'a, K, P, Q> Future for KeyedAcquire<'a, K, P, Q>
where
    K: Hash + Eq + Send + Borrow<Q> + 'static,
    P: Policy,
    Q: ToKey<K> + ?Sized,
{
    type Output = Result<Grant<'a, P>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, cost, max_wait } = self.get_mut();
        if !matches!(place, Place::Waiting(_)) {
            let arrived = match std::mem::replace(place, Place::Over) {
                Place::Borrowed { limiter, key } => limiter.arrive(key, *cost, *max_wait)?,
                Place::Owned { limiter, key } => {
                    match limiter.arrive(key.borrow(), *cost, *max_wait)? {
                        GrantOrWait::Granted(grant) => GrantOrWait::Granted(grant.into_owned()),
                        GrantOrWait::Waiting(acquire) => GrantOrWait::Waiting(acquire),
                    }
                }
                Place::Waiting(_) | Place::Over => {
                    panic!("`KeyedAcquire` polled after it was ready")
                }
            };
            match arrived {
                GrantOrWait::Granted(grant) => return Poll::Ready(Ok(grant)),
                GrantOrWait::Waiting(acquire) => *place = Place::Waiting(acquire),
            }
        }
        let Place::Waiting(acquire) = place else { unreachable!("just entered") };
        let granted = std::task::ready!(Pin::new(acquire).poll(context));
        *place = Place::Over;
        Poll::Ready(granted)
    }
}

impl<K, P: Policy, Q: ?Sized> fmt::Debug for KeyedAcquire<'_, K, P, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Borrowed { .. } | Place::Owned { .. } => "outside",
            Place::Waiting(_) => "waiting",
            Place::Over => "over",
        };
        f.debug_struct("KeyedAcquire").field("cost", &self.cost).field("place", &place).finish()
    }
}
