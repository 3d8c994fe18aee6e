//! A server whose limit is not known.

use super::observer::Feedback;
use crate::policy::unlimited::Unlimited;
use crate::rate_limiter::RateLimiter;
use crate::units::Rate;

/// A [`Feedback`] without a limit of one's own: the limit is not known, and found.
///
/// All of [`Feedback`] holds for it: it reads what a server says, and is steered and seen in the same way. Set more
/// with its [builder](Feedback::builder) around a limiter of [`Unlimited`], or of
/// [`InFlight`](crate::InFlight) to have only so many calls under way.
///
/// ```
/// use tollgate::feedback::Adaptive;
/// use tollgate::Rate;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let api = Adaptive::starting_at(Rate::per_second(5.0));
/// let mut call = api.acquire(1).await?;
/// call.accepted(); // or `call.observe(response.status(), response.headers()).await`
/// let mut call = api.acquire(1).await?;
/// call.refused(None).await;
/// assert!(api.rate() < Some(Rate::per_second(5.0)));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Adaptive = Feedback<RateLimiter<Unlimited>>;

impl Adaptive {
    /// Finds what a server bears, from this rate on. A tenth of the calls may be [retries](Feedback::may_retry).
    #[must_use]
    pub fn starting_at(rate: Rate) -> Self {
        Self::builder(RateLimiter::new(Unlimited)).start(rate).retries(0.1).build()
    }
}
