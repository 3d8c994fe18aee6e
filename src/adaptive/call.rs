//! A call and its outcome.

use std::fmt;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::limiter::Adaptive;
use crate::error::Error;
use crate::limiter::{Ask, Granted, Handle, InProcess, Limiter, Queue, sealed::Sealed};
use crate::part::Part;
use crate::policy::Rated;
use crate::rate_limiter::place::LinePlace;
use crate::rate_limiter::{Grant, RateLimiter};

impl<P: Rated> Adaptive<P> {
    crate::limiter::methods_of_limiter!();

    /// Makes a call of a grant of the [limiter](Self::limiter).
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use = "report the outcome of the call"]
    pub fn call(&self, grant: Grant<'_, P>) -> Call<P> {
        self.clone().into_call(grant)
    }

    fn into_call(self, grant: Grant<'_, P>) -> Call<P> {
        self.shared.budget.on_call();
        self.into_uncounted(grant)
    }

    fn into_uncounted(self, grant: Grant<'_, P>) -> Call<P> {
        let cuts = self.shared.control.lock().cuts();
        Call { grant: grant.into_owned(), adaptive: self, cuts }
    }
}

impl<P: Rated> Sealed for Adaptive<P> {}
impl<P: Rated> InProcess for Adaptive<P> {}

impl<P: Rated> Queue for Adaptive<P> {
    type Cost = P::Cost;
    type Grant = Call<P>;
    type Handle = Option<Self>;
    type Place = LinePlace<P>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Call<P>, Error>> {
        let inner = &mut limiter.get().limiter().into();
        let grant = ready!(<&RateLimiter<P>>::poll_acquire(inner, ask, place, context))?;
        let grant = grant.into_owned();
        Poll::Ready(Ok(Handle::take(limiter).into_call(grant)))
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<P::Cost>,
        place: &mut LinePlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let inner = &mut limiter.get().limiter().into();
        <&RateLimiter<P>>::poll_enter(inner, ask, place, context)
    }

    fn leave(limiter: &Self::Handle, ask: &Ask<P::Cost>, place: &mut LinePlace<P>) {
        if let Some(adaptive) = limiter {
            <&RateLimiter<P>>::leave(&adaptive.limiter().into(), ask, place);
        }
    }

    fn delay(limiter: &Self::Handle, place: &LinePlace<P>) -> Duration {
        <&RateLimiter<P>>::delay(&limiter.get().limiter().into(), place)
    }

    fn into_owned(limiter: &mut Self::Handle, place: LinePlace<P>) -> (Self, LinePlace<P>) {
        (Handle::take(limiter), place)
    }
}

impl<P: Rated> Limiter for Adaptive<P> {
    async fn try_acquire_up_to(&self, n: P::Cost) -> Result<Call<P>, Error> {
        Ok(self.call(self.limiter().try_acquire_up_to(n)?))
    }

    async fn resume(&self) -> Result<(), Error> {
        self.limiter().resume();
        Ok(())
    }

    async fn shrink_to(&self, remaining: P::Cost) -> Result<Call<P>, Error> {
        Ok(self.clone().into_uncounted(self.limiter().shrink_to(remaining)))
    }

    crate::limiter::as_inner_limiter!(asks | adaptive | adaptive.limiter());
    crate::limiter::as_inner_limiter!(counts | adaptive | adaptive.limiter());
    crate::limiter::as_inner_limiter!(reports | adaptive | adaptive.limiter());
}

/// A call whose outcome an [`Adaptive`] learns from. Drop it without a report after errors that say nothing about
/// the rate, such as a network error.
///
/// ```
/// # use tollgate::adaptive::{Adaptive, Call};
/// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
/// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
/// let calls: [Call<TokenBucket>; 2] = [adaptive.acquire(1).await?, adaptive.acquire(1).await?];
/// // Both were sent before the rate fell.
/// calls.into_iter().for_each(Call::on_throttled);
/// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Call<P: Rated> {
    grant: Grant<'static, P>,
    adaptive: Adaptive<P>,
    /// How many times the rate had fallen when this was granted.
    cuts: u64,
}

impl<P: Rated> Call<P> {
    crate::limiter::methods_of_granted!(in_process);

    /// The call succeeded, or failed for a reason that is not the rate. It also drops the grant.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    /// let adaptive = Adaptive::new(limiter);
    /// for _ in 0..150 {
    ///     adaptive.call(adaptive.limiter().blocking_acquire(1)?).on_success();
    /// }
    /// // It has doubled in a second.
    /// assert!(adaptive.rate() > Rate::per_second(190.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_success(self) {
        let (now, waited) = (self.adaptive.limiter.clock().now(), !self.grant.waited().is_zero());
        self.adaptive.report(|control| control.on_success(now, waited));
    }

    /// The server refused the call because there were too many. It also drops the grant.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 1);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// adaptive.call(adaptive.limiter().try_acquire(1)?).on_throttled();
    /// assert_eq!(adaptive.rate(), Rate::per_second(90.0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_throttled(self) {
        self.adaptive.report(|control| control.on_throttled(self.cuts));
    }

    /// Reports an HTTP status: 429 and 503 are throttled calls, other 5xx say nothing, the rest are successes.
    ///
    /// ```
    /// # use tollgate::adaptive::Adaptive;
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// # let policy = TokenBucket::new(Rate::per_second(100.0), 10);
    /// # let adaptive = Adaptive::new(RateLimiter::with_clock(policy, ManualClock::new()));
    /// for (status, rate) in [(200, 100.0), (500, 100.0), (429, 90.0), (404, 90.0), (503, 81.0)] {
    ///     adaptive.call(adaptive.limiter().try_acquire(1)?).on_status(status);
    ///     assert_eq!(adaptive.rate().as_per_second(), rate);
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_status(self, status: u16) {
        match status {
            429 | 503 => self.on_throttled(),
            500.. => {}
            _ => self.on_success(),
        }
    }

    /// The permits of the call.
    #[must_use]
    pub fn grant(&self) -> &Grant<'static, P> {
        &self.grant
    }

    /// The permits of the call, for their other methods.
    #[must_use]
    pub fn grant_mut(&mut self) -> &mut Grant<'static, P> {
        &mut self.grant
    }
}

impl<P: Rated> Sealed for Call<P> {}

impl<P: Rated> Granted for Call<P> {
    type Cost = P::Cost;

    fn cost(&self) -> P::Cost {
        self.grant.cost()
    }

    fn waited(&self) -> Duration {
        self.grant.waited()
    }

    fn limited_by(&self) -> Option<Part> {
        self.grant.limited_by()
    }

    fn send_settlement(&mut self, actual: P::Cost) -> Result<(), Error> {
        self.grant.settle(actual)
    }

    fn settle_on_drop(&mut self, actual: P::Cost) {
        self.grant.settle_on_drop(actual);
    }

    fn give_back(&mut self) {
        self.grant.give_back();
    }

    fn holds_places(&self) -> bool {
        P::HELD
    }
}

impl<P: Rated> fmt::Debug for Call<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("adaptive", &self.adaptive).finish_non_exhaustive()
    }
}
