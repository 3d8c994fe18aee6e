//! A caller at a key.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Call, GrantOrWait};
use super::hash::FastHash;
use super::table::Table;
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::{Acquire, Ask, InProcess, Queue, sealed::Sealed};
use crate::line::Line;
use crate::policy::Policy;
use crate::rate_limiter::{Grant, RateLimiter};

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

/// One key of a [`KeyedRateLimiter`](crate::KeyedRateLimiter), borrowed: what a call waits at. `Q` is the borrowed form of the key that
/// the caller passed.
pub struct KeyRef<'a, K, P: Policy, Q: ?Sized = K, S = FastHash> {
    table: &'a Table<K, P, S>,
    key: &'a Q,
}

impl<'a, K, P: Policy, Q: ?Sized, S> KeyRef<'a, K, P, Q, S> {
    pub(super) fn new(table: &'a Table<K, P, S>, key: &'a Q) -> Self {
        Self { table, key }
    }
}

impl<K, P: Policy, Q: ?Sized, S> Clone for KeyRef<'_, K, P, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Policy, Q: ?Sized, S> Copy for KeyRef<'_, K, P, Q, S> {}

impl<K, P: Policy, Q: fmt::Debug + ?Sized, S> fmt::Debug for KeyRef<'_, K, P, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRef").field(&self.key).finish()
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
        let Self { table, key } = *limiter;
        place.poll(ask, || Call { table, key }.grant_or_wait(ask), context)
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let Self { table, key } = *limiter;
        place.enter(|| Call { table, key }.line(false), ask, context)
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
