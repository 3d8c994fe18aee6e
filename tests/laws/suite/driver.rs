//! A limiter with a manual clock and callers polled by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::{Clock, Error, Limiter, ManualClock, Nanos, Policy, Quota};

use crate::history::{Granted, History};
use crate::line::Outcome;
use crate::oracle::{Conforms, Setup, Time, nanos, time};
use crate::script::Step;
use crate::subject::{Answer, Permits, Subject, Waiting, at_once, waiting};
use crate::turns::Rank;

/// Counts its wake-ups, and keeps the time and the turn of the first.
struct Bell {
    clock: ManualClock,
    rings: AtomicU32,
    first: AtomicU64,
    turn: AtomicU32,
    turns: Arc<AtomicU32>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if self.rings.fetch_add(1, Ordering::Relaxed) == 0 {
            self.take_turn();
            let now = u64::try_from(time(elapsed(&self.clock))).expect("a time on the clock");
            self.first.store(now, Ordering::Relaxed);
        }
    }
}

impl Bell {
    fn take_turn(&self) {
        self.turn.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The time of limiters, which does not go back.
fn elapsed(clock: &ManualClock) -> Duration {
    Clock::from(clock).now().since(Nanos::ZERO)
}

/// A caller that asked for permits.
pub(crate) struct Caller<'a, C> {
    pub(crate) n: u32,
    /// What its grant was settled to.
    settled: Option<u32>,
    pub(crate) joined: Time,
    pub(crate) rank: Rank,
    /// None once it has completed or was dropped.
    future: Option<Waiting<'a, C>>,
    grant: Option<Box<dyn Permits<C> + 'a>>,
    bell: Arc<Bell>,
    polled: bool,
    pub(crate) outcome: Outcome,
    pub(crate) given_back: bool,
    /// Whether this was refused without waiting.
    pub(crate) refused_at_once: bool,
    /// The turn in which the grant was dropped.
    dropped: Option<u32>,
    /// In force when it was granted.
    version: usize,
    /// When the call was decided, by the clock and not by the grant.
    pub(crate) decided: Option<Time>,
}

/// What a call of a policy costs.
pub(crate) type CostOf<P> = <<P as Conforms>::Policy as Policy>::Cost;

pub(crate) struct Driver<'a, P: Conforms, S: Subject<P::Policy>> {
    pub(crate) subject: &'a S,
    setup: &'a Setup<P>,
    clock: ManualClock,
    turns: Arc<AtomicU32>,
    /// The versions of the policy, each with the turn and the time from which it was in force.
    versions: Vec<(u32, Time, usize)>,
    /// Whether each charge is put on record: see [`Subject::record`].
    records: bool,
    /// How far the clock of a server that decides is behind this one.
    behind: Time,
    /// See [`History::longer`].
    longer: Time,
    /// The end of each pause, and the number of calls decided before it.
    pub(crate) pauses: Vec<(Time, u32)>,
    pub(crate) callers: Vec<Option<Caller<'a, CostOf<P>>>>,
    /// See [`History::debts`].
    debts: Vec<Granted>,
}

