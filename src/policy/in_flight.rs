//! Calls in flight: a semaphore, written as a policy so that it composes with the others. Time plays no part.
//!
//! Source: E. W. Dijkstra's counting semaphore. Exact.

use super::prelude::*;

/// At most `max` permits in flight; a permit is given back when its [`Grant`](crate::Grant) is dropped.
///
/// Keep the grant as long as the call takes. It may be held across `.await`; a panic or a cancelled future
/// drops it as well. To move it into a task, use
/// [`acquire_owned`](crate::RateLimiter::acquire_owned) or [`into_owned`](crate::Grant::into_owned).
///
/// **A grant that is not kept limits nothing**: `limiter.acquire(1).await?;` gives its place back at
/// the end of the statement. Write `let _place = limiter.acquire(1).await?;`, and not `let _ = ..`.
///
/// The time at which a place becomes free is unpredictable: [`retry_after`](crate::Error::retry_after) is
/// `None`, and a timed call waits until its deadline. A leaked grant is never given back. With a `max` of
/// zero nothing is granted.
///
/// ```
/// use tollgate::{InFlight, ManualClock, RateLimiter};
///
/// let limiter = RateLimiter::with_clock(InFlight::new(2), ManualClock::new());
/// let first = limiter.try_acquire(1)?;
/// let second = limiter.try_acquire(1)?;
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after(), None);
/// drop(first);
/// assert!(limiter.try_acquire(1).is_ok());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias("bulkhead", "concurrency", "semaphore"))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    pub(crate) max: u32,
}

impl InFlight {
    /// At most `max` permits in use.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max }
    }
}

impl Policy for InFlight {
    type Cost = u32;
    /// The permits in use. May exceed `max` after a change to a lower `max`, or after a
    /// [`settle`](crate::Grant::settle).
    type State = u64;
    type Receipt = ();

    const HELD: bool = true;

    const TIMED: bool = false;

    fn start(&self, _: Nanos) -> u64 {
        0
    }

    fn idle_at(&self, out: &u64) -> Option<Nanos> {
        (*out == 0).then_some(Nanos::ZERO)
    }

    #[inline]
    fn ready_at(&self, out: &u64, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
        let max = u64::from(self.max);
        if u64::from(n) > max {
            return Err(ExceedsCapacity::new(n, max));
        }
        Ok(if *out + u64::from(n) <= max { Ready::At(Nanos::ZERO) } else { Ready::NotBefore(now) })
    }

    #[inline(always)]
    fn charge(&self, out: &mut u64, _: Nanos, n: u32) {
        // It never wraps: that would take 2^32 grants of 2^32 permits.
        *out += u64::from(n);
    }

    #[inline(always)]
    fn event(&self, out: &mut u64, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        if let RuleEvent::Released(n) = event {
            *out = out.saturating_sub(u64::from(n));
        }
        now
    }

    fn migrate(&self, _: &Self, _: &mut u64, _: Nanos) {}

    fn available(&self, out: &u64, _: Nanos) -> u32 {
        self.max.saturating_sub(u32::try_from(*out).unwrap_or(u32::MAX))
    }

    #[inline]
    fn facts(&self, _: usize) -> Facts {
        // It records no times, so the rules beside it say how much lateness is credited.
        Facts { kind: Some(Kind::InFlight), catch_up: Duration::MAX, ..Facts::default() }
    }
}
