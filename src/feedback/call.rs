//! A call that was sent, and the report of its answer.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::answer::{Answer, Verdict};
use super::gate::{Gate, LEARNED};
use super::grpc::{self, Head};
use super::headers::Headers;
use super::observer::{Feedback, Home};
use super::shared::Shared;
use super::state::Action;
use super::text::When;
use crate::limiter::{Granted, OwnedLimiter};
use crate::park::block_on;
use crate::part::Part;
use crate::rate_limiter::Grant;
use crate::units::Nanos;
use crate::unwinding::in_drop;

/// A call that was sent.
///
/// [`observe`](Self::observe) its response when it arrives. A call that is dropped before that counts against what remains,
/// because the server may have counted it; [`refund`](Self::refund) a call that was never sent. If the limiter has places
/// in flight, keep it until the call is over.
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::Feedback;
/// use tollgate::{ManualClock, RateLimiter, SlidingWindowLog};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let minute = Duration::from_secs(60);
/// let policy = (SlidingWindowLog::new(60, minute), SlidingWindowLog::new(90_000, minute));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let feedback = Feedback::new(limiter.clone());
/// let mut call = feedback.acquire((1, 800)).await?;
/// let headers = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-remaining-tokens", "70000")];
/// call.observe(200u16, &headers).await;
/// if let Some(grant) = call.grant() {
///     grant.settle((1, 1_100))?;
/// }
/// assert_eq!(limiter.available(), (59, 88_900));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call that is dropped without an answer counts against what remains"]
pub struct Call<L: OwnedLimiter> {
    shared: Arc<Shared<L>>,
    home: Option<Arc<dyn Home<L>>>,
    units: [u32; 4],
    grant: Option<L::Grant>,
    /// The time that the caller waited at the gate.
    before: Duration,
    /// `None` once its answer was observed.
    place: Option<Grant<'static, Gate>>,
    sent: Nanos,
    /// The head of its response, if the rest may say more.
    pub(super) head: Option<Head>,
}

