//! A limiter whose threads hold some permits each, so that most calls touch nothing that other threads write.
//!
//! **Why this never grants more than the policy.** A permit that a thread holds was charged earlier than it is
//! used, so in a span of time what was held at its start adds to what is charged in it. All threads together hold
//! at most `h` permits, and the limiter behind them has a burst that is smaller by `h`: in a span of `t` they use
//! at most `h + (burst - h) + rate x t`. What is held is a part of the burst that lies elsewhere, and no time
//! limit is needed for this to hold.
//!
//! **Why corrections do not change that.** What a thread held comes back to it only until it draws again. By then the
//! permits that it holds and those that may come back are together at most what it held after the last draw, so they
//! count once, as held. Permits that a call drew are given back to the limiter, by its own law.

mod grant;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod queue;
mod shared;
mod slots;
mod source;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod thread;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Error;
use crate::policy::{Policy, Rated};
use crate::rate_limiter::RateLimiter;
use crate::rate_limiter::builder::RateLimiterBuilder;
use crate::sync::Mutex;
use crate::units::Rate;
pub use grant::CachedGrant;
use shared::{Shared, share};
use slots::Slots;

/// A limiter for many calls on many threads. Each thread takes some dozens of permits at once and hands them out
/// without an atomic read-modify-write.
///
/// Use it for more than some millions of decisions a second, where threads of a [`RateLimiter`] wait for each
/// other's cache lines. Below that a `RateLimiter` is simpler, and its grants get all of a refund back. Clones
/// share everything. There is no handle for each thread, and tasks may move between threads.
///
/// **It never grants more than its policy**, in any span of time: what the threads may hold together is taken off
/// the burst of the limiter behind them. So the burst is a little smaller where some threads hold permits that
/// others want.
///
/// - A thread holds at most 64 permits, or what the [builder](RateLimiterBuilder::build_cached) sets. All threads
///   together hold at most half of the burst and at most the yield of 10 ms. If that is less than a permit for
///   each thread (a rate below some thousands a second), each call asks the limiter.
/// - [`SmoothBursty`](crate::SmoothBursty), [`TokenBucket`](crate::TokenBucket) and [`Gcra`](crate::Gcra) are held
///   by threads; of other policies each call asks the limiter. Policies with places in flight do not compile.
/// - A refused call first takes what other threads hold, except up to 16 permits of each running thread. What a
///   thread held when it ended is taken by others.
/// - While callers wait, threads get no further permits: new ones are for the queue, in FIFO order. Threads use up
///   what they hold.
/// - Its own methods return no grant, which would cost more than the permits. As a [`Limiter`](crate::Limiter) it has
///   grants that can be settled and refunded.
/// - Calls of a tenant, or [ahead of others](crate::Acquire::ahead_by), take what their thread holds, and take turns in the
///   limiter's queue.
/// - A pause, a new policy and a new rate discard what is held, and so does a [`shrink_to`](crate::Limiter::shrink_to)
///   of less.
/// - What threads hold counts as remaining in its [`quota`](crate::Limiter::quota). [`Stats`](crate::Stats) and
///   [`Waits`](crate::Waits) are the limiter's: calls that were served from what a thread holds are not counted, as that
///   would be a write in each call, and a call that waits counts as refused before.
/// - It has no policy with several costs, because a thread holds one number, and none over Redis, where the burst of
///   each process would have to be known.
///
/// ```
/// use tollgate::{CachedRateLimiter, Rate, TokenBucket};
///
/// let policy = TokenBucket::new(Rate::per_second(5_000_000.0), 1_000_000);
/// let limiter = CachedRateLimiter::new(policy);
/// let granted: usize = std::thread::scope(|scope| {
///     let count = || (0..1_000).filter(|_| limiter.try_acquire(1).is_ok()).count();
///     [scope.spawn(count), scope.spawn(count)].map(|thread| thread.join().unwrap()).iter().sum()
/// });
/// assert_eq!(granted, 2_000);
/// ```
pub struct CachedRateLimiter<P: Policy<Cost = u32>> {
    shared: Arc<Shared<P>>,
}

