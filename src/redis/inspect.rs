//! The methods for operators: ping, the state of a key, and its reset.

use std::time::Duration;

use super::connection::{Connection, Effect, Failure};
use super::limiter::RedisRateLimiter;
use super::line::change::{KeyChange, Report};
use super::script::Scripted;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::policy::{Policy, PolicyExt, Quota};

/// The state of a key in Redis, from [`RedisRateLimiter::inspect`].
///
/// ```no_run
/// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
/// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
/// let state = limiter.inspect().await?;
/// println!("{:?}: {} of {} left", state.policy, state.quota.remaining, state.quota.limit);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyState<P: Policy> {
    /// The policy of this process, or that of the key if it has a higher rank.
    pub policy: P,
    /// The permits that are left for the whole fleet.
    pub quota: Quota<P::Cost>,
    /// The rest of a pause; zero without one.
    pub paused_for: Duration,
    /// The least time for which Redis keeps the key, even if it is not used. `None` if there is no key: the limit
    /// is unused.
    pub expires_in: Option<Duration>,
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// Checks that Redis answers and runs scripts, and that the key holds nothing else than a policy of this kind,
    /// if it exists: for a readiness probe. Takes no permits and writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) {
    /// let is_ready = limiter.ping().await.is_ok();
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<(), Error> {
        self.report(Vec::new()).await.map(drop)
    }

    /// Returns the state of the key. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    ///
    /// ```no_run
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// let state = limiter.at("quota:user:7").inspect().await?;
    /// println!("{state:?}");
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<KeyState<P>, Error> {
        let Some(Report::State(mut quota, paused_for, expires_in)) =
            self.report(vec![b'Q']).await?
        else {
            return Err(self.lost());
        };
        let policy = self.shared.with_lock(|line| line.policy().clone());
        quota.window = policy.window(quota.limit);
        Ok(KeyState { policy, quota, paused_for, expires_in })
    }

    pub(super) async fn report(&self, todo: Vec<u8>) -> Result<Option<Report<P::Cost>>, Error> {
        let answer = self.shared.with_lock(|line| line.request(KeyChange::of(todo)));
        // The line that reports it lives as long as this handle.
        answer.await.unwrap_or(Ok(None))
    }

    pub(super) fn lost(&self) -> Error {
        let lost = Failure::new(Effect::None, "the request got no reply".into());
        lost.error(&self.shared.key).into()
    }

    crate::limiter::forward! {
        in Limiter {
            /// Returns how much of the limit is left for the whole fleet.
            ///
            /// # Errors
            ///
            /// [`Error::Store`].
            @async quota() -> Result<Quota<P::Cost>, Error>;

            /// Deletes the key: the limit is unused for the whole fleet, and a pause is over. A policy that was
            /// [set](Self::set_policy) is gone unless a process that knows it restores it. Other processes notice with
            /// their next request, at most a [refresh](super::RedisRateLimiterBuilder::refresh) later. Permits in flight count again once
            /// their processes report them.
            ///
            /// Bookings are still granted, so for a moment the limit may be exceeded.
            ///
            /// # Errors
            ///
            /// [`Error::Store`]; the key may be gone nevertheless. A key that holds something else is left alone.
            ///
            /// # Cancel safety
            ///
            /// It is done from the first poll on, even if the future is dropped.
            ///
            /// ```no_run
            /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
            /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
            /// limiter.at("quota:user:7").reset().await?;
            /// # Ok(()) }
            /// ```
            @async reset() -> Result<(), Error>;
        }
    }
}
