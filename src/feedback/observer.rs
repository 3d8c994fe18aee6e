//! The limiter, the gate before it, and what answers change of both.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use super::answer::{Answer, Unit, Verdict};
use super::counts::Counts;
use super::dialect::Dialects;
use super::gate::{Gate, LEARNED, Units};
use super::grpc::Head;
use super::headers::Headers;
use super::judge::{Judge, Judged};
use super::learner::Search;
use super::server_state::ServerState;
use super::state::{FeedbackStats, Lesson, State, Taken};
use super::text::When;
use super::window::Heard;
use crate::clock::{Alarm, OnAlarm};
use crate::error::Error;
use crate::limiter::{Granted, OwnedLimiter};
use crate::observe::{Event, Reports};
use crate::park::block_on;
use crate::part::Part;
use crate::policy::Cost;
use crate::rate_limiter::{Grant, RateLimiter};
use crate::retry::{self, RetryBudget};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::units::{Nanos, Rate};

/// A server may not stop a limiter for longer than this by default: GitHub's windows are as long.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// A limiter that learns from each response: see the [module](super).
///
/// A caller waits until both the server, by what it said last and by the rate that was learned, and the limiter have
/// room for its call, in the order of arrival. Callers that do not go through here are held back only by the limiter,
/// which is paused and shrunk. A timeout fails at once if the server's last answer rules it out, or, once the server
/// lets the caller, the limiter's queue. The `retry_after` of a caller that the server holds back is the server's time:
/// the limiter may need more. A caller that waits for the server joins the limiter's queue when the server lets it,
/// whether it is polled or not.
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
/// assert_eq!(feedback.limiter().available(), 2);
/// let two = (feedback.acquire(1).await?, feedback.acquire(1).await?);
/// let clock = feedback.limiter().clock().clone();
/// drop(two); // without an answer: the server may have counted them
/// feedback.acquire(1).await?;
/// assert_eq!(clock.now().get(), 20_000_000_000);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Feedback<L: OwnedLimiter> {
    shared: Arc<Shared<L>>,
    /// Of a call to one of several servers.
    home: Option<Arc<dyn Home<L>>>,
}

/// The server and the route of a call, where there are several.
pub(super) trait Home<L: OwnedLimiter>: Send + Sync {
    /// What was learned of the bucket to which a call belongs, if the answer names it.
    fn bucket(&self, answer: &Answer) -> Option<Feedback<L>>;

    /// What was learned of each bucket of the server.
    fn all(&self) -> Vec<Feedback<L>>;
}

struct Shared<L: OwnedLimiter> {
    limiter: L,
    gate: RateLimiter<Gate>,
    counts: Counts,
    dialects: Arc<Dialects>,
    judge: Option<Judge>,
    /// Whether the limiter serves this server alone. `None`: so says the program.
    is_alone: Option<Arc<AtomicBool>>,
    max_wait: Duration,
    state: Mutex<State<L::Grant>>,
    /// Whether the state has something that is learned, whose pace needs the number of those that wait.
    is_learning: AtomicBool,
    retries: Option<Box<RetryBudget>>,
    /// For the first reset at which something is given back. Locked before the state.
    alarm: Mutex<Alarm>,
}

/// Builds a [`Feedback`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Dialect, Dialects, Feedback};
/// use tollgate::{InFlight, RateLimiter};
///
/// let feedback = Feedback::builder(RateLimiter::new(InFlight::new(10)))
///     .dialects(Dialects::only(Dialect::anthropic()))
///     .max_wait(Duration::from_secs(120))
///     .build();
/// assert_eq!(feedback.stats().answers, 0);
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct FeedbackBuilder<L: OwnedLimiter> {
    limiter: L,
    counts: Counts,
    dialects: Arc<Dialects>,
    judge: Option<Judge>,
    is_alone: Option<Arc<AtomicBool>>,
    reports: Reports,
    max_wait: Duration,
    search: Option<Search>,
    retries: Option<f64>,
}

impl<L: OwnedLimiter> FeedbackBuilder<L> {
    /// The dialects to read; by default all that are known.
    pub fn dialects(self, dialects: Dialects) -> Self {
        Self { dialects: Arc::new(dialects), ..self }
    }

