//! A call that was sent, and the report of its answer.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::answer::{Answer, Verdict};
use super::gate::{Gate, Units};
use super::headers::{Headers, Judged};
use super::observer::Feedback;
use super::places::Sent;
use super::text::When;
use crate::error::Error;
use crate::limiter::{Granted, Hearing, Limiter, Reply, both, sealed::Sealed};
use crate::park::block_on;
use crate::part::{Kind, Part};
use crate::rate_limiter::Grant;

/// A call that was sent.
///
/// [`observe`](Self::observe) its response when it arrives. A call that is dropped before that counts against what remains,
/// because the server may have counted it; [`refund`](Self::refund) a call that was never sent. If the limiter has places
/// in flight, keep it until the call is over.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::Feedback;
/// use tollgate::{Granted, ManualClock, RateLimiter, SlidingWindowLog};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let minute = Duration::from_secs(60);
/// let policy = (SlidingWindowLog::new(60, minute), SlidingWindowLog::new(90_000, minute));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let feedback = Feedback::new(limiter.clone());
/// let mut call = feedback.acquire((1, 800)).await?;
/// let headers = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-remaining-tokens", "70000")];
/// call.observe(200u16, &headers).await;
/// call.settle((1, 1_100)).await?;
/// assert_eq!(limiter.available(), (59, 88_900));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call that is dropped without an answer counts against what remains"]
pub struct Call<L: Limiter + 'static> {
    pub(super) feedback: Feedback<L>,
    pub(super) grant: Option<L::Grant>,
    /// The time that the caller waited at the gate.
    pub(super) before: Duration,
    /// Its place in flight at the server. `None` once its answer was observed.
    pub(super) place: Option<Grant<'static, Gate>>,
    pub(super) sent: Sent,
}