impl<P: Policy<Cost = u32>> RateLimiterBuilder<P> {
    /// A limiter for `threads` threads, of which each holds up to `each` permits; see [`CachedRateLimiter`].
    /// Further threads ask the limiter at each call. [`CachedRateLimiter::new`] takes twice the number of
    /// processors and four more, and 64 permits.
    #[must_use]
    pub fn build_cached(self, threads: usize, each: u32) -> CachedRateLimiter<P> {
        const { assert!(!P::HELD, "a place in flight is given back, and no thread can hold it") };
        let slots = Slots::new(threads);
        let (part, whole, limiter) = self.build_with(|policy| share(policy, threads, each));
        let (each, most_each) = (AtomicU32::new(part), each);
        let shared = Shared { slots, limiter, each, most_each, whole: Mutex::new(whole) };
        CachedRateLimiter { shared: Arc::new(shared) }
    }
}

impl<P: Policy<Cost = u32>> CachedRateLimiter<P> {
    /// A limiter with the [system clock](Clock::system).
    #[must_use]
    pub fn new(policy: P) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        RateLimiter::builder(policy).build_cached(2 * processors + 4, 64)
    }

    /// Takes `n` permits without waiting, from this thread's own if they are enough. There is no grant to settle or
    /// refund; [`Limiter::acquire`](crate::Limiter::acquire) returns one.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire`]: [`Error::Denied`] with the time after which the limiter has what
    /// this thread lacks, [`Error::ExceedsCapacity`] for more than the limiter's part of the capacity. Nothing has
    /// been taken.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(100_000.0), 1_000);
    /// let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(1, 100);
    /// let granted = (0..2_000).filter(|_| limiter.try_acquire(1).is_ok()).count();
    /// assert_eq!(granted, 900); // 100 of the burst are for what is held over time
    /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_micros(), 10);
    /// ```
    #[inline]
    pub fn try_acquire(&self, n: u32) -> Result<(), Error> {
        if self.shared.slots.take(thread::known(), n) {
            return Ok(());
        }
        self.shared.try_otherwise(thread::number, n)
    }

    /// Takes `n` permits, and waits for them in the limiter's queue if they are not there. Returns how long it
    /// waited.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::acquire`]: dropping the future leaves the queue, and nothing was taken.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let (policy, clock) = (TokenBucket::new(Rate::per_second(100.0), 10), ManualClock::auto_advance());
    /// let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1, 4);
    /// let mut waited = 0;
    /// for _ in 0..20 {
    ///     waited += limiter.acquire(1).await?.as_millis();
    /// }
    /// assert_eq!(waited, 110); // one of the burst is for what is held over time
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire(&self, n: u32) -> Result<Duration, Error> {
        match self.try_acquire(n) {
            Err(Error::Denied { .. }) => Ok(self.shared.limiter.acquire(n).await?.waited()),
            answer => answer.map(|()| Duration::ZERO),
        }
    }

    /// As [`acquire`](Self::acquire), if the permits come within `timeout`; fails **at once** if they cannot.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::try_acquire_timeout`].
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let (policy, clock) = (TokenBucket::new(Rate::per_second(100.0), 10), ManualClock::auto_advance());
    /// let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1, 4);
    /// limiter.acquire(9).await?;
    /// assert!(limiter.try_acquire_timeout(2, Duration::from_millis(19)).await.is_err());
    /// assert_eq!(limiter.try_acquire_timeout(2, Duration::from_millis(20)).await?.as_millis(), 20);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn try_acquire_timeout(&self, n: u32, timeout: Duration) -> Result<Duration, Error> {
        match self.try_acquire(n) {
            Err(Error::Denied { .. }) => {
                Ok(self.shared.limiter.try_acquire_timeout(n, timeout).await?.waited())
            }
            answer => answer.map(|()| Duration::ZERO),
        }
    }

    /// As [`acquire`](Self::acquire), for threads; see [`RateLimiter::blocking_acquire`].
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::blocking_acquire`].
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let (policy, clock) = (TokenBucket::new(Rate::per_second(100.0), 10), ManualClock::auto_advance());
    /// let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1, 4);
    /// limiter.blocking_acquire(9)?;
    /// assert_eq!(limiter.blocking_acquire(2)?.as_millis(), 20);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_acquire(&self, n: u32) -> Result<Duration, Error> {
        match self.try_acquire(n) {
            Err(Error::Denied { .. }) => Ok(self.shared.limiter.blocking_acquire(n)?.waited()),
            answer => answer.map(|()| Duration::ZERO),
        }
    }

    /// As [`try_acquire_timeout`](Self::try_acquire_timeout), for threads; see
    /// [`RateLimiter::blocking_try_acquire_timeout`].
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::blocking_try_acquire_timeout`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let (policy, clock) = (TokenBucket::new(Rate::per_second(100.0), 10), ManualClock::auto_advance());
    /// let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1, 4);
    /// limiter.blocking_acquire(9)?;
    /// let (short, enough) = (Duration::from_millis(19), Duration::from_millis(20));
    /// assert!(limiter.blocking_try_acquire_timeout(2, short).is_err());
    /// assert_eq!(limiter.blocking_try_acquire_timeout(2, enough)?, enough);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_try_acquire_timeout(
        &self,
        n: u32,
        timeout: Duration,
    ) -> Result<Duration, Error> {
        match self.try_acquire(n) {
            Err(Error::Denied { .. }) => {
                Ok(self.shared.limiter.blocking_try_acquire_timeout(n, timeout)?.waited())
            }
            answer => answer.map(|()| Duration::ZERO),
        }
    }

    /// The permits that could be taken now: the limiter's and the threads'. A single thread gets fewer, because up
    /// to 16 permits stay with each other thread.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.shared.limiter.available().saturating_add(self.shared.slots.held())
    }

    /// How many permits all threads together hold at most. The limiter's burst is smaller by that number. Zero if
    /// each call asks the limiter.
    #[must_use]
    pub fn held_at_most(&self) -> u32 {
        let threads = u32::try_from(self.shared.slots.len()).unwrap_or(u32::MAX);
        self.shared.each.load(Ordering::Relaxed) * threads
    }

    /// The number of waiters.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.shared.limiter.queue_len()
    }

    /// Grants nothing for `duration`; see [`RateLimiter::pause_for`]. What threads hold is discarded: after the
    /// pause nothing is stored.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(100_000.0), 1_000);
    /// let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(1, 100);
    /// limiter.try_acquire(1)?; // 99 more are at hand
    /// limiter.pause_for(Duration::from_secs(30));
    /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 30);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn pause_for(&self, duration: Duration) {
        self.shared.limiter.pause_for(duration);
        if !duration.is_zero() {
            // After the limiter has stopped: what is drawn before that is of an earlier epoch.
            self.shared.slots.discard();
        }
    }

    /// Ends a pause; see [`RateLimiter::resume`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{CachedRateLimiter, Rate, SmoothBursty};
    /// let limiter = CachedRateLimiter::new(SmoothBursty::new(Rate::per_second(1e6)));
    /// limiter.pause_for(Duration::from_secs(30));
    /// limiter.resume();
    /// assert!(limiter.try_acquire(1).is_ok());
    /// ```
    pub fn resume(&self) {
        self.shared.limiter.resume();
    }

    /// Replaces the policy, for all clones; see [`RateLimiter::set_policy`]. What threads hold is discarded.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_second(100_000.0), 1_000);
    /// let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(1, 100);
    /// limiter.set_policy(TokenBucket::new(Rate::per_second(100_000.0), 50));
    /// assert_eq!((limiter.available(), limiter.held_at_most()), (25, 25));
    /// ```
    pub fn set_policy(&self, policy: P) {
        self.shared.change(|whole| *whole = policy);
    }

    /// The policy that this limiter keeps, the threads included.
    #[must_use]
    pub fn policy(&self) -> P {
        self.shared.whole.lock().clone()
    }

    /// The name given to the [builder](RateLimiterBuilder::name).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.shared.limiter.name()
    }

    /// The clock of the limiter.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.shared.limiter.clock()
    }
}

impl<P: Rated<Cost = u32>> CachedRateLimiter<P> {
    /// The current rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.policy().rate()
    }

    /// Replaces the rate, for all clones; see [`RateLimiter::set_rate`]. What threads hold is discarded.
    ///
    /// ```
    /// # use tollgate::{CachedRateLimiter, Rate, SmoothBursty};
    /// let limiter = CachedRateLimiter::new(SmoothBursty::new(Rate::per_second(1e6)));
    /// limiter.set_rate(Rate::per_second(2e6));
    /// assert_eq!(limiter.rate(), Rate::per_second(2e6));
    /// ```
    pub fn set_rate(&self, rate: Rate) {
        self.shared.change(|whole| *whole = whole.clone().with_rate(rate));
    }
}

/// Another handle on the same limiter.
impl<P: Policy<Cost = u32>> Clone for CachedRateLimiter<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<P: Policy<Cost = u32> + fmt::Debug> fmt::Debug for CachedRateLimiter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedRateLimiter")
            .field("limiter", &self.shared.limiter)
            .field("held_at_most", &self.held_at_most())
            .finish()
    }
}
