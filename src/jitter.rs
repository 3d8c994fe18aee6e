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
    Acquire, Ask, Granted, Handle, InProcess, Kept, Limiter, OwnedLimiter, Passage, Queue, Stages,
    sealed::Sealed,
};
use crate::policy::unlimited::Unlimited;
use crate::rate_limiter::RateLimiter;
use crate::units::Nanos;

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

    /// Of a call that has waited, and may wait for `left` more.
    fn random_wait(&self, left: Duration) -> Duration {
        let (random, count) = &*self.random;
        #[allow(clippy::cast_precision_loss)] // a part of a wait
        let part = random.hash_one(count.fetch_add(1, Ordering::Relaxed)) as f64 / u64::MAX as f64;
        self.most.min(left).mul_f64(part)
    }

    fn sleep(&self, time: Duration) -> Acquire<RateLimiter<Unlimited>> {
        let bed = RateLimiter::with_clock(Unlimited, self.limiter.clock().clone());
        bed.pause_for(time);
        Acquire::new(bed, Ask::new(1, None))
    }
}

/// A caller that waits at the limiter, and then a little longer.
#[allow(missing_debug_implementations)] // its place is shown
pub struct Passing<L: OwnedLimiter> {
    jitter: Jitter<L>,
    ask: Ask<L::Cost>,
    arrived: Nanos,
    stage: Stage<L>,
}

enum Stage<L: OwnedLimiter> {
    AtLimiter(Acquire<L>),
    /// It is granted, and sleeps.
    Sleeping(Kept<L::Grant>, Acquire<RateLimiter<Unlimited>>),
    Over,
}

// No field is ever pinned.
impl<L: OwnedLimiter> Unpin for Passing<L> {}

impl<L: OwnedLimiter> Passing<L> {
    fn new(jitter: &Jitter<L>, ask: &Ask<L::Cost>) -> Self {
        let stage = Stage::AtLimiter(Acquire::new(jitter.limiter.clone(), *ask));
        let arrived = jitter.limiter.clock().now();
        Self { jitter: jitter.clone(), ask: *ask, arrived, stage }
    }
}

impl<L: OwnedLimiter> Future for Passing<L> {
    type Output = Result<L::Grant, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::AtLimiter(acquire) = &mut self.stage {
            let grant = ready!(Pin::new(acquire).poll(context))?;
            let most = self.jitter.most;
            let left = self.ask.max_wait.map_or(most, |wait| wait.saturating_sub(grant.waited()));
            if grant.waited().is_zero() {
                return Poll::Ready(Ok(grant));
            }
            // From the grant on, which may be earlier than this poll.
            let granted = self.arrived.saturating_add(grant.waited());
            let until = granted.saturating_add(self.jitter.random_wait(left));
            let sleep = until.since(self.jitter.limiter.clock().now());
            if sleep.is_zero() {
                return Poll::Ready(Ok(grant));
            }
            self.stage = Stage::Sleeping(Kept::new(grant), self.jitter.sleep(sleep));
        }
        if let Stage::Sleeping(_, sleep) = &mut self.stage {
            ready!(Pin::new(sleep).poll(context))?;
        }
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sleeping(grant, _) => Poll::Ready(Ok(grant.into_grant())),
            _ => unreachable!("polled after it was ready"),
        }
    }
}

impl<L: OwnedLimiter> Passage for Passing<L> {
    type Grant = L::Grant;
}

impl<L: OwnedLimiter> Stages for Passing<L> {
    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.stage {
            Stage::AtLimiter(acquire) => acquire.poll_enter(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn delay(&self) -> Duration {
        if let Stage::AtLimiter(acquire) = &self.stage { acquire.delay() } else { Duration::ZERO }
    }

    // In the one queue that it passes it needs no poll.
    fn needs_driver(&self) -> bool {
        false
    }

    fn needs_driver_once(&self, _: bool) -> bool {
        false
    }
}

impl<L: OwnedLimiter> Sealed for Jitter<L> {}
impl<L: OwnedLimiter + InProcess> InProcess for Jitter<L> {}

impl<L: OwnedLimiter> Queue for Jitter<L> {
    type Cost = L::Cost;
    type Grant = L::Grant;
    crate::limiter::queue_of_stages!(Passing<L>);
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
