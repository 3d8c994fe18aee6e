//! What every grant can do.

use std::fmt;
use std::future::poll_fn;
#[cfg(any(feature = "feedback", feature = "tower"))]
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::sealed::Sealed;
use crate::error::Error;
use crate::part::Part;
use crate::policy::Cost;
use crate::unwinding::in_drop;

/// What a [`Limiter`](crate::Limiter) grants: [`Grant`](crate::Grant), `RedisGrant`, a `Call` of a `Feedback`, or
/// [`AnyGrant`](crate::AnyGrant). The trait is sealed.
pub trait Granted: Sealed + fmt::Debug + Send + Sync {
    /// The cost of the grant.
    type Cost: Cost;

    /// The permits that were granted; after [`settle`](Self::settle) the corrected number.
    fn cost(&self) -> Self::Cost;

    /// How long the call waited; see [`Grant::waited`](crate::Grant::waited).
    fn waited(&self) -> Duration;

    /// The index of the rule that made the call wait; see [`Grant::limited_by`](crate::Grant::limited_by).
    fn limited_by(&self) -> Option<Part>;

    /// Corrects the cost once the true one is known; see [`Grant::settle`](crate::Grant::settle). In process it is
    /// ready at the first poll.
    fn settle(&mut self, actual: Self::Cost) -> impl Future<Output = Result<(), Error>> + Send
    where
        Self: Sized,
    {
        async move {
            // A settlement whose future was dropped: its outcome decides how much is still to be settled.
            let _ = poll_fn(|context| self.poll_settled(context)).await;
            self.send_settlement(actual)?;
            poll_fn(|context| self.poll_settled(context)).await
        }
    }

    /// Gives the permits back; see [`Grant::refund`](crate::Grant::refund).
    fn refund(mut self)
    where
        Self: Sized,
    {
        self.give_back();
    }

    /// The grant, settled when it is dropped; see [`Grant::metered`](crate::Grant::metered).
    #[must_use]
    fn metered(self) -> Metered<Self>
    where
        Self: Sized,
    {
        Metered::new(self)
    }

    /// Settles, but does not wait for the outcome.
    #[doc(hidden)]
    fn send_settlement(&mut self, actual: Self::Cost) -> Result<(), Error>;

