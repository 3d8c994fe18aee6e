//! What all handles of a shared limiter share, and the task that sends its requests.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use tokio::sync::Semaphore;

use super::connection::failure::Failure;
use super::connection::request::{Reply, Request};
use super::connection::{Connection, Runtime};
use super::line::{Failing, InFlightRequest, Inner, Outcome};
use super::options::{Options, Unavailable};
use super::rules::Rules;
use super::script::policies::Scripted;
use crate::clock::{OnAlarm, Steady, TimerTask};
use crate::keyed::KeyedRateLimiter;
use crate::line::WaiterId;
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard};
use crate::units::Nanos;

/// Requests under way at most, one for each key. More would only wait for each other, on the way to a server
/// that does one thing at a time, and those at the end beyond their deadline.
const SLOTS: usize = 512;

/// What all keys of a limiter share.
pub(super) struct Core<P: Scripted, C> {
    pub(super) connection: C,
    pub(super) rules: Rules<P>,
    pub(super) runtime: Runtime,
    /// Requests that may be under way, those for other keys included.
    slots: Arc<Semaphore>,
    /// In use while Redis is away.
    pub(super) local: Option<KeyedRateLimiter<Arc<str>, P>>,
    policy: P,
}

/// The lines of all keys.
pub(super) struct Lines<P: Scripted, C> {
    core: Arc<Core<P, C>>,
    lines: Mutex<ByKey<P, C>>,
}

type ByKey<P, C> = HashMap<Arc<str>, Arc<Shared<P, C>>>;

impl<P: Scripted, C: Connection> Lines<P, C> {
    pub(super) fn new(core: Arc<Core<P, C>>) -> Arc<Self> {
        Arc::new(Self { core, lines: Mutex::default() })
    }

    /// The line of a key. Those of keys that nobody uses any more are dropped by and by.
    pub(super) fn of(&self, key: Arc<str>) -> Arc<Shared<P, C>> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(&key) {
            return Arc::clone(line);
        }
        if lines.len() == lines.capacity() {
            lines.retain(|_, line| Arc::strong_count(line) > 1 || !line.is_quiet());
            // Not again before as many others have come.
            let live = lines.len();
            lines.reserve(live + 1);
        }
        let line = Shared::new(Arc::clone(&self.core), Arc::clone(&key));
        lines.insert(key, Arc::clone(&line));
        line
    }
}

impl<P: Scripted, C> Core<P, C> {
    pub(super) fn new(policy: P, connection: C, options: Options<P>) -> Arc<Self> {
        let local = match &options.unavailable {
            Unavailable::Local(policy) => {
                let local = KeyedRateLimiter::with_clock(policy.clone(), options.clock.clone());
                let local = local.absent_is_new().max_waiters(options.max_waiters);
                Some(local.max_queued_permits(options.max_queued_permits))
            }
            _ => None,
        };
        let runtime = Runtime::default();
        runtime.remember();
        Arc::new(Self {
            connection,
            rules: Rules::new(options, random().to_le_bytes()),
            runtime,
            slots: Arc::new(Semaphore::new(SLOTS)),
            local,
            policy,
        })
    }
}

/// A number that no other process has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// One key.
pub(super) struct Shared<P: Scripted, C> {
    pub(super) core: Arc<Core<P, C>>,
    pub(super) key: Arc<str>,
    line: Mutex<Inner<P>>,
    this: Weak<Self>,
}

impl<P: Scripted, C: Connection> Shared<P, C> {
    fn new(core: Arc<Core<P, C>>, key: Arc<str>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let clock = &core.rules.options.clock;
            let policy = core.policy.clone();
            let header = core.rules.header(&policy, 0);
            let time = Steady::new(clock.now(), clock.step());
            let alarm = clock.alarm(this.clone());
            let line = Inner::new(Arc::clone(&key), policy, header, time, alarm, random());
            Self { core, key, line: Mutex::new(line), this: this.clone() }
        })
    }

    fn is_quiet(&self) -> bool {
        self.line.lock().is_quiet(self.core.rules.options.clock.now())
    }

    /// Locks, lets time pass, does `act`, and what follows from it: every way into the line by which anything
    /// may happen there is this one.
    pub(super) fn with_lock<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let (result, driver) = self.act(act);
        if let Some(driver) = driver {
            self.core.connection.spawn(&self.core.runtime, Box::pin(driver.drive()));
        }
        result
    }

    /// What happened without the line.
    pub(super) fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.line.lock().stats);
    }

    /// Whether callers are served without Redis, be it for this key only.
    pub(super) fn is_away(&self) -> bool {
        let Options { deadline, clock, .. } = &self.core.rules.options;
        let is_over = |failing: &Failing| clock.now() >= failing.until(*deadline);
        self.core.rules.health.down().is_some()
            || self.line.lock().failing.as_ref().is_some_and(is_over)
    }

    /// What became of somebody in line, if anything has yet: what is over is so at any time.
    pub(super) fn outcome(&self, key: WaiterId) -> Option<Outcome> {
        self.line.lock().take(key)
    }

    /// What became of somebody in line; if nothing yet, when that may change by itself.
    pub(super) fn poll(&self, key: WaiterId, waker: &Waker) -> Result<Outcome, Option<Nanos>> {
        let poll = || self.with_lock(|inner, now| inner.poll(&self.core.rules, now, key, waker));
        self.outcome(key).map_or_else(poll, Ok)
    }

    fn act<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> (R, Option<Driver<P, C>>) {
        let rules = &self.core.rules;
        let mut inner = self.line.lock();
        let now = inner.time.read(rules.options.clock.now());
        inner.pump(rules, now);
        let result = act(&mut inner, now);
        inner.pump(rules, now);
        let driver = self.driver(&mut inner, now);
        let timer_task = inner.arm(rules, now);
        // Who waits for a change does not look: a clock that advances by itself is moved for it.
        let moves = rules.options.clock.advances_by_itself() && !inner.changes.is_empty();
        let due = moves.then(|| inner.moves_at(rules, now)).flatten();
        self.unlock(inner, timer_task);
        if let Some(due) = due {
            rules.options.clock.skip_to(due);
        }
        (result, driver)
    }

    /// Somebody who sends what is to be sent now, and is responsible for it whatever panics.
    fn driver(&self, inner: &mut Inner<P>, now: Nanos) -> Option<Driver<P, C>> {
        if inner.under_way {
            return None;
        }
        let shared = self.this.upgrade()?;
        let sent = inner.next(&self.core.rules, now)?;
        Some(Driver { shared, step: Step::Due(sent) })
    }

    fn unlock(&self, mut inner: MutexGuard<'_, Inner<P>>, timer_task: Option<TimerTask>) {
        let wake = std::mem::take(&mut inner.wake);
        let discard = std::mem::take(&mut inner.discard);
        let events = std::mem::take(&mut inner.events);
        drop(inner);
        if let Some(task) = timer_task {
            task.start();
        }
        // Before those who are told of it; and if it panics, they are woken all the same.
        let told = self.core.rules.options.listener.as_ref().map(|listener| {
            catch_unwind(AssertUnwindSafe(|| events.iter().for_each(|event| listener(event))))
        });
        crate::line::wake_each(wake);
        drop(discard);
        if let Some(Err(panic)) = told {
            resume_unwind(panic);
        }
    }

    fn request(&self, sent: &mut InFlightRequest<P::Cost>) -> Request {
        let scripts = &self.core.rules.scripts;
        let script = if sent.is_take() { &scripts.take } else { &scripts.change };
        let deadline = self.core.rules.options.deadline;
        let mut request = Request::new(Arc::clone(script), Arc::clone(&self.key), deadline);
        request.arguments = std::mem::take(&mut sent.arguments);
        request
    }
}

