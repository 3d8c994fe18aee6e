//! The builder of a [`Feedback`].

use std::sync::Arc;
use std::time::Duration;

use http::Response;

use super::answer::{Answer, Unit};
use super::dialect::Dialects;
use super::learner::Search;
use super::observer::{Feedback, Options, Shared};
use super::state::State;
use crate::limiter::Limiter;
use crate::observe::{Event, Reports};
use crate::policy::unlimited::Unlimited;
use crate::rate_limiter::RateLimiter;
use crate::sync::Mutex;
use crate::units::Rate;

/// A server may not stop a limiter for longer than this by default: GitHub's windows are as long.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Builds a [`Feedback`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Dialect, Dialects, Feedback};
/// use tollgate::{InFlight, RateLimiter};
///
/// let feedback = Feedback::builder(RateLimiter::new(InFlight::new(10)))
///     .dialects(Dialects::only(Dialect::ANTHROPIC))
///     .max_wait(Duration::from_secs(120))
///     .build();
/// assert_eq!(feedback.server_state().answers, 0);
/// ```
#[derive(Clone)]
#[allow(missing_debug_implementations)] // it has closures
#[must_use = "a builder does nothing until it is built"]
pub struct FeedbackBuilder<L: Limiter + 'static> {
    limiter: L,
    pub(super) options: Options,
    reports: Reports,
}

impl<L: Limiter + 'static> FeedbackBuilder<L> {
    /// The dialects to read; by default all that are known.
    pub fn dialects(mut self, dialects: Dialects) -> Self {
        self.options.dialects = dialects;
        self
    }

    /// Changes what a response is taken to say, for what no dialect can know. `judge` gets the response, whose body is
    /// empty unless the client [has read it](super::Call::observe_body), and what was read of it. It may set all of that: the
    /// verdict, the time to wait, the bucket. What it leaves is learned.
    ///
    /// [`Verdict::Accepted`](super::Verdict::Accepted) means that the limiter learns of no refusal, not that the call
    /// succeeded: a loop that ends when [`is_accepted`](Answer::is_accepted) also has to look at the status.
    ///
    /// ```
    /// use tollgate::feedback::{Feedback, Verdict, When};
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    /// # use std::time::Duration;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let api = Feedback::builder(RateLimiter::with_clock(InFlight::new(10), ManualClock::new()))
    ///     .judge(|response, answer| {
    ///         // OpenAI: a 429 that no wait helps against. It pauses no caller, and is still an error of this call.
    ///         let body = String::from_utf8_lossy(response.body());
    ///         if body.contains("insufficient_quota") {
    ///             answer.verdict = Verdict::Accepted;
    ///         }
    ///         // GitHub: a limit that only the text names.
    ///         if answer.status == 403 && body.contains("secondary rate limit") {
    ///             (answer.verdict, answer.wait) = (Verdict::Refused, Some(When::After(Duration::from_secs(60))));
    ///         }
    ///     })
    ///     .build();
    /// let none: [(&str, &str); 0] = [];
    /// api.acquire(1).await?.observe_body(429u16, &none, br#"{"code":"insufficient_quota"}"#).await;
    /// assert!(api.try_acquire(1).await.is_ok());
    /// let body = b"You have exceeded a secondary rate limit";
    /// api.acquire(1).await?.observe_body(403u16, &none, body).await;
    /// assert_eq!(api.try_acquire(1).await.unwrap_err().retry_after().unwrap().as_secs(), 60);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn judge(
        mut self,
        judge: impl Fn(&Response<&[u8]>, &mut Answer) + Send + Sync + 'static,
    ) -> Self {
        self.options.judge = Some(Arc::new(judge));
        self
    }

    /// The longest time for which a server can stop calls; an hour by default. A later reset or `Retry-After` is
    /// cut to it, and a rate that is learned from refusals leaves at least one call in it. The `max_wait` of a middleware
    /// bounds the wait of a call instead.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.options.max_wait = max_wait;
        self
    }

    /// A listener for the [events](Event) of calls that wait for the server: an [`Event::Waited`] for each long wait. What
    /// the limiter reports, such as pauses, goes to the limiter's own listener. Default: none.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.reports.listen(listener);
        self
    }

    /// What each number of a cost counts: `None` for what the server says nothing about, such as places in
    /// flight. Numbers that count the same are added. If none counts requests, each call is one.
    ///
    /// By default the first counts requests, the second tokens, and the others nothing; but a call is one request, whatever
    /// its first number is. `[Some(Unit::Requests)]` says that the server counts as the limiter does, such as the points of a
    /// query; `[Some(Unit::Tokens), None]`, that the limiter counts tokens, and places in flight beside them.
    pub fn units(mut self, units: impl IntoIterator<Item = Option<Unit>>) -> Self {
        self.options.units = Some(units.into_iter().collect());
        self
    }

    /// The rate at which the search for what the server bears begins. It doubles each second in which calls wait for
    /// it, until the server refuses one.
    ///
    /// Without it calls go as the limiter says, until the server refuses one. The limiter inside stays in
    /// force.
    pub fn start(mut self, rate: Rate) -> Self {
        self.options.search.start = rate.as_per_second();
        self
    }

    /// Finds how many calls the server works on at once, from `start` on, and lets no more be in flight: for a pool of workers
    /// or connections whose size is not known, or changes. It takes some hundred answers, from the time of calls and from
    /// refusals that name no time; these lower no rate then. Only calls that waited for a place change it.
    ///
    /// A call takes as many places as it is requests, and holds them until its answer or the end of [`Call`](super::Call).
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{ManualClock, RateLimiter, Unlimited};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::with_clock(Unlimited, ManualClock::new());
    /// let api = Feedback::builder(limiter).learn_in_flight(4).build();
    /// let mut calls = Vec::new();
    /// while let Ok(call) = api.try_acquire(1).await {
    ///     calls.push(call);
    /// }
    /// assert_eq!(calls.len(), 4);
    /// calls[3].refused(None).await; // a 429: the server works on three
    /// assert_eq!(api.server_state().places, Some(3));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learn_in_flight(mut self, start: u32) -> Self {
        self.options.places = Some(start);
        self
    }

    /// The seed of the random numbers that keep clients out of step, for tests. Zero: another one each time.
    #[doc(hidden)]
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.search.seed = seed;
        self
    }

    /// The feedback. It uses the limiter's clock.
    #[must_use]
    pub fn build(self) -> Feedback<L> {
        let Self { limiter, options, mut reports } = self;
        let clock = limiter.clock().clone();
        reports.name = limiter.name().map(Into::into);
        let state = State::new(options.search, options.places, clock.now());
        let gate = RateLimiter::reporting(state.gate, &clock, reports);
        let state = Mutex::new(state);
        let shared = Arc::new(Shared { limiter, gate, options, state });
        Feedback { shared, home: None }
    }
}