/// Runs all steps and hands the callers over, all of them settled as far as they can be.
pub(crate) fn run<P: Conforms, S: Subject<P::Policy>, R>(
    setup: &Setup<P>,
    steps: &[Step],
    judge: impl FnOnce(&Driver<'_, P, S>) -> R,
) -> R {
    run_with(setup, steps, false, judge)
}

/// The same with each charge on record.
pub(crate) fn run_recorded<P: Conforms, S: Subject<P::Policy>, R>(
    setup: &Setup<P>,
    steps: &[Step],
    judge: impl FnOnce(&Driver<'_, P, S>) -> R,
) -> R {
    run_with(setup, steps, true, judge)
}

fn run_with<P: Conforms, S: Subject<P::Policy>, R>(
    setup: &Setup<P>,
    steps: &[Step],
    records: bool,
    judge: impl FnOnce(&Driver<'_, P, S>) -> R,
) -> R {
    let clock = ManualClock::new();
    let subject = S::new(setup.policy(0), &clock);
    let mut driver = Driver { records, ..Driver::new(&subject, setup, clock) };
    for &step in steps {
        driver.take(step);
    }
    driver.poll_all();
    judge(&driver)
}

/// Runs all steps, and lets all callers go. Returns the grants, and the quota: then, and when it says that it is full.
pub(crate) fn run_out<P: Conforms, S: Subject<P::Policy>>(
    setup: &Setup<P>,
    steps: &[Step],
) -> (History, [Quota<CostOf<P>>; 2]) {
    let clock = ManualClock::new();
    let subject = S::new(setup.policy(0), &clock);
    let mut driver = Driver::new(&subject, setup, clock);
    steps.iter().for_each(|&step| driver.take(step));
    driver.poll_all();
    let history = driver.history();
    driver.callers.clear();
    let quota = driver.quota();
    driver.clock.advance(quota.reset_after.unwrap_or_default());
    (history, [quota, driver.quota()])
}

impl<'a, P: Conforms, S: Subject<P::Policy>> Driver<'a, P, S> {
    pub(crate) fn new(subject: &'a S, setup: &'a Setup<P>, clock: ManualClock) -> Self {
        Self {
            subject,
            setup,
            clock,
            turns: Arc::default(),
            versions: vec![(0, 0, 0)],
            records: false,
            behind: 0,
            longer: 0,
            pauses: Vec::new(),
            callers: Vec::new(),
            debts: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        time(elapsed(&self.clock))
    }

    pub(crate) fn outcomes(&self) -> Vec<Option<Outcome>> {
        self.callers.iter().map(|caller| Some(caller.as_ref()?.outcome)).collect()
    }

    /// All callers that arrived.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Caller<'a, CostOf<P>>> {
        self.callers.iter().flatten()
    }

    pub(crate) fn history(&self) -> History {
        let granted = |caller: &Caller<'a, CostOf<P>>| {
            let at = match caller.outcome {
                Outcome::Granted { at } => Some(at),
                // It left with a grant that it had not polled.
                Outcome::Waiting if caller.given_back => caller.decided,
                _ => None,
            };
            let &Caller { dropped, n, version, given_back, .. } = caller;
            let (turn, settled) = (caller.turn(), caller.settled.unwrap_or(n));
            Some(Granted { turn, dropped, at: at?, n, settled, version, given_back })
        };
        let asked = self.all().filter(|caller| caller.n > 0 && caller.decided.is_some());
        let mut all: Vec<_> = asked.filter_map(granted).collect();
        all.sort_by_key(|grant| grant.turn);
        let (versions, longer) = (self.versions.clone(), self.longer);
        let debts = self.debts.clone();
        History { all, debts, versions, longer, slack: 0, resumed: None }
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Arrive { n, timeout, polled, rank } => self.arrive(n, timeout, polled, rank),
            Step::NoArrival => self.callers.push(None),
            Step::Leave(id) => self.leave(id),
            Step::Drop(id) => self.drop_grant(id),
            Step::Advance(span) => self.clock.advance(nanos(span)),
            Step::SetPolicy(index) => {
                let turn = self.turns.load(Ordering::Relaxed);
                self.versions.push((turn, self.now(), index));
                self.subject.set_policy(self.setup.policy(index));
            }
            Step::Pause(span) => {
                let decided = self.turns.load(Ordering::Relaxed);
                self.pauses.push((self.now() + span, decided));
                at_once(self.subject.limiter().pause_for(nanos(span))).expect("room for one key");
            }
            Step::Resume => at_once(self.subject.limiter().resume()).expect("room for one key"),
            Step::Settle(id, n) => self.settle(id, n),
            Step::SetBack(elapsed) => {
                let goes_back = self.subject.set_back(&self.clock, nanos(elapsed));
                let behind = if goes_back { self.now() - elapsed } else { 0 };
                if behind > self.behind {
                    let paused_until = self.pauses.iter().map(|&(end, _)| end).max().unwrap_or(0);
                    self.longer += behind - self.behind + (paused_until - self.now()).max(0);
                }
                self.behind = behind;
            }
            Step::Look(at) => self.look(at),
        }
        self.record_decisions();
        if self.records {
            self.subject.record();
        }
    }

    fn caller(&self, n: u32, rank: Rank) -> Caller<'a, CostOf<P>> {
        let bell = Bell {
            clock: self.clock.clone(),
            rings: AtomicU32::new(0),
            first: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            turns: Arc::clone(&self.turns),
        };
        Caller {
            n,
            settled: None,
            joined: self.now(),
            rank,
            future: None,
            grant: None,
            bell: Arc::new(bell),
            polled: true,
            outcome: Outcome::Waiting,
            given_back: false,
            refused_at_once: false,
            dropped: None,
            version: 0,
            decided: None,
        }
    }

    fn arrive(&mut self, n: u32, timeout: Option<Time>, polled: bool, rank: Rank) {
        let mut caller = self.caller(n, rank);
        let (cost, ahead) = (P::cost(n), nanos(rank.ahead));
        if timeout == Some(0) && polled && ahead.is_zero() && rank.tenant.is_none() {
            // A caller that does not wait needs no future.
            caller.answered(self.subject.try_acquire(cost));
        } else {
            let limiter = self.subject.limiter();
            let call = match timeout {
                None => limiter.acquire(cost),
                Some(timeout) => limiter.try_acquire_timeout(cost, nanos(timeout)),
            };
            let call = match rank.tenant {
                None => call.ahead_by(ahead),
                Some(tenant) => call.for_tenant(&tenant.id).weight(tenant.weight),
            };
            if polled {
                caller.future = Some(waiting(call));
            } else {
                match at_once(call.reserve()) {
                    Ok(place) => {
                        (caller.future, caller.polled) = (Some(waiting(place.wait())), false)
                    }
                    Err(error) => caller.outcome = refused(caller.joined, &error),
                }
            }
        }
        if caller.polled {
            caller.poll(elapsed(&self.clock));
        }
        caller.refused_at_once =
            !matches!(caller.outcome, Outcome::Granted { .. } | Outcome::Waiting);
        self.callers.push(Some(caller));
    }

    fn leave(&mut self, id: usize) {
        let Some(caller) = &mut self.callers[id] else { return };
        if let Some(future) = caller.future.take() {
            let before = self.subject.limiter().stats().given_up;
            drop(future);
            // It may have been woken by a refusal.
            if caller.rings() > 0 && self.subject.limiter().stats().given_up > before {
                // It was granted, so dropping it gave that back.
                caller.given_back = true;
            } else {
                caller.outcome = Outcome::Left;
            }
        } else if let Some(grant) = caller.grant.take() {
            grant.refund();
            caller.given_back = true;
        }
    }

    fn settle(&mut self, id: usize, n: u32) {
        let (at, turn) = (self.now(), self.turns.load(Ordering::Relaxed));
        let &(.., version) = self.versions.last().expect("the first");
        let Some(caller) = &mut self.callers[id] else { return };
        if let (Some(grant), None) = (&mut caller.grant, caller.settled) {
            grant.settle(P::cost(n)).expect("within the horizon");
            caller.settled = Some(n);
            if n > caller.n {
                let (dropped, given_back) = (None, false);
                self.debts.push(Granted {
                    turn,
                    dropped,
                    at,
                    n: 0,
                    settled: 0,
                    version,
                    given_back,
                });
            }
        }
    }

    fn quota(&self) -> Quota<CostOf<P>> {
        at_once(self.subject.limiter().quota()).expect("it answers")
    }

    fn drop_grant(&mut self, id: usize) {
        let now = elapsed(&self.clock);
        let Some(caller) = &mut self.callers[id] else { return };
        caller.poll(now);
        if caller.grant.is_some() {
            // Grants that follow from this have later turns.
            caller.dropped = Some(self.turns.fetch_add(1, Ordering::Relaxed));
            caller.grant = None;
        }
    }

    /// Records the calls that this step decided.
    fn record_decisions(&mut self) {
        let &(.., version) = self.versions.last().expect("the first");
        for caller in self.callers.iter_mut().flatten() {
            let is_over = caller.polled && (caller.future.is_none() || caller.rings() > 0);
            if is_over && caller.decided.is_none() && caller.outcome != Outcome::Left {
                let rung = Time::from(caller.bell.first.load(Ordering::Relaxed));
                caller.decided = Some(if caller.rings() > 0 { rung } else { caller.joined });
                caller.version = version;
                if caller.rings() == 0 {
                    caller.bell.take_turn();
                }
            }
        }
    }

    fn look(&mut self, at: u8) {
        if at & 1 != 0 {
            let _ = self.quota();
        }
        if at & 2 != 0 {
            let _ = self.subject.limiter().queue_len();
        }
        if at & 4 != 0 {
            let _ = self.subject.limiter().stats();
        }
        if at & 8 != 0 {
            let now = elapsed(&self.clock);
            let callers = self.callers.iter_mut().flatten().filter(|caller| caller.polled);
            callers.for_each(|caller| caller.poll(now));
        }
    }

    pub(crate) fn poll_all(&mut self) {
        let now = elapsed(&self.clock);
        self.callers.iter_mut().flatten().for_each(|caller| caller.poll(now));
    }
}

