//! Shadow mode: a limiter decides, and its callers go ahead in any case.

use std::sync::Arc;
use std::time::Duration;

use super::AnyRateLimiter;
use crate::error::Error;
use crate::limiter::{Granted, sealed::Sealed};
use crate::part::Part;
use crate::policy::Cost;

/// What hears of calls that would have been held back.
pub(super) type Over = Arc<dyn Fn(&Error) + Send + Sync>;

impl<C: Cost> AnyRateLimiter<C> {
    /// Shadow mode: callers of this handle never wait and are never refused, and `over` is told of each that an enforcing
    /// limiter would hold back or refuse. For a limit that is tried before it is put into force.
    ///
    /// Each call is decided as by [`try_acquire`](crate::Limiter::try_acquire). If it is granted, it is charged. If not, it
    /// counts as [`refused`](crate::Stats::refused), so events, counts and metrics of the limiter are those of one that
    /// refuses the same calls; it goes ahead, is charged nothing, and holds no place in flight. A limiter that waits would
    /// move these calls to a later time, and calls behind them with them. The error says which limit it was, and how long
    /// the call would have waited.
    ///
    /// A pause, a lost store and too many keys hold nothing back either. A [closed](crate::Limiter::close) limiter stays
    /// closed. Over Redis a call still waits for the reply. Other handles of the limiter enforce it. A `RefuseLayer` tells
    /// clients what is left; [`fields(false)`](crate::guide::operations) turns that off.
    ///
    /// ```
    /// use tollgate::{AnyRateLimiter, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 2);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// let shadow = AnyRateLimiter::new(limiter.clone()).observe_only(|error| eprintln!("over the limit: {error}"));
    /// for _ in 0..5 {
    ///     shadow.acquire(1).await?; // at once
    /// }
    /// assert_eq!((limiter.stats().granted, limiter.stats().refused), (2, 3));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn observe_only(self, over: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self(self.0, Some(Arc::new(over)))
    }
}

/// The grant of a call that was let through.
#[derive(Debug)]
pub(super) struct LetThrough<C>(pub(super) C);

impl<C> Sealed for LetThrough<C> {}

impl<C: Cost> Granted for LetThrough<C> {
    type Cost = C;

    fn cost(&self) -> C {
        self.0
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    fn limited_by(&self) -> Option<Part> {
        None
    }

    fn send_settlement(&mut self, actual: C) -> Result<(), Error> {
        self.0 = actual;
        Ok(())
    }

    fn give_back(&mut self) {}

    fn holds_places(&self) -> bool {
        false
    }
}