    /// Changes what a response is taken to say, for what no dialect can know. `judge` gets the response and what was
    /// read of it, and may set all of that: the verdict, the time to wait, the bucket. What it leaves is learned.
    ///
    /// [`Verdict::Accepted`] means that the limiter learns of no refusal, not that the call
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
    ///         if response.contains("insufficient_quota") {
    ///             (answer.verdict, answer.is_final) = (Verdict::Accepted, true);
    ///         }
    ///         // GitHub: a limit that only the text names.
    ///         if answer.status == 403 && response.contains("secondary rate limit") {
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
    pub fn judge(self, judge: impl Fn(&Judged<'_>, &mut Answer) + Send + Sync + 'static) -> Self {
        Self { judge: Some(Judge::new(judge)), ..self }
    }

    /// The longest time for which a server can stop calls; an hour by default. A later reset or `Retry-After` is
    /// cut to it. The `max_wait` of a middleware bounds the wait of a call instead.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// A listener for the [events](Event) of calls that wait for the server: an [`Event::Waited`] for each long wait. What
    /// the limiter reports, such as pauses, goes to the limiter's own listener. Default: none.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{ManualClock, RateLimiter, Unlimited};
    ///
    /// let (events, seen) = mpsc::channel();
    /// let limiter = RateLimiter::with_clock(Unlimited, ManualClock::auto_advance());
    /// let feedback = Feedback::builder(limiter)
    ///     .on_event(move |event| events.send(event.to_string()).expect("received"))
    ///     .build();
    /// feedback.blocking_acquire(1)?.blocking_observe(429u16, &[("retry-after", "7")]);
    /// drop(feedback.blocking_acquire(1)?);
    /// assert_eq!(seen.recv()?, "waited for 7s (the server)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.reports.listen(listener);
        self
    }

    /// The wait for the server from which a call makes an [`Event::Waited`]. Default: one second.
    pub fn slow_wait(mut self, wait: Duration) -> Self {
        self.reports.slow_wait = wait;
        self
    }

    /// What each number of a cost counts: `None` for what the server says nothing about, such as places in
    /// flight. Numbers that count the same are added. If none counts requests, each call is one.
    ///
    /// By default the first counts requests, the second tokens, and the others nothing; but a call is one request,
    /// whatever its first number is. Once a first number above one was seen, it is not taken for a count of requests
    /// (it may be bytes, or tokens), and the limiter is not shrunk to the requests that remain. `[Some(Unit::Requests)]`
    /// says that the server counts as the limiter does, such as the points of a query; `[Some(Unit::Tokens)]` and
    /// `[Some(Unit::Tokens), None]`, that the limiter counts tokens, and places in flight beside them.
    pub fn units(self, units: impl IntoIterator<Item = Option<Unit>>) -> Self {
        Self { counts: Counts::from_iter(units), ..self }
    }

    /// The rate at which the search for what the server bears begins. It doubles each second in which calls wait for
    /// it, until the server refuses one.
    ///
    /// Without it calls go as the limiter says, until the server refuses one without a reason: what was learned can
    /// only be less than the limit.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{ManualClock, Rate, RateLimiter, Unlimited};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::with_clock(Unlimited, ManualClock::auto_advance());
    /// let (start, most) = (Rate::per_second(5.0), Rate::per_second(50.0));
    /// let feedback = Feedback::builder(limiter).start(start).ceiling(most).build();
    /// for _ in 0..1_000 {
    ///     feedback.acquire(1).await?.accepted();
    /// }
    /// assert_eq!(feedback.rate(), Some(most));
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(mut self, rate: Rate) -> Self {
        self.search.get_or_insert_default().start = rate.as_per_second();
        self
    }

    /// The greatest rate; none by default. It holds from the first call on.
    pub fn ceiling(mut self, rate: Rate) -> Self {
        self.search.get_or_insert_default().ceiling = rate.as_per_second();
        self
    }

    /// The share of all calls that may be retries, for [`may_retry`](Feedback::may_retry). Ten at first and one every
    /// ten seconds are allowed besides. By default any number may.
    ///
    /// # Panics
    ///
    /// If `share` is not between 0 and 1.
    #[track_caller]
    pub fn retries(self, share: f64) -> Self {
        retry::check(share);
        Self { retries: Some(share), ..self }
    }