impl<P: Scripted, C: Connection> OnAlarm for Shared<P, C> {
    fn on_alarm(&self) {
        self.with_lock(|inner, _| inner.went_off());
    }

    fn wake_all(&self) {
        self.with_lock(|inner, _| {
            inner.went_off();
            inner.wake_all();
        });
    }
}

/// Sends one request after the other for as long as there is something to send.
struct Driver<P: Scripted, C: Connection> {
    shared: Arc<Shared<P, C>>,
    step: Step<P::Cost>,
}

enum Step<C> {
    /// Nothing has been sent yet.
    Due(InFlightRequest<C>),
    InFlightRequest(InFlightRequest<C>),
    /// Those who were just told, and come again, are to be in the next request; or it is crowded out.
    Collecting,
    Done,
}

impl<P: Scripted, C: Connection> Driver<P, C> {
    fn take(&mut self, next: Step<P::Cost>) -> Step<P::Cost> {
        std::mem::replace(&mut self.step, next)
    }

    async fn drive(mut self) {
        let slots = Arc::clone(&self.shared.core.slots);
        let mut slot = None;
        while let Step::Due(mut sent) = self.take(Step::Collecting) {
            slot = slot.or_else(|| Arc::clone(&slots).try_acquire_owned().ok());
            let core = &self.shared.core;
            if slot.is_none() {
                self.shared.act(|inner, now| inner.no_slot(&core.rules, now, sent));
                slot = Arc::clone(&slots).acquire_owned().await.ok();
            } else if core.rules.health.down().is_some() && !sent.is_probe() {
                // Another key has found out while this one waited for its turn on the connection.
                self.shared.act(|inner, _| inner.withdrawn(&core.rules, sent));
            } else {
                let request = self.shared.request(&mut sent);
                core.rules.counters.request();
                self.step = Step::InFlightRequest(sent);
                let outcome: Result<Reply, Failure> = core.connection.run(&request).await;
                if let Step::InFlightRequest(sent) = self.take(Step::Collecting) {
                    let core = &self.shared.core;
                    self.shared.act(|inner, now| inner.answered(&core.rules, now, sent, outcome));
                }
                slot = None;
            }
            yield_now().await;
            let Self { shared, step } = &mut self;
            let next = shared.act(|inner, _| {
                inner.free();
                // If a listener panics now, another may be under way already.
                *step = Step::Done;
            });
            self.step = next.1.map_or(Step::Done, |mut next| next.take(Step::Done));
        }
        self.step = Step::Done;
    }
}

/// Lets others run first.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The runtime has ended, with a request under way or before the next: somebody else must go on.
impl<P: Scripted, C: Connection> Drop for Driver<P, C> {
    fn drop(&mut self) {
        let step = self.take(Step::Done);
        if matches!(step, Step::Done) {
            return;
        }
        let core = &*self.shared.core;
        let mut inner = self.shared.line.lock();
        match step {
            // Whoever looks after itself would only find the same runtime.
            Step::Due(sent) => inner.unsent(&core.rules, sent),
            Step::InFlightRequest(sent) => inner.abandoned(&core.rules, sent),
            Step::Collecting | Step::Done => {}
        }
        inner.free();
        // Nobody else may come for these.
        inner.refuse_changes(&core.rules);
        inner.wake_all();
        let now = inner.time.latest();
        let timer_task = inner.arm(&core.rules, now);
        self.shared.unlock(inner, timer_task);
    }
}
