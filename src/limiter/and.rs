//! Two limiters, one decision: a caller takes its permits of the first, then those of the second, and gives the first back
//! unless it gets both.

pub(crate) mod pass;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

/// Two limiters that both have to grant a call; see [`Limiter::and`](crate::Limiter::and).
///
/// A caller waits at the first limiter, then at the second, in the order of arrival at each:
///
/// - It joins the second queue when it is polled after the first has granted it, and holds nothing of the second before. So
///   put the narrow limiter first: what a customer cannot use yet is not kept from the others.
/// - While it waits at the second, it holds its permits of the first. If it leaves, they are
///   [refunded](crate::Granted::refund) at once; if the second refuses it, with the poll that says so.
///
/// A timeout covers both waits; the second queue is checked after the first grant. `ahead_by` and tenants apply at both. A
/// [reservation](crate::Limiter::reserve) that has to wait at the first limiter stands there until it is awaited. Both
/// limiters count in the same permits; for different costs make one policy of a tuple.
///
/// **Places in flight can deadlock**: if some callers take a place of `a` and then one of `b`, and others a place of `b`
/// and then one of `a`, each may wait for a place that the other one holds. Take them in the same order everywhere.
///
/// `quota` has the smaller numbers and the longer times of both, and counts are those of both together, but `granted` is what
/// the second granted; a caller that waited twice counts twice in `waits`. `name` and `clock` are those of the first. `pause_for`,
/// `resume`, `reset`, `close` and `drain` change the first only, as others may share the second. A part (of an error, or
/// `limited_by`) is limit 1 of 2 or limit 2 of 2.
///
/// A `Feedback` around it therefore teaches the first. To teach one of the two, put the feedback
/// around that one: `Feedback::new(one).and(&other)`.
///
/// ```
/// use tollgate::{
///     Granted, InFlight, KeyedRateLimiter, Limiter, ManualClock, Part, Rate, RateLimiter, TokenBucket,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let customers = KeyedRateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), &clock);
/// let all = RateLimiter::with_clock(InFlight::new(2), &clock);
///
/// let ann = customers.at("ann").into_owned().and(&all);
/// let (first, second) = (ann.acquire(1).await?, ann.acquire(1).await?);
/// assert_eq!((second.waited().as_millis(), second.limited_by()), (100, Some(Part::new(0, 2))));
/// // Two are in flight, so others are refused by the second limiter, and keep what the first one gave them.
/// let bob = customers.at("bob").into_owned().and(&all);
/// let error = bob.try_acquire(1).await.unwrap_err();
/// assert_eq!((error.part(), customers.at("bob").available()), (Some(Part::new(1, 2)), 1));
/// drop(first);
/// bob.try_acquire(1).await?;
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct And<A, B> {
    first: A,
    second: B,
}

impl<A, B> And<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}
