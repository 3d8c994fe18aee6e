//! What is known of a server at one moment.

use std::time::Duration;

use super::answer::{Meter, Unit};
use crate::units::Rate;

/// What a [`Feedback`](super::Feedback) knows of its server now, to be shown; its `Debug` prints it.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Feedback, Unit};
/// use tollgate::{InFlight, Limiter, ManualClock, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::new();
/// let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
/// let headers = [("x-ratelimit-remaining", "41"), ("x-ratelimit-reset", "20")];
/// feedback.acquire(1).await?.observe(200u16, &headers).await;
/// feedback.acquire(1).await?.refused(Some(Duration::from_secs(7))).await;
/// clock.advance(Duration::from_secs(1));
/// let server = feedback.server_state();
/// assert_eq!(server.pause, Some(Duration::from_secs(6)));
/// assert_eq!((server.answers, server.refused, server.pauses), (2, 1, 1));
/// assert_eq!(server.lowered, Some(Duration::from_secs(1)));
/// let (unit, meter) = server.meters[0];
/// assert_eq!((unit, meter.remaining), (Unit::Requests, Some(41)));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerState {
    /// How long no call goes to the server from now, after a refusal that named a time or left nothing. [`Feedback::resume`]
    /// ends it.
    ///
    /// [`Feedback::resume`]: super::Feedback::resume
    pub pause: Option<Duration>,
    /// The learned rate, as [`Feedback::rate`](super::Feedback::rate) returns it.
    pub rate: Option<Rate>,
    /// How long ago a refusal or an outage last lowered it.
    pub lowered: Option<Duration>,
    /// Most of the last calls failed: the rate is what comes through, or one call at a time.
    pub is_down: bool,
    /// What the server said that remains of its windows that last, and how long from now.
    pub meters: Vec<(Unit, Meter)>,
    /// How many calls may be under way, if that is [learned](super::FeedbackBuilder::learn_in_flight).
    pub places: Option<u64>,
    /// The calls that were sent and not answered.
    pub under_way: u64,
    /// Observed answers, all since the `Feedback` was made.
    pub answers: u64,
    /// Answers that refused the call.
    pub refused: u64,
    /// Quotas in answers that had been overtaken by newer answers.
    pub stale: u64,
    /// Fields that could not be parsed.
    pub malformed: u64,
    /// How often such a refusal paused all calls.
    pub pauses: u64,
    /// How often the limiter could not be paused, because its store did not answer.
    pub failed: u64,
}
