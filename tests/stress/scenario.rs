//! One limiter under one mix of calls, in rounds: threads and tasks start, call and end, and then
//! all counts are compared.

use std::fmt::{self, Debug};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Cost, Policy, RateLimiter};

use crate::caller::{Caller, Held};
use crate::ends::{Late, with_ends};
use crate::heap::Samples;
use crate::law::{CLOCKS, Charged, Law};
use crate::mix::{GrantUse, Mix, Verb};
use crate::places::Places;
use crate::random::Random;
use crate::support::{block_on, finishes, until};
use crate::tally::Tally;
use crate::watched::now;

/// How long callers call before they are counted.
const ROUND: Duration = Duration::from_millis(50);

/// More than the stripes that the limiter counts in.
const CROWD: u64 = 20;

pub(crate) struct Scenario<P: Policy> {
    pub(crate) name: &'static str,
    pub(crate) policy: P,
    pub(crate) cost: fn(u32) -> P::Cost,
    /// Callers ask for one to `most` permits.
    pub(crate) most: u32,
    pub(crate) verbs: &'static Mix<Verb>,
    pub(crate) uses: &'static Mix<GrantUse>,
    /// Goes to other parameters, or back to those at first for zero.
    pub(crate) change: Option<fn(&RateLimiter<P>, u64)>,
    pub(crate) laws: Vec<Law>,
    pub(crate) places: Option<Places<P>>,
    /// No permit is ever lost, so that all permits must be granted in the end: the interval of a
    /// permit.
    pub(crate) conserves: Option<Duration>,
    pub(crate) max_waiters: usize,
    /// Whether there is a number of permits that can never be granted.
    pub(crate) is_strict: bool,
    pub(crate) show: fn(&RateLimiter<P>) -> String,
}

/// A scenario with any policy.
pub(crate) trait Run {
    fn run(self: Box<Self>, span: Duration, seed: u64);
}

impl<P: Policy + Debug> Scenario<P> {
    pub(crate) fn new(
        name: &'static str,
        policy: P,
        cost: fn(u32) -> P::Cost,
        most: u32,
        verbs: &'static Mix<Verb>,
        uses: &'static Mix<GrantUse>,
    ) -> Self {
        Self {
            name,
            policy,
            cost,
            most,
            verbs,
            uses,
            change: None,
            laws: Vec::new(),
            places: None,
            conserves: None,
            max_waiters: usize::MAX,
            is_strict: false,
            show: |limiter| format!("{limiter:?}"),
        }
    }

    pub(crate) fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    pub(crate) fn law(mut self, law: Law) -> Self {
        self.laws.push(law);
        self
    }

    pub(crate) fn change(self, change: fn(&RateLimiter<P>, u64)) -> Self {
        Self { change: Some(change), ..self }
    }

    pub(crate) fn places(self, places: Places<P>) -> Self {
        Self { places: Some(places), ..self }
    }

    pub(crate) fn conserves(self, interval: Duration) -> Self {
        Self { conserves: Some(interval), ..self }
    }

    pub(crate) fn max_waiters(self, max_waiters: usize) -> Self {
        Self { max_waiters, ..self }
    }
}

/// The state that all callers of a scenario share.
pub(crate) struct Stage<P: Policy> {
    pub(crate) scenario: Scenario<P>,
    pub(crate) limiter: RateLimiter<P>,
    /// Grants on their way to other threads.
    pub(crate) exchange: Mutex<Vec<Held<'static, P>>>,
    pub(crate) late: Late,
    /// The time from which there may be another pause.
    pub(crate) next_pause: AtomicI64,
}

impl<P: Policy> Run for Scenario<P> {
    fn run(self: Box<Self>, span: Duration, seed: u64) {
        let mut chance = Random(seed);
        let (start, before) = (Instant::now(), now());
        let limiter =
            RateLimiter::builder(self.policy.clone()).max_waiters(self.max_waiters).build();
        let made = (before, now());
        let (exchange, late, next_pause) = (Mutex::default(), Late::default(), AtomicI64::new(0));
        let stage = Arc::new(Stage { scenario: *self, limiter, exchange, late, next_pause });
        let (mut tally, mut rounds, mut needed) = (Tally::default(), 0, None);
        let (mut longest, mut memory) = (Duration::ZERO, Samples::default());
        while rounds == 0 || start.elapsed() < span {
            let round = ROUND.min(span / 2);
            let history;
            let started = Instant::now();
            (tally, history) = stage.round(tally, round, &mut chance);
            longest = longest.max(started.elapsed());
            needed = stage.check_laws(&history).max(needed);
            rounds += 1;
            drop(history);
            memory.add();
        }
        let used = stage.check_conservation(&mut tally, made);
        let Stage { scenario: Scenario { name, .. }, limiter, .. } = &*stage;
        tally.check(limiter.stats(), name);
        let (Tally { granted, refused, .. }, left) = (tally, limiter.stats().given_up);
        println!("{name}: {rounds} rounds, {granted} granted, {refused} refused, {left} left");
        let memory = memory.check();
        println!("    longest round {longest:?}, at most {memory:?} bytes in use after one");
        if let Some(needed) = needed {
            println!("    slack needed by law 1: {}", Micros(needed));
        }
        if let Some(used) = used {
            println!("    {used}");
        }
    }
}

