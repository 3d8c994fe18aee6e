//! One run: two processes, the way to Redis, and the callers.

use std::collections::hash_map::DefaultHasher;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use redis::Value;
use tollgate::redis::{Failure, RedisGrant, RedisRateLimiter, Request, Scripted};
use tollgate::{Acquire, Cost, Error, ManualClock};

use crate::explore::State;
use crate::fixed::SEED;
use crate::ledger::{Law, Ledger, returned};
use crate::requests::Form;
use crate::store::{Memory, Redis};
use crate::wire::{Net, Wire, hash_reply, lost, refused};

const PROCESSES: usize = 2;
const DEADLINE: Duration = Duration::from_millis(400);
const LEASE: Duration = Duration::from_secs(1);
/// How long all stands still but the clock and its alarms: longer than a lease, a deadline, and any wait.
const STANDSTILL: Duration = Duration::from_millis(1_300);
/// How far the server's clock is behind.
const BEHIND: Duration = Duration::from_secs(3_600);
/// Longer than all that three callers wait for: after an outage, and where nothing has gone wrong. The second is shorter
/// than a lease, so that no place comes back by the end of one.
const PATIENCE: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(500)];

/// How a caller asks for a permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Call {
    Wait,
    Timed(Duration),
    Try,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// A request is not sent, and the process knows it.
    Refuse,
    /// A request or its reply is lost, or the request arrives later, and the process knows that it is one of these.
    Cut,
    /// The same, and no word of it before the deadline. All others stand still until then.
    Silence,
    /// A caller goes.
    Cancel,
    /// The server loses its data.
    Lose,
    /// A process ends, with all its callers.
    Crash,
    /// Callers, requests and replies stand still for longer than a lease. Alarms go off: a process that is stopped as a
    /// whole is a test of `tests/fleet`.
    Standstill,
}

/// Those that take no time.
pub(crate) const AT_ONCE: [Fault; 5] =
    [Fault::Refuse, Fault::Cut, Fault::Cancel, Fault::Lose, Fault::Crash];

/// Those during which the clock moves.
pub(crate) const SLOW: [Fault; 2] = [Fault::Silence, Fault::Standstill];

/// What is tried.
#[derive(Clone, Debug)]
pub(crate) struct Scenario<P> {
    pub(crate) policy: P,
    pub(crate) law: Law,
    /// Each at a process.
    pub(crate) callers: Vec<(usize, Call)>,
    pub(crate) faults: Vec<Fault>,
    /// The most of them in a run.
    pub(crate) most_faults: u8,
    /// How many times the clock moves before all faults cease.
    pub(crate) ticks: u8,
    /// Callers give back what they got, and at once if they hold places.
    pub(crate) gives_back: bool,
    /// On which the pauses of a process depend.
    pub(crate) seed: u8,
}

impl<P> Scenario<P> {
    /// Without callers, and without what goes wrong.
    pub(crate) fn new(policy: P, law: Law) -> Self {
        let (callers, faults) = (Vec::new(), Vec::new());
        Self { policy, law, callers, faults, most_faults: 0, ticks: 0, gives_back: false, seed: 7 }
    }
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A caller comes.
    Come(usize),
    /// A caller that was woken is polled.
    Poll(usize),
    /// A caller gives its grant back.
    GiveBack(usize),
    /// The server runs the request at this place.
    Execute(usize),
    /// Its reply arrives.
    Reply(usize),
    /// The clock moves to where something is due.
    Tick,
    /// Something goes wrong, to the caller, request or process of this number.
    Wrong(Fault, usize),
}

#[derive(Debug)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

enum Stage<P: Scripted> {
    Away,
    Waiting(Acquire<RedisRateLimiter<P, Wire>>),
    Granted(Option<RedisGrant<P, Wire>>),
    /// It was told that it may have been charged.
    Unsure,
    /// It has left, or its time was over.
    Left,
    Refused,
}

struct Caller<P: Scripted> {
    process: usize,
    call: Call,
    came: Duration,
    flag: Arc<Flag>,
    stage: Stage<P>,
}

struct Process<P: Scripted> {
    limiter: RedisRateLimiter<P, Wire>,
    wire: Wire,
    /// All that it was told, and when.
    told: DefaultHasher,
    is_alive: bool,
    /// The last request that the server has run in order, and until when it counts what the process holds.
    ran: u64,
    counts_until: Duration,
    /// Refunds in requests of which it is unknown whether they were run.
    lost_refunds: usize,
}

