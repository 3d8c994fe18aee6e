//! A place in the queue, taken without waiting.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Acquire, InProcess, Queue};
use crate::error::Error;
use crate::park::block_on;

/// A place in the queue; see [`reserve`](crate::RateLimiter::reserve).
///
/// It is granted in its turn, whether it is awaited or not. Dropping it leaves the queue or, once it is
/// granted, gives the permits back as [`Grant::refund`](crate::Grant::refund) does.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// limiter.try_acquire(1)?;
/// let reservation = limiter.reserve(1)?;
/// assert_eq!(reservation.delay().as_millis(), 200);
/// assert_eq!(reservation.blocking_wait()?.waited().as_millis(), 200);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use = "a reservation that is dropped gives its place up"]
pub struct Reservation<L: Queue> {
    acquire: Acquire<L>,
}

impl<L: Queue> Acquire<L> {
    /// Joins the queue without waiting for the grant. In process it is ready at the first poll; over Redis when a
    /// reply says how long the wait is.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    pub async fn enter(mut self) -> Result<Reservation<L::Owned>, Error> {
        poll_fn(|context| self.poll_enter(context)).await?;
        Ok(Reservation { acquire: self.into_owned() })
    }
}

impl<L: InProcess> Acquire<L> {
    /// Joins the queue now, without waiting. A call with a timeout keeps its place until its deadline.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(1)?;
    /// let batch = limiter.reserve(1)?;
    /// let urgent = limiter.acquire(1).ahead_by(Duration::from_secs(60)).reserve()?;
    /// assert_eq!((urgent.delay().as_millis(), batch.delay().as_millis()), (200, 400));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reserve(mut self) -> Result<Reservation<L::Owned>, Error> {
        let entered = self.poll_enter(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(entered) = entered else { unreachable!("a place in process is known") };
        entered?;
        Ok(Reservation { acquire: self.into_owned() })
    }
}

impl<L: Queue> Reservation<L> {
    /// The time until the grant, as far as is known now. It becomes shorter if waiters ahead leave, and longer
    /// after a pause, at a lower rate, or if callers enter [ahead](Acquire::ahead_by) of it. Zero if the reservation is granted. Of
    /// several queues it is the time in the one in which the reservation stands.
    ///
    /// This method visits the waiters ahead one by one.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let first = limiter.reserve(1)?;
    /// let second = limiter.reserve(1)?;
    /// assert_eq!((first.delay().as_millis(), second.delay().as_millis()), (0, 200));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.acquire.delay()
    }

    /// Waits for the grant.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if the policy was changed and cannot grant it any more; [`Error::Denied`] if
    /// the call had a timeout that is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place, like dropping the reservation.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// limiter.reserve(1)?.wait().await?;
    /// assert_eq!(limiter.reserve(1)?.wait().await?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(self) -> Acquire<L> {
        self.acquire
    }

    /// Waits for the grant on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::ExceedsCapacity`] if the policy was changed and cannot grant it any more, [`Error::Closed`] if the limiter was
    /// closed.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// # let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// assert_eq!(limiter.reserve(1)?.blocking_wait()?.waited().as_millis(), 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_wait(self) -> Result<L::Grant, Error> {
        block_on(self.acquire)
    }
}

impl<L: Queue> fmt::Debug for Reservation<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("delay", &self.delay()).finish()
    }
}