    /// The seed of the random numbers that keep clients out of step, for tests. Zero: another one each time.
    #[doc(hidden)]
    pub fn seed(mut self, seed: u64) -> Self {
        self.search.get_or_insert_default().seed = seed;
        self
    }

    pub(super) fn of_server(self, is_alone: &Arc<AtomicBool>) -> Self {
        Self { is_alone: Some(Arc::clone(is_alone)), ..self }
    }

    /// The feedback. It uses the limiter's clock.
    #[must_use]
    pub fn build(self) -> Feedback<L> {
        let Self {
            limiter,
            counts,
            dialects,
            judge,
            is_alone,
            mut reports,
            max_wait,
            search,
            retries,
        } = self;
        reports.name = limiter.name().map(Into::into);
        let state = State::new(search.map(Box::new), limiter.clock().now());
        let gate =
            RateLimiter::reporting(state.gate().unwrap_or(Gate::OPEN), limiter.clock(), reports);
        let is_learning = AtomicBool::new(state.is_learning());
        let state = Mutex::new(state);
        let clock = || limiter.clock().clone();
        let retries = retries.map(|share| Box::new(RetryBudget::with_clock(share, clock())));
        let shared = Arc::new_cyclic(|this: &Weak<Shared<L>>| {
            let alarm = Mutex::new(limiter.clock().alarm(this.clone()));
            Shared {
                limiter,
                gate,
                counts,
                dialects,
                judge,
                is_alone,
                max_wait,
                state,
                is_learning,
                retries,
                alarm,
            }
        });
        Feedback { shared, home: None }
    }
}

impl<L: OwnedLimiter> Feedback<L> {
    /// Teaches `limiter`, in all known dialects.
    #[must_use]
    pub fn new(limiter: L) -> Self {
        Self::builder(limiter).build()
    }

    /// Sets more.
    pub fn builder(limiter: L) -> FeedbackBuilder<L> {
        FeedbackBuilder {
            limiter,
            counts: Counts::default(),
            dialects: Dialects::known(),
            judge: None,
            is_alone: None,
            reports: Reports::default(),
            max_wait: MAX_WAIT,
            search: None,
            retries: None,
        }
    }

    crate::limiter::methods_of_limiter!();

    pub(super) fn units(&self, n: L::Cost) -> [u32; 4] {
        self.shared.counts.units(n)
    }

    pub(super) fn gate(&self) -> &RateLimiter<Gate> {
        &self.shared.gate
    }

    /// How often the server has refused.
    pub(super) fn shut(&self) -> u64 {
        self.shared.state.lock().shut
    }

    /// A caller is about to ask the limiter.
    pub(super) fn passed_gate(&self) -> u64 {
        self.shared.give_back();
        self.shut()
    }

    /// A call for `n` that is sent now, by a caller that has acquired its permits from the limiter itself.
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