pub(crate) struct World<'a, P: Scripted> {
    scenario: &'a Scenario<P>,
    redis: &'a Redis,
    memory: Memory,
    form: Form,
    clock: ManualClock,
    ledger: Ledger,
    processes: Vec<Process<P>>,
    callers: Vec<Caller<P>>,
    faults: u8,
    ticks: u8,
    /// A request was run out of order, the server has lost its data or a lease has ended: more places may be out.
    is_excused: bool,
    /// What has happened. `None`: from here on nothing goes wrong any more.
    happened: Vec<(Duration, Option<Event>)>,
    /// Redis was away for the deadline: what was to be given back meanwhile is not.
    may_drop: bool,
    /// What the server has run, when by its clock, and its answer, if that is to be kept.
    pub(crate) executed: Option<Vec<(Request, Duration, Value)>>,
}

impl<'a, P: Scripted<Cost = u32>> World<'a, P> {
    fn new(scenario: &'a Scenario<P>, redis: &'a Redis) -> Self {
        let clock = ManualClock::new();
        clock.advance(2 * BEHIND);
        let net = Arc::<Mutex<Net>>::default();
        let process = |process| {
            let wire = Wire { process, clock: clock.clone(), net: Arc::clone(&net) };
            let limiter = RedisRateLimiter::builder(scenario.policy.clone(), wire.clone(), "key");
            let limiter = limiter.clock(&clock).deadline(DEADLINE).lease(LEASE);
            Process {
                limiter: limiter.build(),
                wire,
                told: DefaultHasher::new(),
                is_alive: true,
                ran: 0,
                counts_until: Duration::ZERO,
                lost_refunds: 0,
            }
        };
        let caller = |&(process, call)| Caller {
            process,
            call,
            came: Duration::ZERO,
            flag: Arc::new(Flag(AtomicBool::new(false))),
            stage: Stage::Away,
        };
        let mut parameters = Vec::new();
        scenario.policy.write(&mut parameters);
        Self {
            scenario,
            redis,
            memory: Memory::default(),
            form: Form { header: 20 + 8 * parameters.len(), step: 1, width: P::Cost::NUMBERS },
            ledger: Ledger::new(),
            processes: (0..PROCESSES).map(process).collect(),
            callers: scenario.callers.iter().map(caller).collect(),
            clock,
            faults: scenario.most_faults,
            ticks: scenario.ticks,
            is_excused: false,
            happened: Vec::new(),
            may_drop: false,
            executed: None,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.elapsed() - 2 * BEHIND
    }

    fn server_time(&self) -> Duration {
        // A key numbers its charges from the microsecond in which it begins, and a charge takes longer than one.
        let since_loss = Duration::from_millis(u64::from(self.ledger.has_lost()));
        self.clock.elapsed() - BEHIND + since_loss
    }

    fn net(&self) -> std::sync::MutexGuard<'_, Net> {
        self.processes[0].wire.net()
    }

    pub(crate) fn state(&self) -> State {
        let hash = |of: u8| {
            let mut state = DefaultHasher::new();
            (of, self.now(), &self.memory, &self.ledger).hash(&mut state);
            (self.faults, self.ticks, self.is_excused, self.may_drop).hash(&mut state);
            for process in &self.processes {
                (process.told.finish(), process.is_alive).hash(&mut state);
                (process.ran, process.counts_until, process.lost_refunds).hash(&mut state);
            }
            self.net().messages.hash(&mut state);
            u128::from(state.finish())
        };
        hash(0) << 64 | hash(1)
    }

    /// Hands a process an answer, now.
    fn tell(&mut self, process: usize, what: impl Hash) {
        let now = self.now();
        (now, what).hash(&mut self.processes[process].told);
    }

    /// Where the clock may move: where something is due.
    fn next_time(&self) -> Option<Duration> {
        let net = self.net();
        let deadlines = net.messages.iter().filter(|message| message.is_awaited);
        let deadlines = deadlines.map(|message| message.deadline());
        deadlines.chain(self.clock.next_due()).min().map(|time| time.max(self.clock.elapsed()))
    }

    fn has_failed(&self) -> bool {
        self.faults < self.scenario.most_faults
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults > 0 && self.scenario.faults.contains(&fault)
    }

