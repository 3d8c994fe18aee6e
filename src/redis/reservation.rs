//! A place in the queue of a key.

use std::fmt;
use std::time::Duration;

use super::acquire::RedisAcquire;
use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::grant::RedisGrant;
use super::script::Scripted;
use crate::error::Error;
use crate::park::block_on;

/// A place in the queue, from [`reserve`](super::RedisRateLimiter::reserve). Dropping it gives it up, like a
/// [`RedisAcquire`].
///
/// ```no_run
/// # use tollgate::redis::RedisRateLimiter;
/// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket>) -> Result<(), tollgate::Error> {
/// let place = limiter.blocking_reserve(5)?;
/// if place.delay().as_secs() < 3 {
///     place.blocking_wait()?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a reservation that is dropped gives its place up"]
pub struct RedisReservation<P: Scripted, C: Connection = Reconnecting> {
    acquire: RedisAcquire<P, C>,
}

impl<P: Scripted, C: Connection> RedisAcquire<P, C> {
    /// Joins the queue now, and waits until Redis has replied when the turn will come; see
    /// [`reserve`](super::RedisRateLimiter::reserve).
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// # Cancel safety
    ///
    /// As the future itself.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let place = limiter.acquire(1).ahead_by(Duration::from_secs(60)).reserve().await?;
    /// println!("in {:?}", place.delay());
    /// # Ok(()) }
    /// ```
    pub async fn reserve(self) -> Result<RedisReservation<P, C>, Error> {
        Ok(RedisReservation { acquire: self.reserved().await? })
    }
}

impl<P: Scripted, C: Connection> RedisReservation<P, C> {
    /// Returns how long until its turn, by the last reply: other processes may still be quicker until it is
    /// booked, and callers of this process may enter [ahead](RedisAcquire::ahead_by) of it. Zero if it has come.
    ///
    /// ```no_run
    /// # use tollgate::redis::RedisReservation;
    /// # fn place() -> RedisReservation<tollgate::TokenBucket> { todo!() }
    /// println!("in {:?}", place().delay());
    /// ```
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.acquire.delay()
    }

    /// Waits for its turn.
    ///
    /// # Errors
    ///
    /// As [`acquire`](super::RedisRateLimiter::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up, like dropping the reservation.
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisReservation};
    /// # fn place() -> RedisReservation<tollgate::TokenBucket, Reconnecting> { todo!() }
    /// # async fn example() -> Result<(), tollgate::Error> {
    /// place().wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn wait(self) -> RedisAcquire<P, C> {
        self.acquire
    }

    /// As [`wait`](Self::wait), for threads.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// ```no_run
    /// # use tollgate::redis::RedisReservation;
    /// # fn place() -> RedisReservation<tollgate::TokenBucket> { todo!() }
    /// place().blocking_wait()?;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn blocking_wait(self) -> Result<RedisGrant<P, C>, Error> {
        block_on(self.acquire)
    }
}

impl<P: Scripted, C: Connection> fmt::Debug for RedisReservation<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReservation").field("delay", &self.delay()).finish()
    }
}