    /// A place of a call that does not ask.
    pub(super) fn past_gate(&self, units: [u32; 4]) -> Grant<'static, Gate> {
        let place = self.shared.gate.take_anyway(cost(units));
        place.unwrap_or_else(|_| unreachable!("a gate bears any debt")).into_owned()
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
        {
            let mut state = shared.state.lock();
            state.send(units);
            state.counts_else |= shared.counts.differs(n);
        }
        if let Some(retries) = &shared.retries {
            retries.on_call();
        }
        let sent = shared.limiter.clock().now();
        let home = self.home.clone();
        Call { shared, home, units, grant, before, place: Some(place), sent, head: None }
    }

    /// Permits that no call to the server is made with.
    pub(super) fn not_sent(&self, grant: L::Grant) -> Call<L> {
        let shared = Arc::clone(&self.shared);
        let sent = shared.limiter.clock().now();
        let before = Duration::ZERO;
        let (units, grant) = ([0; 4], Some(grant));
        Call { shared, home: None, units, grant, before, place: None, sent, head: None }
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &L {
        &self.shared.limiter
    }

    /// Whether the program judges what responses say, for which a client with a body reads it.
    #[cfg(feature = "reqwest")]
    pub(crate) fn judges(&self) -> bool {
        self.shared.judge.is_some()
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

    /// The learned rate, for a publisher: as long as there is a handle.
    #[cfg(feature = "metrics")]
    pub(super) fn observed_rate(&self) -> impl Fn() -> Option<Rate> + Send + use<L> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade()?.state.lock().rate()
    }

    /// What is known of the server now: a pause, the learned rate, what remains.
    #[must_use]
    pub fn server_state(&self) -> ServerState {
        let now = self.shared.limiter.clock().now();
        self.shared.state.lock().server_state(now)
    }

    /// Whether a failed call may be retried: at most a [share](FeedbackBuilder::retries) of all calls may. If so, it
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
        self.shared.give_back();
        Arc::strong_count(&self.shared) == 1 && self.shared.state.lock().is_idle(now)
    }

    /// For a call to one of several servers.
    pub(super) fn with_home(self, home: Arc<dyn Home<L>>) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Hears an answer to a call to another bucket of the server, which holds for all of them.
    pub(super) fn overhear(&self, sent: Nanos, answer: &Answer) {
        let Answer { verdict, wait, least_wait, date, .. } = *answer;
        let answer = Answer { verdict, wait, least_wait, date, ..Answer::default() };
        let heard = self.shared.heard(sent, &answer);
        let shown = (false, self.shared.waiting());
        // The limiter is not of this server alone.
        let _ = self.shared.change(|state| state.learn(&heard, [0; 4], &answer, true, shown));
    }

    /// Gives back what was taken from the limiter, and ends the pause that was asked of it.
    pub(super) fn let_go(&self) {
        let now = self.shared.limiter.clock().now();
        let (taken, is_paused) = {
            let mut state = self.shared.state.lock();
            (std::mem::take(&mut state.taken), state.pauses_limiter(now))
        };
        taken.into_iter().for_each(|taken| taken.grant.refund());
        self.shared.arm();
        if is_paused {
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
        let taken = self.shared.change(|state| {
            state.resume(now);
            std::mem::take(&mut state.taken)
        });
        taken.into_iter().for_each(|taken| taken.grant.refund());
        self.shared.arm();
        self.shared.limiter.resume().await
    }
}

pub(super) fn cost([a, b, c, d]: [u32; 4]) -> Units {
    (a, b, c, d)
}

impl<L: OwnedLimiter> Shared<L> {
    /// Changes what is known, and the gate with it.
    fn change<R>(&self, change: impl FnOnce(&mut State<L::Grant>) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.gate();
        let result = change(&mut state);
        let gate = state.gate();
        self.is_learning.store(state.is_learning(), Ordering::Relaxed);
        // In the order of the answers, so under the lock; the waiters are woken after it.
        let after_unlock =
            (gate != before).then(|| self.gate.set_policy_quietly(gate.unwrap_or(Gate::OPEN)));
        drop(state);
        if let Some(after_unlock) = after_unlock {
            after_unlock.run();
        }
        result
    }

    /// How many wait for the server, if that makes a difference.
    fn waiting(&self) -> usize {
        if self.is_learning.load(Ordering::Relaxed) { self.gate.queue_len() } else { 0 }
    }

    /// Gives back what was taken from the limiter until a reset that has come.
    fn give_back(&self) {
        let now = self.limiter.clock().now();
        let over = {
            let taken = &mut self.state.lock().taken;
            taken.extract_if(.., |taken| taken.until <= now).collect::<Vec<_>>()
        };
        if over.is_empty() {
            return;
        }
        over.into_iter().for_each(|taken| taken.grant.refund());
        self.arm();
    }

    /// Sets the alarm for the first reset at which something is given back.
    fn arm(&self) {
        let task = {
            let mut alarm = self.alarm.lock();
            let due = self.state.lock().taken.iter().map(|taken| taken.until).min();
            if let Some(due) = due {
                let is_missed = alarm.set(due);
                alarm.timer_task(true, is_missed)
            } else {
                alarm.rest();
                None
            }
        };
        if let Some(task) = task {
            task.start();
        }
    }