impl<L: Limiter + 'static> Call<L> {
    /// Records the response, and pauses the limiter after a refusal. What was learned is in force when this function returns;
    /// the future pauses the limiter, which takes no time in process.
    ///
    /// A second answer to the same call only returns what it says.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, calls of this `Feedback` are held back all the same.
    pub fn observe<S: Into<u16>, H: Headers + ?Sized>(
        &mut self,
        status: S,
        headers: &H,
    ) -> impl Future<Output = Answer> + Send + use<L, S, H> {
        self.observe_body(status, headers, b"")
    }

    /// As [`observe`](Self::observe), for a client that has read the body, which is for
    /// [`judge`](super::FeedbackBuilder::judge) to look at.
    ///
    /// # Cancel safety
    ///
    /// As [`observe`](Self::observe).
    pub fn observe_body<S: Into<u16>, H: Headers + ?Sized>(
        &mut self,
        status: S,
        headers: &H,
        body: &[u8],
    ) -> impl Future<Output = Answer> + Send + use<L, S, H> {
        let (answer, rest) = self.answered(status.into(), &Judged::new(headers, body));
        done(rest, answer)
    }

    fn answered(&mut self, status: u16, response: &Judged<'_>) -> (Answer, Hearing) {
        let options = &self.feedback.shared.options;
        let mut answer = options.dialects.read_response(status, response);
        if let Some(judge) = &options.judge {
            judge(&response.to_http(status), &mut answer);
        }
        if let (Some(home), Some(_)) = (&self.feedback.home, &self.place)
            && let Some(bucket) = home(&answer)
        {
            self.move_to(bucket);
        }
        // Of a server with several buckets the limiter is for the others as well.
        let is_alone = self.feedback.home.is_none() || answer.bucket.is_none();
        let pause = self.learn(&answer).filter(|_| is_alone);
        (answer, self.feedback.shared.pause(pause))
    }

    /// Moves the call to the bucket that its answer named.
    fn move_to(&mut self, bucket: Feedback<L>) {
        if Arc::ptr_eq(&self.feedback.shared, &bucket.shared) {
            return;
        }
        let Some(place) = self.place.take() else { return };
        let (place, Sent { ahead, .. }) = bucket.past_gate(place.cost());
        (self.place, self.sent.ahead) = (Some(place), ahead);
        let left = std::mem::replace(&mut self.feedback.shared, bucket.shared);
        left.change(|state| state.answered(self.sent.units));
    }

    /// Records the answer, once. Returns for how long to pause the limiter.
    fn learn(&mut self, answer: &Answer) -> Option<Duration> {
        // Dropped after that, or another caller could take its place by what was known before.
        let _place = self.place.take()?;
        self.feedback.shared.learn(self.sent, answer)
    }

    /// As [`observe`](Self::observe), for threads.
    pub fn blocking_observe(
        &mut self,
        status: impl Into<u16>,
        headers: &(impl Headers + ?Sized),
    ) -> Answer {
        block_on(self.observe(status, headers))
    }

    /// Reports that the server accepted the call, for protocols other than HTTP: as [`observe`](Self::observe) of a 200 without fields.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{Granted, InFlight, ManualClock, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let clock = ManualClock::auto_advance();
    /// let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    /// feedback.acquire(1).await?.accepted();
    /// feedback.acquire(1).await?.failed(); // no connection
    /// feedback.acquire(1).await?.refused(Some(Duration::from_secs(7))).await;
    /// assert_eq!(feedback.acquire(1).await?.waited().as_secs(), 7);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accepted(&mut self) {
        // The limiter need not be asked for that.
        let _ = self.learn(&Answer::default());
    }

    /// Reports that the server refused the call: as [`observe`](Self::observe) of a 429. `after` is the time until the next
    /// call, if the server named one.
    ///
    /// # Cancel safety
    ///
    /// As [`observe`](Self::observe).
    pub fn refused(&mut self, after: Option<Duration>) -> impl Future<Output = ()> + Send + use<L> {
        let (verdict, wait) = (Verdict::Refused, after.map(When::After));
        let pause = self.learn(&Answer { verdict, wait, ..Answer::default() });
        done(self.feedback.shared.pause(pause), ())
    }

    /// Reports that the server did not answer: as [`observe`](Self::observe) of a 503 without a time.
    ///
    /// Report errors of the connection and timeouts, or a server that is down continues to get all calls. The server may have
    /// counted the call.
    pub fn failed(&mut self) {
        self.lose(false);
        let _ = self.learn(&Answer { verdict: Verdict::Unavailable, ..Answer::default() });
    }

    /// The server may have counted a call that it has not answered.
    fn lose(&self, is_over: bool) {
        if self.place.is_none() {
            return;
        }
        let shared = &self.feedback.shared;
        let now = shared.limiter.clock().now();
        shared.change(|state| {
            if is_over {
                state.over(self.sent, now, false);
            }
            state.count_lost(self.sent, now);
        });
    }

    /// Refunds a call that was not sent.
    pub fn refund(self) {
        Granted::refund(self);
    }
}

/// Does the remaining work, and returns `result`.
async fn done<T>(rest: Hearing, result: T) -> T {
    if let Some(rest) = rest {
        rest.await;
    }
    result
}

impl<L: Limiter + 'static> Drop for Call<L> {
    fn drop(&mut self) {
        self.lose(true);
    }
}

impl<L: Limiter + 'static> Sealed for Call<L> {}

