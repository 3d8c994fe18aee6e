//! Callers that have waited go on a little later, each at another time.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::error::Error;
use crate::limiter::{
    Acquire, Ask, Granted, Handle, InProcess, Kept, Limiter, OwnedLimiter, Queue, sealed::Sealed,
};
use crate::policy::unlimited::Unlimited;
use crate::rate_limiter::RateLimiter;

/// A limiter whose callers, once they have waited, go on a little later, each at a random time.
///
/// For many programs that call one server: after a pause, or at the start of a window, they would all call at once. A call
/// that need not wait is not delayed, and no call is delayed beyond its timeout. Permits are charged at the grant, so a
/// server that counts exactly needs [headroom](crate::Headroom) for the later arrival.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Jitter, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(10.0), 10);
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let limiter = Jitter::new(limiter, Duration::from_millis(500));
/// limiter.pause_for(Duration::from_secs(7)).await?; // the server has said so
/// limiter.acquire(1).await?;
/// let now = limiter.clock().now().get() / 1_000_000;
/// assert!((7_100..=7_600).contains(&now));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Jitter<L> {
    limiter: L,
    most: Duration,
    /// The hashes of a count are the random numbers.
    random: Arc<(RandomState, AtomicU64)>,
}

impl<L: OwnedLimiter> Jitter<L> {
    /// `limiter`, whose callers go on up to `most` later once they have waited.
    #[must_use]
    pub fn new(limiter: L, most: Duration) -> Self {
        Self { limiter, most, random: Arc::default() }
    }

    /// The limiter in it.
    #[must_use]
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    crate::limiter::methods_of_limiter!();

    /// A random wait, of a call that has waited and may wait for `left` more.
    fn sleep(&self, left: Duration) -> Acquire<RateLimiter<Unlimited>> {
        let (random, count) = &*self.random;
        #[allow(clippy::cast_precision_loss)] // a part of a wait
        let part = random.hash_one(count.fetch_add(1, Ordering::Relaxed)) as f64 / u64::MAX as f64;
        let bed = RateLimiter::with_clock(Unlimited, self.limiter.clock().clone());
        bed.pause_for(self.most.min(left).mul_f64(part));
        Acquire::new(bed, Ask::new(1, None))
    }
}

/// Where a caller of a [`Jitter`] stands.
pub struct JitterPlace<L: OwnedLimiter>(Standing<L>);

enum Standing<L: OwnedLimiter> {
    Outside,
    Waiting(Acquire<L>),
    /// It is granted, and sleeps.
    Granted(Kept<L::Grant>, Acquire<RateLimiter<Unlimited>>),
    Over,
}

impl<L: OwnedLimiter> Default for JitterPlace<L> {
    fn default() -> Self {
        Self(Standing::Outside)
    }
}

impl<L: OwnedLimiter> JitterPlace<L> {
    fn acquire(&mut self, jitter: &Jitter<L>, ask: &Ask<L::Cost>) -> Option<&mut Acquire<L>> {
        if matches!(self.0, Standing::Outside) {
            self.0 = Standing::Waiting(Acquire::new(jitter.limiter.clone(), *ask));
        }
        if let Standing::Waiting(acquire) = &mut self.0 { Some(acquire) } else { None }
    }
}

impl<L: OwnedLimiter> Sealed for Jitter<L> {}
impl<L: OwnedLimiter + InProcess> InProcess for Jitter<L> {}

impl<L: OwnedLimiter> Queue for Jitter<L> {
    type Cost = L::Cost;
    type Grant = L::Grant;
    type Handle = Option<Self>;
    type Place = JitterPlace<L>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<L::Cost>,
        place: &mut JitterPlace<L>,
        context: &mut Context<'_>,
    ) -> Poll<Result<L::Grant, Error>> {
        let jitter = limiter.get();
        if let Some(acquire) = place.acquire(jitter, ask) {
            let granted = ready!(Pin::new(acquire).poll(context));
            place.0 = Standing::Over;
            let grant = granted?;
            let left = ask.max_wait.map_or(jitter.most, |wait| wait.saturating_sub(grant.waited()));
            if grant.waited().is_zero() || left.is_zero() {
                return Poll::Ready(Ok(grant));
            }
            place.0 = Standing::Granted(Kept::new(grant), jitter.sleep(left));
        }
        if let Standing::Granted(_, sleep) = &mut place.0 {
            ready!(Pin::new(sleep).poll(context))?;
        }
        match mem::replace(&mut place.0, Standing::Over) {
            Standing::Granted(grant, _) => Poll::Ready(Ok(grant.into_grant())),
            _ => panic!("`Acquire` polled after it was ready"),
        }
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<L::Cost>,
        place: &mut JitterPlace<L>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let acquire = place.acquire(limiter.get(), ask);
        acquire.map_or(Poll::Ready(Ok(())), |acquire| acquire.poll_enter(context))
    }

    fn leave(_: &Self::Handle, _: &Ask<L::Cost>, place: &mut JitterPlace<L>) {
        place.0 = Standing::Over;
    }

    fn delay(_: &Self::Handle, place: &JitterPlace<L>) -> Duration {
        if let Standing::Waiting(acquire) = &place.0 { acquire.delay() } else { Duration::ZERO }
    }

    fn into_owned(limiter: &mut Self::Handle, place: JitterPlace<L>) -> (Self, JitterPlace<L>) {
        (Handle::take(limiter), place)
    }
}

impl<L: OwnedLimiter> Limiter for Jitter<L> {
    const IS_REMOTE: bool = L::IS_REMOTE;

    crate::limiter::as_inner_limiter!(changes, Limiter | jitter | &jitter.limiter);
    crate::limiter::as_inner_limiter!(asks, Limiter | jitter | &jitter.limiter);
    crate::limiter::as_inner_limiter!(counts, Limiter | jitter | &jitter.limiter);
    crate::limiter::as_inner_limiter!(reports, Limiter | jitter | &jitter.limiter);
}

impl<L: fmt::Debug> fmt::Debug for Jitter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jitter")
            .field("limiter", &self.limiter)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl<L: OwnedLimiter> fmt::Debug for JitterPlace<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Standing::Outside => "outside",
            Standing::Waiting(_) => "waiting",
            Standing::Granted(..) => "granted",
            Standing::Over => "over",
        })
    }
}