    /// Keeps what was taken from the limiter until a reset, to give it back.
    fn keep(&self, grant: L::Grant, until: Option<Nanos>) {
        let cost = grant.cost();
        if cost.is_zero() {
            return;
        }
        let Some(until) = until else {
            // Nothing is known any more.
            grant.refund();
            return;
        };
        // What there is no room for comes back by the policy's own rule.
        let dropped = self.state.lock().keep(Taken { until, permits: cost.permits(), grant });
        drop(dropped);
        self.arm();
    }

    fn read<H: Headers + ?Sized>(&self, status: u16, headers: &H, body: Option<&[u8]>) -> Answer {
        let mut answer = self.dialects.read(status, headers);
        if let Some(judge) = &self.judge {
            judge.judge(headers, body, &mut answer);
        }
        answer
    }

    fn heard(&self, sent: Nanos, answer: &Answer) -> Heard {
        let clock = self.limiter.clock();
        let now = clock.now();
        let ours = || clock.since_epoch().saturating_add(now.since(Nanos::ZERO));
        let calendar = match answer.date {
            Some(date) => date,
            None if answer.names_time() => ours(),
            // Nothing is compared with it.
            None => Duration::ZERO,
        };
        Heard { sent, now, calendar, is_dated: answer.date.is_some(), max: self.max_wait }
    }

    /// Does with the limiter what an answer asks for.
    async fn apply(&self, lesson: Lesson) {
        if self.is_alone.as_ref().is_some_and(|is_alone| !is_alone.load(Ordering::Acquire)) {
            return;
        }
        if let Some(pause) = lesson.pause {
            self.count(self.limiter.pause_for(pause).await);
        } else if lesson.resume {
            self.count(self.limiter.resume().await);
        }
        if lesson.shrinks {
            let (remaining, until) = {
                let now = self.limiter.clock().now();
                let state = self.state.lock();
                let left = |unit: &Unit| state.shrunk(*unit, now);
                let numbers: Vec<_> = (0..L::Cost::NUMBERS)
                    .map(|index| {
                        let left = self.counts.of.get(index)?.as_ref().and_then(left)?;
                        u32::try_from(left).ok()
                    })
                    .collect();
                (L::Cost::from_numbers(|index| numbers[index].unwrap_or(u32::MAX)), state.reset())
            };
            match self.limiter.shrink_to(remaining).await {
                Ok(grant) => self.keep(grant, until),
                Err(_) => self.state.lock().stats.failed += 1,
            }
        }
    }

    fn count<T>(&self, result: Result<T, Error>) {
        if result.is_err() {
            self.state.lock().stats.failed += 1;
        }
    }
}

impl<L: OwnedLimiter> OnAlarm for Shared<L> {
    fn on_alarm(&self) {
        self.give_back();
        // An alarm may be early.
        self.arm();
    }

    fn wake_all(&self) {
        self.on_alarm();
    }
}

/// A call that was sent.
///
/// [`observe`](Self::observe) it when its response has come. Dropped before that, it counts against what remains,
/// as the server may have counted it; [`refund`](Self::refund) it if it was never sent. Keep it until the call is
/// over if the limiter has places in flight.
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
/// assert_eq!(limiter.available(), (59, 69_700));
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call that is dropped without an answer counts against what remains"]
pub struct Call<L: OwnedLimiter> {
    shared: Arc<Shared<L>>,
    home: Option<Arc<dyn Home<L>>>,
    units: [u32; 4],
    grant: Option<L::Grant>,
    /// How long the caller had waited before it asked the limiter, for the last time.
    before: Duration,
    /// `None` once its answer was observed.
    place: Option<Grant<'static, Gate>>,
    sent: Nanos,
    /// What its response has said so far, if more is to come.
    pub(super) head: Option<Head>,
}