impl<L: OwnedLimiter> Call<L> {
    /// Records the response, and pauses or resumes the limiter. What was learned is in force when this function returns; the
    /// future changes the limiter, which takes no time in process.
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
        let answer = self.shared.read(status.into(), headers, None);
        self.answered(answer)
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
        let answer = self.shared.read(status.into(), headers, Some(body));
        // It is not heard again with the rest of the body.
        self.head = None;
        self.answered(answer)
    }

    fn answered(&mut self, answer: Answer) -> impl Future<Output = Answer> + Send + use<L> {
        if let Some(home) = &self.home
            && self.place.is_some()
        {
            let home = Arc::clone(home);
            if let Some(bucket) = home.bucket(&answer) {
                self.move_to(&bucket);
            }
            if answer.is_global && answer.is_refused() {
                let all = home.all().into_iter();
                let others = all.filter(|bucket| !Arc::ptr_eq(&bucket.shared, &self.shared));
                others.for_each(|bucket| bucket.record_elsewhere(self.sent, &answer));
            }
        }
        let shared = Arc::clone(&self.shared);
        let action = self.learn(&answer);
        async move {
            shared.apply(action).await;
            answer
        }
    }

    /// Moves the call to the bucket that its answer named.
    fn move_to(&mut self, bucket: &Feedback<L>) {
        if Arc::ptr_eq(&self.shared, &bucket.shared) {
            return;
        }
        let place = bucket.past_gate(self.units);
        bucket.shared.state.lock().send(self.units);
        let left = std::mem::replace(&mut self.shared, Arc::clone(&bucket.shared));
        left.change(|state| state.answered(self.units));
        drop(self.place.replace(place));
    }

    /// As [`observe`](Self::observe), without waiting.
    pub(super) fn observe_at_once(&mut self, status: StatusCode, headers: &HeaderMap) {
        let rest = pin!(self.observe(status, headers));
        // A pause is sent to a shared limiter with the first poll.
        let _ = rest.poll(&mut task::Context::from_waker(Waker::noop()));
    }

    /// Observes a head whose rest will not arrive, unless it is gRPC's: that says nothing by itself.
    fn hear_head_alone(&mut self) {
        let head = self.head.take().filter(|head| !grpc::is_open(head.0, &head.1));
        if let Some((status, headers)) = head.as_deref() {
            self.observe_at_once(*status, headers);
        }
    }

    /// Records the answer, once.
    fn learn(&mut self, answer: &Answer) -> Action {
        let Some(place) = self.place.take() else { return Action::default() };
        let shared = &self.shared;
        let observed = shared.observation(self.sent, answer);
        let shown = (place.limited_by().map(Part::index) == Some(LEARNED), shared.waiting());
        let action = shared.change(|state| {
            state.answered(self.units);
            state.learn(&observed, self.units, answer, shown)
        });
        // After that, or another caller could take its place by what was known before.
        drop(place);
        action
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
        let action = self.learn(&Answer { verdict, wait, ..Answer::default() });
        let shared = Arc::clone(&self.shared);
        async move { shared.apply(action).await }
    }

    /// As [`refused`](Self::refused), for threads.
    pub fn blocking_refused(&mut self, after: Option<Duration>) {
        block_on(self.refused(after));
    }

    /// Reports that the server did not answer: as [`observe`](Self::observe) of a 503 without a time.
    ///
    /// Report errors of the connection and timeouts, or a server that is down continues to get all calls. The server may have
    /// counted the call.
    pub fn failed(&mut self) {
        if self.place.is_some() {
            let now = self.shared.limiter.clock().now();
            self.shared.change(|state| state.count_lost(self.units, now));
        }
        let _ = self.learn(&Answer { verdict: Verdict::Unavailable, ..Answer::default() });
    }

    /// The permits, to settle them. `None` for a call that was reported by [`Feedback::sent`].
    pub fn grant(&mut self) -> Option<&mut L::Grant> {
        self.grant.as_mut()
    }

    /// Takes the grant, to settle it apart from the call, such as [metered](Grant::metered) for a streamed answer. `None` the second time, and for a call that was reported by [`Feedback::sent`].
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    /// let requests = TokenBucket::new(Rate::per_minute(60.0), 60);
    /// let limiter = RateLimiter::with_clock((requests, tokens), ManualClock::new());
    /// let feedback = Feedback::new(limiter.clone());
    /// let mut call = feedback.acquire((1, 2_000)).await?;
    /// let mut used = call.take_grant().expect("granted").metered();
    /// call.observe(200u16, &[("x-ratelimit-remaining-requests", "59")]).await;
    /// used.add((0, 500)); // a chunk of the answer
    /// drop(used); // cancelled, or at its end
    /// assert_eq!(limiter.available(), (59, 89_500));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_grant(&mut self) -> Option<L::Grant> {
        self.grant.take()
    }

    /// Refunds a call that was not sent.
    pub fn refund(mut self) {
        self.refund_now();
    }

    pub(super) fn refund_now(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.change(|state| state.answered(self.units));
            place.refund();
        }
        if let Some(grant) = self.grant.take() {
            grant.refund();
        }
    }

    pub(super) fn granted(&self) -> Option<&L::Grant> {
        self.grant.as_ref()
    }

    /// Whether its answer was observed, or it was not sent.
    pub(super) fn is_over(&self) -> bool {
        self.place.is_none()
    }

    /// The part that delayed the call last, if that was not the limiter.
    pub(super) fn held_by_server(&self) -> Option<Part> {
        let is_last = self.granted().is_none_or(|grant| grant.waited().is_zero());
        (is_last && !self.before.is_zero())
            .then(|| Part::new(0, 1).of_kind(Some(crate::part::Kind::Server)))
    }

    pub(super) fn waited_in_all(&self) -> Duration {
        let at_limiter = self.granted().map_or(Duration::ZERO, Granted::waited);
        self.before.saturating_add(at_limiter)
    }
}

impl<L: OwnedLimiter> Drop for Call<L> {
    fn drop(&mut self) {
        if self.place.is_some() {
            in_drop(|| self.hear_head_alone());
        }
        if self.place.is_some() {
            let now = self.shared.limiter.clock().now();
            self.shared.change(|state| state.lost(self.units, now));
        }
    }
}

impl<L: OwnedLimiter> Feedback<L> {
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
        self.call(n, None, self.past_gate(self.units(n)), Duration::ZERO)
    }

    pub(super) fn call(
        &self,
        n: L::Cost,
        grant: Option<L::Grant>,
        place: Grant<'static, Gate>,
        before: Duration,
    ) -> Call<L> {
        let shared = Arc::clone(&self.shared);
        let units = shared.counts.units(n);
        shared.state.lock().send(units);
        if let Some(retries) = &shared.retries {
            retries.on_call();
        }
        let sent = shared.limiter.clock().now();
        let home = self.home.clone();
        Call { shared, home, units, grant, before, place: Some(place), sent, head: None }
    }
}

impl<L: OwnedLimiter> fmt::Debug for Call<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("units", &self.units)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}