impl<L: Limiter + 'static> Granted for Call<L> {
    type Cost = L::Cost;

    fn cost(&self) -> L::Cost {
        self.grant.as_ref().map_or_else(L::Cost::default, Granted::cost)
    }

    fn waited(&self) -> Duration {
        let at_limiter = self.grant.as_ref().map_or(Duration::ZERO, Granted::waited);
        self.before.saturating_add(at_limiter)
    }

    fn limited_by(&self) -> Option<Part> {
        let grant = self.grant.as_ref();
        // The server, if it delayed the call last.
        let is_last = grant.is_none_or(|grant| grant.waited().is_zero());
        let server = (is_last && !self.before.is_zero())
            .then(|| Part::new(0, 1).of_kind(Some(Kind::Server)));
        grant.and_then(Granted::limited_by).or(server)
    }

    fn send_settlement(&mut self, actual: L::Cost) -> Result<(), Error> {
        self.grant.as_mut().map_or(Ok(()), |grant| grant.send_settlement(actual))
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.grant.as_mut().map_or(Poll::Ready(Ok(())), |grant| grant.poll_settled(context))
    }

    fn settle_on_drop(&mut self, actual: L::Cost) {
        if let Some(grant) = &mut self.grant {
            grant.settle_on_drop(actual);
        }
    }

    fn give_back(&mut self) {
        if let Some(place) = self.place.take() {
            self.feedback.shared.change(|state| state.answered(self.sent.units));
            place.refund();
        }
        if let Some(grant) = self.grant.take() {
            grant.refund();
        }
    }

    fn holds_places(&self) -> bool {
        self.grant.as_ref().is_some_and(Granted::holds_places)
    }

    // The limiter may learn as well.
    fn receive(&mut self, reply: Reply<'_>) -> Hearing {
        let own: Hearing = match reply {
            // The program has observed it.
            Reply::Response(..) if self.place.is_none() => None,
            Reply::Response(status, headers, body) => {
                let (_, rest) = self.answered(status.as_u16(), &Judged::new(headers, body));
                let context = &mut Context::from_waker(Waker::noop());
                // In process it is done; over Redis a pause is sent.
                rest.and_then(|mut rest| rest.as_mut().poll(context).is_pending().then_some(rest))
            }
            Reply::Failure => {
                self.failed();
                None
            }
        };
        both(own, self.grant.as_mut().and_then(|grant| grant.receive(reply)))
    }

    /// If the program judges it, or as Google's refusals name a time there and not in the head.
    #[cfg(feature = "reqwest")]
    fn wants_body(&self, status: http::StatusCode, headers: &http::HeaderMap) -> bool {
        let kind = headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let has_time = headers.contains_key(http::header::RETRY_AFTER);
        let is_json = kind.windows(4).any(|part| part == b"json") && !has_time;
        let is_judged = self.feedback.shared.options.judge.is_some();
        let is_error = status.is_client_error() || status.is_server_error();
        is_error && (is_judged || matches!(status.as_u16(), 429 | 503) && is_json)
            || self.grant.as_ref().is_some_and(|grant| grant.wants_body(status, headers))
    }
}

impl<L: Limiter + 'static> Feedback<L> {
    /// Begins a call for `n` by a caller that has acquired its permits from the limiter itself.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::auto_advance());
    /// let feedback = Feedback::new(limiter.clone());
    /// let grant = limiter.acquire(1).await?;
    /// let answer = feedback.sent(1).observe(429u16, &[("retry-after", "7")]).await;
    /// drop(grant);
    /// assert!(answer.is_refused());
    /// assert_eq!(limiter.acquire(1).await?.waited().as_secs(), 7);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sent(&self, n: L::Cost) -> Call<L> {
        let (place, sent) = self.past_gate(self.shared.options.units(n));
        let (feedback, before) = (self.clone(), Duration::ZERO);
        Call { feedback, grant: None, before, place: Some(place), sent }
    }

    /// Sends a call that does not ask.
    fn past_gate(&self, units: Units) -> (Grant<'static, Gate>, Sent) {
        let place = self.shared.gate.take_anyway(units);
        let place = place.unwrap_or_else(|_| unreachable!("a gate bears any debt"));
        let sent = self.shared.send(&place, false);
        (place, sent.unwrap_or_else(|| unreachable!("it did not ask")))
    }
}

impl<L: Limiter + 'static> fmt::Debug for Call<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("sent", &self.sent).finish_non_exhaustive()
    }
}