impl<L: OwnedLimiter> Call<L> {
    /// Learns from the response, and pauses, resumes or shrinks the limiter. What was learned is in force when
    /// this function returns; the future does what the limiter needs, which in process takes no time.
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
    /// [`judge`](FeedbackBuilder::judge) to look at.
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
                others.for_each(|bucket| bucket.overhear(self.sent, &answer));
            }
        }
        let shared = Arc::clone(&self.shared);
        let lesson = self.learn(&answer);
        async move {
            shared.apply(lesson).await;
            answer
        }
    }

    /// The call belongs to another bucket of the server than was thought when it was sent.
    fn move_to(&mut self, bucket: &Feedback<L>) {
        if Arc::ptr_eq(&self.shared, &bucket.shared) {
            return;
        }
        let place = bucket.past_gate(self.units);
        bucket.shared.state.lock().send(self.units);
        let left = std::mem::replace(&mut self.shared, Arc::clone(&bucket.shared));
        left.change(|state| state.land(self.units));
        drop(self.place.replace(place));
    }

    /// What follows from the answer. Nothing from a second one.
    fn learn(&mut self, answer: &Answer) -> Lesson {
        let Some(place) = self.place.take() else { return Lesson::default() };
        let shared = &self.shared;
        let heard = shared.heard(self.sent, answer);
        let shown = (place.limited_by().map(Part::index) == Some(LEARNED), shared.waiting());
        let lesson = shared.change(|state| {
            state.land(self.units);
            state.learn(&heard, self.units, answer, L::IS_REMOTE, shown)
        });
        // After that, or another caller could take its place by what was known before.
        drop(place);
        shared.give_back();
        lesson
    }

    /// As [`observe`](Self::observe), for threads.
    pub fn blocking_observe(
        &mut self,
        status: impl Into<u16>,
        headers: &(impl Headers + ?Sized),
    ) -> Answer {
        block_on(self.observe(status, headers))
    }

    /// The server took the call: for calls that are not HTTP. As [`observe`](Self::observe) of a 200 without fields.
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

    /// The server refused the call, as there were too many: as [`observe`](Self::observe) of a 429. `after`: when it
    /// may be called again, if it has said so.
    ///
    /// # Cancel safety
    ///
    /// As [`observe`](Self::observe).
    pub fn refused(&mut self, after: Option<Duration>) -> impl Future<Output = ()> + Send + use<L> {
        let (verdict, wait) = (Verdict::Refused, after.map(When::After));
        let lesson = self.learn(&Answer { verdict, wait, ..Answer::default() });
        let shared = Arc::clone(&self.shared);
        async move { shared.apply(lesson).await }
    }

    /// As [`refused`](Self::refused), for threads.
    pub fn blocking_refused(&mut self, after: Option<Duration>) {
        block_on(self.refused(after));
    }

    /// The server could not be reached, or did not answer: as [`observe`](Self::observe) of a 503 without a time.
    ///
    /// Report it after errors of the connection and timeouts, or an outage without answers goes on to get all calls. The
    /// server may have counted the call.
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

    /// Takes the permits out, to settle them apart from the call: [metered](Grant::metered), for an answer that is
    /// streamed. `None` the second time, and for a call that was reported by [`Feedback::sent`].
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

    /// Gives the permits back, for a call that was not sent.
    pub fn refund(mut self) {
        self.refund_now();
    }

    pub(super) fn refund_now(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.change(|state| state.land(self.units));
            place.refund();
        }
        if let Some(grant) = self.grant.take() {
            grant.refund();
        }
    }

    pub(super) fn granted(&self) -> Option<&L::Grant> {
        self.grant.as_ref()
    }

    /// What held the call back last, if that was not the limiter.
    pub(super) fn held_by_server(&self) -> Option<Part> {
        let is_last = self.granted().is_none_or(|grant| grant.waited().is_zero());
        (is_last && !self.before.is_zero()).then(|| Part::new(0, 1).of_server())
    }

    pub(super) fn waited_in_all(&self) -> Duration {
        let at_limiter = self.granted().map_or(Duration::ZERO, Granted::waited);
        self.before.saturating_add(at_limiter)
    }
}

impl<L: OwnedLimiter> Drop for Call<L> {
    fn drop(&mut self) {
        if self.place.is_some() {
            let now = self.shared.limiter.clock().now();
            self.shared.change(|state| state.lose(self.units, now));
        }
    }
}

impl<L: OwnedLimiter> Clone for Feedback<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), home: self.home.clone() }
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

impl<L: OwnedLimiter + fmt::Debug> fmt::Debug for FeedbackBuilder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedbackBuilder")
            .field("limiter", &self.limiter)
            .field("dialects", &self.dialects)
            .field("max_wait", &self.max_wait)
            .field("search", &self.search)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
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
