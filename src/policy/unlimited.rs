//! No limit.

use super::prelude::*;

/// No limit of one's own: nothing waits, unless the limiter is paused.
///
/// For a limiter around which something else decides, such as a `Feedback` that finds what a server bears; and for
/// a name in [`Limits`](crate::Limits) that needs none: `"unlimited"`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, RateLimiter, Unlimited};
///
/// let limiter = RateLimiter::with_clock(Unlimited, ManualClock::auto_advance());
/// assert!(limiter.try_acquire(u32::MAX).is_ok());
/// limiter.pause_for(Duration::from_secs(7));
/// assert_eq!(limiter.blocking_acquire(1)?.waited().as_secs(), 7);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unlimited;

impl Policy for Unlimited {
    type Cost = u32;
    type State = ();
    type Receipt = ();

    fn start(&self, _: Nanos) {}

    fn idle_at(&self, (): &()) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn ready_at(&self, (): &(), _: Nanos, _: u32) -> Result<Ready, ExceedsCapacity> {
        Ok(Ready::At(Nanos::ZERO))
    }

    fn charge(&self, (): &mut (), _: Nanos, _: u32) {}

    fn migrate(&self, _: &Self, (): &mut (), _: Nanos) {}

    fn available(&self, (): &(), _: Nanos) -> u32 {
        u32::MAX
    }

    #[inline]
    fn facts(&self, _: usize) -> Facts {
        Facts { kind: Some(Kind::Unlimited), ..Facts::default() }
    }
}