impl<L: Limiter + 'static> Feedback<L> {
    /// Teaches `limiter`, in all known dialects.
    #[must_use]
    pub fn new(limiter: L) -> Self {
        Self::builder(limiter).build()
    }

    /// Sets more.
    pub fn builder(limiter: L) -> FeedbackBuilder<L> {
        let options = Options {
            units: None,
            dialects: Dialects::default(),
            judge: None,
            is_alone: true,
            max_wait: MAX_WAIT,
            search: Search::default(),
            places: None,
        };
        FeedbackBuilder { limiter, options, reports: Reports::default() }
    }
}

impl Feedback<RateLimiter<Unlimited>> {
    /// Finds what a server bears, from this rate on, without a limit of one's own. Set more with the
    /// [builder](Self::builder) around a limiter of [`Unlimited`], or of [`InFlight`](crate::InFlight) to bound the calls
    /// under way.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::Rate;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let api = Feedback::starting_at(Rate::per_second(5.0));
    /// let mut call = api.acquire(1).await?;
    /// call.accepted(); // or `call.observe(response.status(), response.headers()).await`
    /// let mut call = api.acquire(1).await?;
    /// call.refused(None).await;
    /// assert!(api.rate() < Some(Rate::per_second(5.0)));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn starting_at(rate: Rate) -> Self {
        Self::builder(RateLimiter::new(Unlimited)).start(rate).build()
    }
}