/// Nanoseconds, shown as microseconds.
struct Micros(i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03} us", nanos / 1000, nanos % 1000)
    }
}

impl<P: Policy> Stage<P> {
    /// Callers come, call and end; then counts and places are compared. Returns all counts so far,
    /// and the grants of this round.
    fn round(
        self: &Arc<Self>,
        mut tally: Tally,
        span: Duration,
        chance: &mut Random,
    ) -> (Tally, Vec<Charged>) {
        let threads = if chance.below(4) == 0 { CROWD } else { 2 + chance.below(4) };
        let tasks = chance.below(6);
        // Without a queue there is nothing for a task to do.
        let tasks = if self.waits() { tasks } else { 0 };
        let mut seeds = |many: u64| (0..many).map(|_| chance.next()).collect::<Vec<_>>();
        let (threads, tasks) = (seeds(threads), seeds(tasks));
        let stage = Arc::clone(self);
        let results = finishes(move || stage.call(threads, tasks, span));
        let mut history = Vec::new();
        for (own, mut charged) in results {
            tally += own;
            history.append(&mut charged);
        }
        tally += std::mem::take(&mut *self.late.lock().unwrap_or_else(PoisonError::into_inner));
        let name = self.scenario.name;
        assert_eq!(self.limiter.queue_len(), 0, "{name}");
        tally.check(self.limiter.stats(), name);
        if let Some(places) = &self.scenario.places {
            assert_eq!(places.held(), 0, "{name}");
            self.reset();
            // A pause may still have to end.
            until(|| (places.part)(self.limiter.available()) == places.max);
        }
        (tally, history)
    }

    fn waits(&self) -> bool {
        self.scenario.verbs.iter().any(|&(verb, _)| verb == Verb::Wait)
    }

    fn reset(&self) {
        if let Some(change) = self.scenario.change {
            change(&self.limiter, 0);
        }
    }

    fn call(
        self: &Arc<Self>,
        threads: Vec<u64>,
        tasks: Vec<u64>,
        span: Duration,
    ) -> Vec<(Tally, Vec<Charged>)> {
        let end = Instant::now() + span;
        let caller = |seed, blocks| Caller::new(Arc::clone(self), seed, blocks);
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        let tasks: Vec<_> =
            tasks.into_iter().map(|seed| runtime.spawn(caller(seed, false).live(end))).collect();
        let threads: Vec<_> = threads
            .into_iter()
            .map(|seed| {
                let caller = caller(seed, true);
                let stage = Arc::clone(self);
                thread::spawn(move || stage.with_ends(1, || block_on(caller.live(end))))
            })
            .collect();
        let threads = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let tasks = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic"));
        threads.chain(tasks).collect()
    }

    /// Runs something on a thread that is about to end, and then counts in its destructors.
    pub(crate) fn with_ends<R>(&self, n: u32, count: impl FnOnce() -> R) -> R {
        with_ends(&self.limiter, (self.scenario.cost)(n), n, &self.late, count)
    }

    /// The largest slack that was needed. Negative if there was room.
    fn check_laws(&self, history: &[Charged]) -> Option<i64> {
        let Scenario { name, laws, .. } = &self.scenario;
        if history.is_empty() {
            return None;
        }
        let needed = laws.iter().map(|law| law.slack_needed(history)).max()?;
        assert!(needed <= CLOCKS, "{name}: law 1 needs {}: {laws:?}", Micros(needed));
        Some(needed)
    }

    /// Takes all available permits, and compares the total with all permits that came since the
    /// limiter was made.
    fn check_conservation(&self, tally: &mut Tally, made: (i64, i64)) -> Option<String> {
        let interval = self.scenario.conserves?;
        let interval = i128::try_from(interval.as_nanos()).expect("short");
        // One request for all that is stored. A machine on which two calls take longer than an interval
        // would never be refused.
        let before = now();
        let stored = self.limiter.available().permits();
        let n = u32::try_from(stored).unwrap_or(u32::MAX).max(1);
        if self.limiter.try_acquire((self.scenario.cost)(n)).is_ok() {
            tally.granted += 1;
            tally.charged += u64::from(n);
            tally.kept += i64::from(n);
        } else {
            tally.refused += 1;
        }
        let name = self.scenario.name;
        let came = |from: i64, until: i64| i128::from(until - from) / interval;
        let (least, most) = (came(made.1, before), came(made.0, now()));
        let (charged, kept) = (i128::from(tally.charged), i128::from(tally.kept));
        assert!(charged >= least * 99 / 100, "{name}: {charged} of {least} permits");
        let prepaid = i128::from(self.scenario.most) + i128::from(CLOCKS) / interval;
        assert!(kept <= most + prepaid, "{name}: {kept} permits, and only {most} came");
        Some(format!("{charged} permits charged of {least} that came, {kept} of them kept"))
    }
}
