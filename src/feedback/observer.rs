//! The limiter, the gate before it, and what answers change of both.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::answer::Unit;
use super::server_state::ServerState;
use super::servers::Destination;
use super::shared::Shared;
use super::state::FeedbackStats;
use crate::error::Error;
use crate::limiter::OwnedLimiter;
use crate::units::Rate;

/// A limiter that learns from each response: see the [module](super).
///
/// A caller first waits at the gate, which follows the server's answers and the learned rate, and then in the queue of the
/// limiter. Both are in the order of arrival. Callers of the limiter itself are held back by its pauses only. A timeout
/// fails at once if the gate rules it out, or later the limiter's queue. The `retry_after` of a caller at the gate is the
/// gate's time: the limiter may need more. A caller that passes the gate joins the limiter's queue whether it is polled or
/// not.
///
/// It is a handle: clones share what was learned. Calls for which a server keeps separate quotas (GitHub's search,
/// Discord's routes) need one for each.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::Feedback;
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = TokenBucket::new(Rate::per_second(100.0), 100);
/// let feedback = Feedback::new(RateLimiter::with_clock(policy, ManualClock::auto_advance()));
/// let mut call = feedback.acquire(1).await?;
/// let headers = [("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "20")];
/// assert!(call.observe(200u16, &headers).await.is_accepted());
/// // The server has room for two more calls in the next 20 seconds.
/// let two = (feedback.acquire(1).await?, feedback.acquire(1).await?);
/// let clock = feedback.limiter().clock().clone();
/// drop(two); // without an answer: the server may have counted them
/// feedback.acquire(1).await?;
/// assert_eq!(clock.now().get(), 20_000_000_000);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Feedback<L: OwnedLimiter> {
    pub(super) shared: Arc<Shared<L>>,
    /// Where its calls go, if there are several servers.
    pub(super) destination: Option<Arc<Destination<L>>>,
}

impl<L: OwnedLimiter> Feedback<L> {
    crate::limiter::methods_of_limiter!();

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &L {
        &self.shared.limiter
    }

    /// Whether a client that can read the body of a response does so: because the program judges it, or as it may name a
    /// time.
    #[cfg(feature = "reqwest")]
    pub(crate) fn wants_body(&self, status: http::StatusCode, headers: &http::HeaderMap) -> bool {
        use super::headers::Headers;
        let options = &self.shared.options;
        let is_open = || {
            let answer = options.dialects.read(status, headers);
            answer.is_refused() && answer.wait.is_none()
        };
        let is_json = || headers.field("content-type").is_some_and(|kind| kind.contains("json"));
        (status.is_client_error() || status.is_server_error())
            && (options.judge.is_some() || is_json() && is_open())
    }

    /// What remains of the server's quota, if it has said so and its window still lasts. Calls under way may or
    /// may not be counted in it.
    #[must_use]
    pub fn remaining(&self, unit: Unit) -> Option<u64> {
        let now = self.shared.limiter.clock().now();
        self.shared.state.lock().remaining(unit, now)
    }

    /// The rate that was learned: how many calls a second go to the server now, while as many wait as do. `None` while
    /// nothing but the limiter and what the server said holds calls back.
    ///
    /// ```
    /// use tollgate::Rate;
    /// use tollgate::feedback::Adaptive;
    ///
    /// let api = Adaptive::starting_at(Rate::per_second(5.0));
    /// assert_eq!(api.rate(), Some(Rate::per_second(5.0)));
    /// ```
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.shared.state.lock().rate()
    }

    /// What is known of the server now: a pause, the learned rate, what remains.
    #[must_use]
    pub fn server_state(&self) -> ServerState {
        let now = self.shared.limiter.clock().now();
        self.shared.state.lock().server_state(now)
    }

    /// Whether a failed call may be retried: at most a [share](super::FeedbackBuilder::retries) of all calls may. If so, it
    /// counts as a retry: [`acquire`](Self::acquire) its permits and send it.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    ///
    /// let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
    /// let feedback = Feedback::builder(limiter).retries(0.1).build();
    /// // Before the first call there are ten.
    /// assert_eq!((0..20).filter(|_| feedback.may_retry()).count(), 10);
    /// ```
    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.shared.retries.as_ref().is_none_or(|retries| retries.may_retry())
    }

    /// Counters since it was made.
    #[must_use]
    pub fn stats(&self) -> FeedbackStats {
        self.shared.state.lock().stats
    }

    /// Whether it knows nothing that holds calls back, and no other handle is in use.
    pub(super) fn is_idle(&self) -> bool {
        let now = self.shared.limiter.clock().now();
        Arc::strong_count(&self.shared) == 1 && self.shared.state.lock().is_idle(now)
    }

    /// Ends the pause that was asked of the limiter.
    pub(super) fn let_go(&self) {
        let now = self.shared.limiter.clock().now();
        if self.shared.state.lock().pauses_limiter(now) {
            let resumed = pin!(self.shared.limiter.resume());
            // Done from the first poll on, also over Redis.
            let _ = resumed.poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Forgets what the server said and what was learned, and ends a pause of the limiter: for a caller that knows
    /// better. The search for the rate begins anew.
    ///
    /// # Errors
    ///
    /// Those of the limiter's own `resume`.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::auto_advance();
    /// let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    /// feedback.acquire(1).await?.observe(503u16, &[("retry-after", "600")]).await;
    /// feedback.resume().await?;
    /// feedback.acquire(1).await?;
    /// assert_eq!(clock.elapsed().as_secs(), 0);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn resume(&self) -> Result<(), Error> {
        let now = self.shared.limiter.clock().now();
        self.shared.change(|state| state.resume(now));
        self.shared.limiter.resume().await
    }
}

impl<L: OwnedLimiter> Clone for Feedback<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), destination: self.destination.clone() }
    }
}

impl<L: OwnedLimiter + fmt::Debug> fmt::Debug for Feedback<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback")
            .field("limiter", &self.shared.limiter)
            .field("server", &self.server_state())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