    /// All that can happen next.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (index, caller) in self.callers.iter().enumerate() {
            if !self.processes[caller.process].is_alive {
                continue;
            }
            match &caller.stage {
                Stage::Away => {
                    // Of callers that do the same one comes first.
                    let is_twin = |other: &&Caller<P>| {
                        (other.process, other.call) == (caller.process, caller.call)
                            && matches!(other.stage, Stage::Away)
                    };
                    if !self.callers[..index].iter().any(|other| is_twin(&other)) {
                        events.push(Event::Come(index));
                    }
                }
                Stage::Waiting(_) => {
                    if caller.flag.0.load(Ordering::SeqCst) {
                        events.push(Event::Poll(index));
                    }
                    if self.has(Fault::Cancel) {
                        events.push(Event::Wrong(Fault::Cancel, index));
                    }
                }
                Stage::Granted(Some(_)) => events.push(Event::GiveBack(index)),
                _ => {}
            }
        }
        let alive = (0..PROCESSES).filter(|&index| self.processes[index].is_alive);
        if self.has(Fault::Crash) {
            events.extend(alive.map(|index| Event::Wrong(Fault::Crash, index)));
        }
        for (index, message) in self.net().messages.iter().enumerate() {
            match (&message.reply, message.is_awaited) {
                (None, _) => events.push(Event::Execute(index)),
                (Some(_), _) => events.push(Event::Reply(index)),
            }
            for fault in [Fault::Cut, Fault::Silence] {
                if message.is_awaited && self.has(fault) {
                    events.push(Event::Wrong(fault, index));
                }
            }
            if message.is_awaited && message.reply.is_none() && self.has(Fault::Refuse) {
                events.push(Event::Wrong(Fault::Refuse, index));
            }
        }
        if let Some(next) = self.next_time().filter(|_| self.ticks > 0) {
            if self.late(next).is_empty() {
                events.push(Event::Tick);
            }
        }
        for fault in [Fault::Lose, Fault::Standstill].into_iter().filter(|&it| self.has(it)) {
            events.push(Event::Wrong(fault, 0));
        }
        events
    }

    /// The requests whose reply is late at a time.
    fn late(&self, at: Duration) -> Vec<(usize, u64)> {
        let net = self.net();
        let late = net.messages.iter().filter(|it| it.is_awaited && it.deadline() <= at);
        late.map(|message| (message.process, message.nth)).collect()
    }

    /// What happens next.
    pub(crate) fn act(&mut self, event: Event) {
        self.repeat(event);
        self.check();
    }

    /// The same in a run that was checked before.
    pub(crate) fn repeat(&mut self, event: Event) {
        self.happened.push((self.now(), Some(event)));
        match event {
            Event::Come(index) => self.come(index),
            Event::Poll(index) => self.poll(index),
            Event::GiveBack(index) => self.give_back(index),
            Event::Execute(index) => self.execute(index),
            Event::Reply(index) => self.reply(index),
            Event::Tick => {
                self.ticks -= 1;
                let next = self.next_time().expect("something is due");
                self.tick(next);
            }
            Event::Wrong(fault, index) => {
                self.faults -= 1;
                self.may_drop |= matches!(fault, Fault::Silence | Fault::Standstill);
                self.go_wrong(fault, index);
            }
        }
        self.send();
        self.excuse_lapsed_leases();
    }

    /// The threads that send have nothing left to do, and what they do next is on its way.
    fn send(&mut self) {
        for process in self.processes.iter().filter(|process| process.is_alive) {
            process.wire.go_on();
        }
    }

    fn go_wrong(&mut self, fault: Fault, index: usize) {
        match fault {
            Fault::Refuse => {
                let message = self.net().messages.remove(index);
                self.fail((message.process, message.nth), "refused", refused());
            }
            Fault::Cut => {
                let message = self.net().messages[index].clone();
                self.fail((message.process, message.nth), "cut", lost());
            }
            Fault::Cancel => {
                let process = self.callers[index].process;
                self.tell(process, ("cancel", index));
                self.callers[index].stage = Stage::Left;
            }
            Fault::Lose => {
                self.memory.lose();
                self.ledger.begin_again();
                self.is_excused = true;
            }
            Fault::Crash => {
                self.tell(index, "crash");
                self.processes[index].is_alive = false;
                for message in &mut self.net().messages {
                    message.is_awaited &= message.process != index;
                }
            }
            Fault::Standstill => self.clock.advance(STANDSTILL),
            Fault::Silence => {
                let deadline = self.net().messages[index].deadline();
                self.tick(deadline.max(self.clock.elapsed()));
            }
        }
    }

    fn come(&mut self, index: usize) {
        let now = self.now();
        let caller = &mut self.callers[index];
        let limiter = &self.processes[caller.process].limiter;
        caller.came = now;
        caller.stage = Stage::Waiting(match caller.call {
            Call::Wait => limiter.acquire(1),
            Call::Timed(time) => limiter.try_acquire_timeout(1, time),
            Call::Try => limiter.try_acquire(1),
        });
        self.poll(index);
    }

    fn poll(&mut self, index: usize) {
        let process = self.callers[index].process;
        self.tell(process, ("poll", index));
        let (now, has_failed) = (self.now(), self.has_failed());
        let caller = &mut self.callers[index];
        caller.flag.0.store(false, Ordering::SeqCst);
        let Stage::Waiting(acquire) = &mut caller.stage else { unreachable!("it waits") };
        let waker = Waker::from(Arc::clone(&caller.flag));
        let Poll::Ready(outcome) = Pin::new(acquire).poll(&mut Context::from_waker(&waker)) else {
            return;
        };
        let is_over = match caller.call {
            Call::Wait => false,
            Call::Timed(time) => caller.came + time <= now,
            Call::Try => true,
        };
        caller.stage = match outcome {
            Ok(grant) => {
                assert!(grant.is_shared(), "granted without Redis");
                assert!(caller.came + grant.waited() <= now, "granted before it is due");
                Stage::Granted(self.scenario.gives_back.then_some(grant))
            }
            Err(Error::Denied { .. }) => {
                assert!(caller.call != Call::Wait, "denied a caller that waits for ever");
                Stage::Left
            }
            Err(Error::Store(error)) => {
                assert!(error.is_unavailable(), "{error}");
                assert!(has_failed, "{error} without a fault");
                match (error.may_have_charged(), is_over) {
                    (true, _) => Stage::Unsure,
                    (false, true) => Stage::Left,
                    (false, false) => Stage::Refused,
                }
            }
            Err(error) => panic!("{error}"),
        };
    }

    fn give_back(&mut self, index: usize) {
        let process = self.callers[index].process;
        self.tell(process, ("give back", index));
        if let Stage::Granted(grant) = &mut self.callers[index].stage {
            match self.scenario.law {
                // A place comes back when its grant is dropped.
                Law::Places { .. } => drop(grant.take()),
                _ => grant.take().expect("it is held").refund(),
            }
        }
    }

    fn execute(&mut self, index: usize) {
        let message = self.net().messages[index].clone();
        let (process, request, now) = (message.process, &message.request, self.server_time());
        let value = self.redis.run(&mut self.memory, now, request);
        if let Some(executed) = &mut self.executed {
            executed.push((request.clone(), now, value.clone()));
        }
        let booked = self.ledger.note(self.form, (process, request), (now, &value));
        let renewed = self.now() + LEASE;
        let sender = &mut self.processes[process];
        if message.nth > sender.ran {
            sender.ran = message.nth;
            sender.counts_until = renewed;
        } else {
            // What it says of the places that its process holds was true before.
            self.is_excused = true;
        }
        if !message.is_awaited {
            sender.lost_refunds -= returned(self.form, request).len();
            self.net().messages.remove(index);
        } else {
            self.net().messages[index].reply = Some((value, booked));
        }
    }

    fn reply(&mut self, index: usize) {
        let message = self.net().messages.remove(index);
        let (value, booked) = message.reply.expect("it was run");
        // Places whose lease has ended meanwhile are not granted.
        let is_place = matches!(self.scenario.law, Law::Places { .. });
        let is_over = is_place && self.processes[message.process].counts_until <= self.now();
        for booked in booked {
            let charge = &mut self.ledger.charges[booked];
            (charge.is_heard, charge.is_returned) = (!is_over, charge.is_returned || is_over);
        }
        let mut hasher = DefaultHasher::new();
        hash_reply(&value, &mut hasher);
        self.tell(message.process, ("reply", message.nth, hasher.finish()));
        self.end_request((message.process, message.nth), Ok(value));
    }

    fn end_request(&self, (process, nth): (usize, u64), outcome: Result<Value, Failure>) {
        self.processes[process].wire.end(nth, outcome);
    }

    /// A request ends without a reply.
    fn fail(&mut self, (process, nth): (usize, u64), why: &str, failure: Failure) {
        let mut net = self.net();
        let of = |it: &crate::wire::Message| (it.process, it.nth) == (process, nth);
        let mut lost_refunds = 0;
        if let Some(index) = net.messages.iter().position(of) {
            net.messages[index].is_awaited = false;
            // It may still arrive, unless it was run.
            if net.messages[index].reply.is_some() {
                net.messages.remove(index);
            } else {
                lost_refunds = returned(self.form, &net.messages[index].request).len();
            }
        }
        drop(net);
        self.processes[process].lost_refunds += lost_refunds;
        self.tell(process, (why, nth));
        self.end_request((process, nth), Err(failure));
    }

    fn tick(&mut self, next: Duration) {
        self.clock.advance(next - self.clock.elapsed());
        for (process, nth) in self.late(next) {
            self.fail((process, nth), "late", lost());
        }
    }

    /// What holds at any time.
    fn check(&self) {
        let now = self.now();
        self.ledger.check(self.scenario.law);
        for index in 0..PROCESSES {
            let due = self.ledger.kept(index, true, self.server_time());
            let used = self.used(index);
            assert!(used <= due, "{used} granted in process {index}, {due} charged and due");
        }
        let Law::Places { most } = self.scenario.law else { return };
        // Nothing renews the lease of a process that has ended.
        let counts = |it: &&Caller<P>| {
            matches!(it.stage, Stage::Granted(Some(_)))
                && now < self.processes[it.process].counts_until
        };
        let out = self.callers.iter().filter(counts).count();
        assert!(out <= most || self.is_excused, "{out} places are out");
    }

    /// A process that holds a place, or has one for a caller that is yet to take it, and whose requests do not arrive,
    /// holds it for longer than the server counts it.
    fn excuse_lapsed_leases(&mut self) {
        if !matches!(self.scenario.law, Law::Places { .. }) {
            return;
        }
        for index in 0..PROCESSES {
            let process = &self.processes[index];
            let returned =
                |it: &&Caller<P>| it.process == index && matches!(it.stage, Stage::Granted(None));
            let returned = self.callers.iter().filter(returned).count();
            self.is_excused |= process.is_alive
                && process.counts_until <= self.now()
                && self.ledger.kept(index, true, Duration::MAX) > returned;
        }
    }

    /// How many grants the callers of a process have got and not given back; of places, all that they have got.
    fn used(&self, process: usize) -> usize {
        let is_place = matches!(self.scenario.law, Law::Places { .. });
        let is_used = |stage: &Stage<P>| match stage {
            Stage::Granted(grant) => is_place || grant.is_some() || !self.scenario.gives_back,
            _ => false,
        };
        self.callers.iter().filter(|it| it.process == process && is_used(&it.stage)).count()
    }

    /// What a world without faults does next. `None`: nothing is left but to wait.
    fn next_calmly(&self) -> Option<Event> {
        if let Some(message) = self.net().messages.first() {
            return Some(if message.reply.is_none() { Event::Execute(0) } else { Event::Reply(0) });
        }
        self.callers.iter().enumerate().find_map(|(index, caller)| match caller.stage {
            _ if !self.processes[caller.process].is_alive => None,
            Stage::Waiting(_) if caller.flag.0.load(Ordering::SeqCst) => Some(Event::Poll(index)),
            Stage::Granted(Some(_)) => Some(Event::GiveBack(index)),
            _ => None,
        })
    }

    fn settle(&mut self) {
        for _ in 0..1_000 {
            let Some(event) = self.next_calmly() else { return };
            self.act(event);
        }
        panic!("it has no end");
    }

    fn is_answered(&self, caller: &Caller<P>) -> bool {
        !self.processes[caller.process].is_alive || !matches!(caller.stage, Stage::Waiting(_))
    }

    /// Whether the search has to [calm this state down](Self::calm_down). Otherwise the first step of that is one of the
    /// steps that the search tries, so that it is enough to calm down what follows.
    pub(crate) fn is_calmed_down_here(&self) -> bool {
        self.next_calmly().is_none()
            || self.net().messages.iter().any(|message| !message.is_awaited)
            || self.callers.iter().all(|caller| self.is_answered(caller))
    }

    /// Time passes until `is_over` says so.
    fn wait_until(&mut self, what: &str, mut is_over: impl FnMut(&mut Self) -> bool) {
        let until = self.clock.elapsed() + PATIENCE[usize::from(!self.has_failed())];
        loop {
            if is_over(self) {
                return;
            }
            self.settle();
            if is_over(self) {
                return;
            }
            self.go_on(what, until);
        }
    }

    /// The clock moves to where something is due, and not beyond `until`.
    fn go_on(&mut self, what: &str, until: Duration) {
        let next = self.next_time().filter(|&next| next <= until);
        let Some(next) = next else {
            let limiters = self.processes.iter().map(|process| &process.limiter);
            let limiters: Vec<_> = limiters.map(|it| (it.state(), it.counters())).collect();
            let due = self.clock.next_due().map(|due| due - 2 * BEHIND);
            panic!("{what} hangs at {:?}, the next alarm is at {due:?}: {limiters:?}", self.now());
        };
        self.pass(next);
    }

    fn pass(&mut self, next: Duration) {
        self.tick(next);
        self.send();
        self.excuse_lapsed_leases();
        self.check();
    }

    /// Makes a call that may find Redis away, after a fault, until it finds it again.
    fn insist(&mut self, what: &str, call: impl AsyncFn() -> Result<(), Error>) {
        for _ in 0..20 {
            let Err(error) = self.ask(what, call()) else { return };
            assert!(self.has_failed(), "{error} without a fault");
            self.settle();
            if let Some(next) = self.next_time() {
                self.pass(next);
            }
        }
        panic!("{what} does not find Redis again");
    }

    /// The outcome of a call at a limiter.
    fn ask<T>(&mut self, what: &str, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let mut outcome = None;
        self.wait_until(what, |world| {
            let poll = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(ready) = poll {
                outcome = Some(ready);
            }
            world.send();
            outcome.is_some()
        });
        outcome.expect("it is over")
    }

    /// No fault any more: each caller gets an answer, and the accounts are right.
    pub(crate) fn calm_down(&mut self) {
        self.happened.push((self.now(), None));
        self.net().messages.retain(|message| message.is_awaited);
        self.wait_until("a caller", |world| {
            world.callers.iter().all(|caller| world.is_answered(caller))
        });
        for index in 0..PROCESSES {
            if !self.processes[index].is_alive {
                continue;
            }
            let limiter = self.processes[index].limiter.clone();
            // After an outage the first call may still find Redis away.
            self.insist("a flush", async || limiter.flush().await);
            assert_eq!(limiter.queue_len(), 0);
            self.check_accounts(index);
        }
    }

    /// What a process was charged was granted or given back, or is lost: once for each caller that knows of it.
    fn check_accounts(&self, index: usize) {
        if self.ledger.has_lost() {
            return;
        }
        let process = &self.processes[index];
        let of = |stage: fn(&Stage<P>) -> bool| {
            self.callers.iter().filter(|it| it.process == index && stage(&it.stage)).count()
        };
        let heard = self.ledger.kept(index, true, Duration::MAX);
        let unheard = self.ledger.kept(index, false, Duration::MAX);
        let used = self.used(index);
        if !matches!(self.scenario.law, Law::Places { .. }) {
            let lost = process.lost_refunds;
            let is_whole = heard == used + lost || self.may_drop && heard > used;
            assert!(is_whole, "{heard} charged to process {index}, {used} granted, {lost} lost");
        }
        let (unsure, left) =
            (of(|it| matches!(it, Stage::Unsure)), of(|it| matches!(it, Stage::Left)));
        assert!(
            unheard <= unsure + left,
            "{unheard} lost by process {index}, where {unsure} were told so and {left} left"
        );
    }

    /// The run is over: nothing of it stays in memory.
    fn end(mut self) {
        self.callers.clear();
        self.processes[0].wire.close();
        self.clock.advance(Duration::from_secs(1));
    }
}

/// A run that fails says what has happened.
impl<P: Scripted> Drop for World<'_, P> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("This fails:");
            for (time, event) in &self.happened {
                let event =
                    event.map_or("all faults cease".to_owned(), |event| format!("{event:?}"));
                eprintln!("{time:?} {event}");
            }
        }
    }
}

/// A run of a world, on a thread that draws the random numbers of the scenario.
pub(crate) fn begin<P: Scripted<Cost = u32>, R: Send>(
    scenario: &Scenario<P>,
    redis: &Redis,
    run: impl FnOnce(&mut World<'_, P>) -> R + Send,
) -> R {
    let run = || {
        SEED.set(scenario.seed);
        let mut world = World::new(scenario, redis);
        let result = run(&mut world);
        world.end();
        result
    };
    let end = thread::scope(|scope| scope.spawn(run).join());
    end.unwrap_or_else(|panic| resume_unwind(panic))
}