impl<'a, C> Caller<'a, C> {
    pub(crate) fn rings(&self) -> u32 {
        self.bell.rings.load(Ordering::Relaxed)
    }

    /// The position of this call among all calls that were decided.
    pub(crate) fn turn(&self) -> u32 {
        self.bell.turn.load(Ordering::Relaxed)
    }

    fn poll(&mut self, elapsed: Duration) {
        let waker = Waker::from(Arc::clone(&self.bell));
        let Some(future) = &mut self.future else { return };
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => return,
            Poll::Ready(Ok(grant)) => self.accept(grant),
            Poll::Ready(Err(error)) => {
                let rung = Time::from(self.bell.first.load(Ordering::Relaxed));
                let decided = if self.rings() > 0 { rung } else { time(elapsed) };
                self.outcome = refused(decided, &error);
            }
        }
        self.future = None;
    }

    fn answered(&mut self, answer: Answer<'a, C>) {
        match answer {
            Ok(grant) => self.accept(grant),
            Err(error) => self.outcome = refused(self.joined, &error),
        }
    }

    fn accept(&mut self, grant: Box<dyn Permits<C> + 'a>) {
        self.outcome = Outcome::Granted { at: self.joined + time(grant.waited()) };
        self.grant = Some(grant);
    }

    /// Whether this was granted or refused.
    pub(crate) fn is_over(&self) -> bool {
        self.decided.is_some()
    }

    /// Whether this was granted and not given back.
    pub(crate) fn kept(&self) -> Option<Time> {
        match self.outcome {
            Outcome::Granted { at } if !self.given_back => Some(at),
            _ => None,
        }
    }
}

fn refused(decided: Time, error: &Error) -> Outcome {
    let retry_after = error.retry_after().map(time);
    match error {
        Error::Denied { .. } => Outcome::Refused { decided, retry_after },
        Error::QueueFull { .. } => Outcome::QueueFull { decided, retry_after },
        Error::ExceedsCapacity(_) => Outcome::ExceedsCapacity { decided },
        other => panic!("an error of no known kind: {other}"),
    }
}