    /// The outcome of the last settlement, if there is one to come.
    #[doc(hidden)]
    fn poll_settled(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    /// Settles without an outcome.
    #[doc(hidden)]
    fn settle_on_drop(&mut self, actual: Self::Cost) {
        // A shortfall that takes 146 years to pay off is not charged.
        in_drop(|| _ = self.send_settlement(actual));
    }

    /// Gives the permits back. The drop after it gives nothing back.
    #[doc(hidden)]
    fn give_back(&mut self);

    /// Whether dropping it gives places in flight back, or would under another policy of its limiter.
    #[doc(hidden)]
    fn holds_places(&self) -> bool;

    /// A limiter that learns takes in a reply, at once, and returns its remaining work.
    #[cfg(any(feature = "feedback", feature = "tower"))]
    #[doc(hidden)]
    fn receive(&mut self, _: Reply<'_>) -> Hearing {
        None
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    #[doc(hidden)]
    fn hear(
        &mut self,
        status: http::StatusCode,
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Hearing {
        self.receive(Reply::Response(status, headers, body))
    }

    /// Whether a limiter that learns needs the body of this response.
    #[cfg(feature = "reqwest")]
    #[doc(hidden)]
    fn wants_body(&self, _: http::StatusCode, _: &http::HeaderMap) -> bool {
        false
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    #[doc(hidden)]
    fn hear_failure(&mut self) {
        drop(self.receive(Reply::Failure));
    }
}

/// What came back from the server to which a call was sent.
#[cfg(any(feature = "feedback", feature = "tower"))]
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// The response, and as much of its body as was read.
    Response(http::StatusCode, &'a http::HeaderMap, &'a [u8]),
    /// None: the server was not reached, or did not answer.
    Failure,
}

/// What a limiter has still to do about a response: over Redis it takes a request.
#[cfg(any(feature = "feedback", feature = "tower"))]
pub(crate) type Hearing = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// A grant that is settled when it is dropped, at what the call has used so far.
///
/// For calls whose cost is known only while they run, such as the tokens of an answer that is streamed. A future may be
/// cancelled at each `await`, and then no line behind it runs; the drop always runs. It settles at what was reported with
/// [`add`](Self::add) or [`set`](Self::set), else at the estimate, or at another default ([`or`](Self::or)). Of a tuple of
/// costs, a number for which nothing was reported keeps its default. Over Redis the drop sends the settlement and does not
/// wait for it.
///
/// ```
/// use tollgate::{InFlight, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
/// let limiter = RateLimiter::with_clock((tokens, InFlight::new(8)), ManualClock::new());
/// let mut call = limiter.try_acquire((2_000, 1))?.metered();
/// call.add((120, 0)); // a chunk of the answer
/// call.add((80, 0));
/// drop(call); // cancelled, or at its end
/// assert_eq!(limiter.available(), (89_800, 8));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
pub struct Metered<G: Granted> {
    /// `None` once it was taken out.
    grant: Option<G>,
    /// What it is settled at.
    actual: G::Cost,
    /// One for each number of the cost that was reported.
    reported: G::Cost,
}

impl<G: Granted> Metered<G> {
    pub(crate) fn new(grant: G) -> Self {
        let actual = grant.cost();
        Self { grant: Some(grant), actual, reported: G::Cost::default() }
    }

    /// Sets the cost of a call for which nothing is reported, in place of the estimate. Zero if a call that
    /// is cancelled before its first answer costs nothing.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    /// let policy = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// drop(limiter.try_acquire(2_000)?.metered());
    /// assert_eq!(limiter.available(), 88_000);
    /// drop(limiter.try_acquire(2_000)?.metered().or(0));
    /// assert_eq!(limiter.available(), 88_000);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn or(mut self, default: G::Cost) -> Self {
        let told = self.actual.each(self.reported, |actual, is| if is > 0 { actual } else { 0 });
        let untold = default.each(self.reported, |default, is| if is > 0 { 0 } else { default });
        self.actual = told.each(untold, u32::saturating_add);
        self
    }

    /// Reports that `more` has been used; the first report of a number replaces its default.
    pub fn add(&mut self, more: G::Cost) {
        let is_first = more.each(self.reported, |more, is| u32::from(more > 0 && is == 0));
        let so_far = self.actual.each(is_first, |actual, is| if is > 0 { 0 } else { actual });
        self.actual = so_far.each(more, u32::saturating_add);
        self.reported = self.reported.each(is_first, |is, first| is | first);
    }

    /// Sets the total cost reported by the server. All numbers count as reported.
    pub fn set(&mut self, actual: G::Cost) {
        self.actual = actual;
        self.reported = actual.each(actual, |_, _| 1);
    }

    /// The cost at which the drop would settle now.
    #[must_use]
    pub fn cost(&self) -> G::Cost {
        self.actual
    }

    /// The grant, for its [`waited`](Granted::waited).
    #[must_use]
    pub fn grant(&self) -> &G {
        self.grant.as_ref().unwrap_or_else(|| unreachable!("it is taken out with the rest"))
    }

    /// The grant, which is no longer settled on drop: for a program that settles it itself and wants to know of an error.
    #[must_use]
    pub fn into_grant(mut self) -> G {
        self.grant.take().unwrap_or_else(|| unreachable!("it is taken out only here"))
    }
}

impl<G: Granted> Drop for Metered<G> {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.grant
            && grant.cost() != self.actual
        {
            grant.settle_on_drop(self.actual);
        }
    }
}

/// Hearing by two limiters, one after the other.
#[cfg(any(feature = "feedback", feature = "tower"))]
pub(crate) fn both(first: Hearing, second: Hearing) -> Hearing {
    match (first, second) {
        (Some(first), Some(second)) => Some(Box::pin(async {
            first.await;
            second.await;
        })),
        (first, second) => first.or(second),
    }
}
