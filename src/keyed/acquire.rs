//! A caller at a key.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Call, GrantOrWait};
use super::hash::FastHash;
use super::table::Table;
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::{Ask, Borrowed, Handle, InProcess, Queue, sealed::Sealed};
use crate::line::Line;
use crate::policy::Policy;
use crate::rate_limiter::place::LinePlace;
use crate::rate_limiter::{Grant, RateLimiter};

/// Where a caller of a key stands: at the limiter of the key, once it has asked.
pub struct KeyPlace<P: Policy>(Option<(Option<RateLimiter<P>>, LinePlace<P>)>);

impl<P: Policy> Default for KeyPlace<P> {
    fn default() -> Self {
        Self(None)
    }
}

impl<P: Policy> fmt::Debug for KeyPlace<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("outside"),
            Some((_, place)) => place.fmt(f),
        }
    }
}

impl<P: Policy> KeyPlace<P> {
    pub(super) fn poll<'a>(
        &mut self,
        ask: &Ask<P::Cost>,
        arrive: impl FnOnce() -> Result<GrantOrWait<'a, P>, Error>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        if self.0.is_none() {
            self.0 = Some((None, LinePlace::over()));
            match arrive()? {
                GrantOrWait::Granted(grant) => return Poll::Ready(Ok(grant)),
                GrantOrWait::Waiting(limiter) => self.wait_at(limiter),
            }
        }
        let Some((limiter, place)) = &mut self.0 else { unreachable!("it has asked") };
        RateLimiter::poll_acquire(limiter, ask, place, context)
    }

    fn wait_at(&mut self, limiter: RateLimiter<P>) {
        self.0 = Some((Some(limiter), LinePlace::default()));
    }

    pub(super) fn enter(
        &mut self,
        line: impl FnOnce() -> Result<Arc<Line<P>>, Error>,
        ask: &Ask<P::Cost>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.0.is_none() {
            self.wait_at(RateLimiter::of_line(line()?));
        }
        let Some((limiter, place)) = &mut self.0 else { unreachable!("it has asked") };
        RateLimiter::poll_enter(limiter, ask, place, context)
    }

    pub(super) fn leave(&mut self, ask: &Ask<P::Cost>) {
        if let Some((limiter, place)) = &mut self.0 {
            RateLimiter::leave(limiter, ask, place);
        }
    }

    pub(super) fn delay(&self) -> Duration {
        match &self.0 {
            Some((limiter, place)) => RateLimiter::delay(limiter, place),
            None => Duration::ZERO,
        }
    }

    pub(super) fn into_line(self) -> (RateLimiter<P>, LinePlace<P>) {
        let Some((Some(limiter), place)) = self.0 else { unreachable!("it has entered") };
        (limiter, place)
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
    type Handle = Borrowed<Self>;
    type Place = KeyPlace<P>;
    type Owned = RateLimiter<P>;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<'a, P>, Error>> {
        let Self { table, key } = *limiter.get();
        place.poll(ask, || Call { table, key }.grant_or_wait(ask), context)
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut KeyPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let Self { table, key } = *limiter.get();
        place.enter(|| Call { table, key }.line(false), ask, context)
    }

    fn leave(_: &Self::Handle, ask: &Ask<P::Cost>, place: &mut KeyPlace<P>) {
        place.leave(ask);
    }

    fn delay(_: &Self::Handle, place: &KeyPlace<P>) -> Duration {
        place.delay()
    }

    fn into_owned(_: &mut Self::Handle, place: KeyPlace<P>) -> (RateLimiter<P>, LinePlace<P>) {
        place.into_line()
    }
}
