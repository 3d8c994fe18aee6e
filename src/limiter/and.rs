//! Two limiters, one decision.

mod grant;
mod place;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

pub use grant::AndGrant;
use place::AndPlace;

use super::sealed::Sealed;
use super::{Ask, Handle, InProcess, Limiter, OwnedLimiter, Queue};
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::{Observation, Observe};
use crate::policy::{Cost, Limit, Quota};
use crate::stats::{Stats, Waits};

/// Two limiters that both have to grant a call; see [`Limiter::and`].
///
/// A caller waits at the first limiter, then at the second, in the order of arrival at each:
///
/// - It joins the queue of the second when the first has granted it, whether it is polled or not. While it waits at the
///   first, it holds nothing of the second.
/// - While it waits at the second, it holds its permits of the first. If it leaves, or the second refuses it, they go
///   back at once, as by [`refund`](AndGrant::refund).
/// - So put the narrow limiter first: what a customer cannot use yet is not kept from the others.
///
/// A timeout covers both waits: the call fails at once if the queue of the first rules it out or, once the first has
/// granted it, that of the second. `ahead_by` and tenants apply at both. A
/// [reservation](Limiter::reserve) says how long the wait is at the limiter at which it stands.
///
/// **Both limiters count in the same permits.** To take different costs from each, call them one after the other, or
/// make one policy of a tuple.
///
/// **Places in flight can deadlock**: if some callers take a place of `a` and then one of `b`, and others a place of `b`
/// and then one of `a`, each may wait for a place that the other one holds. Take them in the same order everywhere.
///
/// | method | answers |
/// |---|---|
/// | `quota`, `available` | the smaller numbers and the longer times of both |
/// | `queue_len`, `waits` | both together; a caller that waited twice counts twice in `waits` |
/// | `stats` | what the second granted, and the other counts of both |
/// | `pause_for`, `resume`, `shrink_to` | change the first only, as others may share the second |
/// | `name`, `clock` | those of the first |
/// | `part` of an error, `limited_by` | 0 for the first limiter, 1 for the second |
///
/// A [`Feedback`](crate::guide::http) around it therefore teaches the first. To teach one of the two, put the feedback
/// around that one: `Feedback::new(one).and(&other)`.
///
/// ```
/// use tollgate::{InFlight, KeyedRateLimiter, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let customers = KeyedRateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), &clock);
/// let all = RateLimiter::with_clock(InFlight::new(2), &clock);
///
/// let ann = customers.at("ann".to_owned()).and(&all);
/// let (first, second) = (ann.acquire(1).await?, ann.acquire(1).await?);
/// assert_eq!((second.waited().as_millis(), second.limited_by()), (100, Some(0)));
/// // Two are in flight, so others are refused by the second limiter, and keep what the first one gave them.
/// let bob = customers.at("bob".to_owned()).and(&all);
/// let error = bob.try_acquire(1).await.unwrap_err();
/// assert_eq!((error.part(), customers.available("bob")), (Some(1), 1));
/// drop(first);
/// bob.try_acquire(1).await?;
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct And<A, B> {
    first: A,
    second: B,
    /// Grants of both that no caller took.
    left: Arc<AtomicU64>,
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> And<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second, left: Arc::default() }
    }

    crate::limiter::methods_of_limiter!();
}

impl<A, B> And<A, B> {
    /// The limiter that is asked first.
    #[must_use]
    pub fn first(&self) -> &A {
        &self.first
    }

    /// The limiter that is asked once the first has granted.
    #[must_use]
    pub fn second(&self) -> &B {
        &self.second
    }
}

impl<A: Clone, B: Clone> Clone for And<A, B> {
    fn clone(&self) -> Self {
        let Self { first, second, left } = self;
        Self { first: first.clone(), second: second.clone(), left: Arc::clone(left) }
    }
}

impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for And<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("And").field("first", &self.first).field("second", &self.second).finish()
    }
}

/// The counts of both; `left` grants of both were not taken.
fn counts(first: Stats, second: Stats, left: &AtomicU64) -> Stats {
    let left = left.load(Ordering::Relaxed);
    let mut both = first;
    both.add(second);
    both.granted = second.granted.saturating_sub(left);
    both.given_up += left;
    both
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Sealed for And<A, B> {}

impl<A, B> InProcess for And<A, B>
where
    A: OwnedLimiter + InProcess,
    B: OwnedLimiter<Cost = A::Cost> + InProcess,
{
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Queue for And<A, B> {
    type Cost = A::Cost;
    type Grant = AndGrant<A::Grant, B::Grant>;
    type Handle = Option<Self>;
    type Place = AndPlace<A, B>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &mut Self::Handle,
        ask: &Ask<A::Cost>,
        place: &mut AndPlace<A, B>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Grant, Error>> {
        place.poll(limiter.get(), ask, context)
    }

    fn poll_enter(
        limiter: &mut Self::Handle,
        ask: &Ask<A::Cost>,
        place: &mut AndPlace<A, B>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        place.poll_enter(limiter.get(), ask, context)
    }

    fn leave(_: &Self::Handle, _: &Ask<A::Cost>, place: &mut AndPlace<A, B>) {
        place.leave();
    }

    fn delay(_: &Self::Handle, place: &AndPlace<A, B>) -> Duration {
        place.delay()
    }

    fn into_owned(limiter: &mut Self::Handle, place: AndPlace<A, B>) -> (Self, AndPlace<A, B>) {
        (Handle::take(limiter), place)
    }
}

impl<A: OwnedLimiter, B: OwnedLimiter<Cost = A::Cost>> Limiter for And<A, B> {
    const IS_REMOTE: bool = A::IS_REMOTE || B::IS_REMOTE;

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.first.pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        self.first.resume().await
    }

    async fn shrink_to(&self, remaining: A::Cost) -> Result<Self::Grant, Error> {
        Ok(AndGrant::of_first(self.first.shrink_to(remaining).await?))
    }

    async fn quota(&self) -> Result<Quota<A::Cost>, Error> {
        let (mut both, second) = (self.first.quota().await?, self.second.quota().await?);
        both.limit = both.limit.each(second.limit, u32::min);
        both.remaining = both.remaining.each(second.remaining, u32::min);
        both.reset_after = both.reset_after.zip(second.reset_after).map(|(a, b)| a.max(b));
        both.window = both.window.max(second.window);
        Ok(both)
    }

    async fn limits(&self, cost: A::Cost) -> Result<Vec<Limit<A::Cost>>, Error> {
        let mut limits = self.first.limits(cost).await?;
        limits.extend(self.second.limits(cost).await?);
        Ok(limits)
    }

    fn queue_len(&self) -> usize {
        self.first.queue_len() + self.second.queue_len()
    }

    fn stats(&self) -> Stats {
        counts(self.first.stats(), self.second.stats(), &self.left)
    }

    fn waits(&self) -> Waits {
        self.first.waits().and(&self.second.waits())
    }

    fn clock(&self) -> &Clock {
        self.first.clock()
    }

    fn name(&self) -> Option<&str> {
        self.first.name()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        let (first, second) = (self.first.observe(), self.second.observe());
        let left = Arc::clone(&self.left);
        Box::new(move || {
            let (first, second) = (first()?, second()?);
            Some(Observation {
                stats: counts(first.stats, second.stats, &left),
                waits: first.waits.and(&second.waits),
                waiting: first.waiting + second.waiting,
                redis: match (first.redis, second.redis) {
                    (Some(one), Some(other)) => Some([0, 1, 2].map(|at| one[at] + other[at])),
                    (one, other) => one.or(other),
                },
            })
        })
    }
}
