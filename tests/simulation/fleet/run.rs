//! One run: processes, callers, and the conditions that must hold after any events.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisGrant, RedisRateLimiter, Scripted, Unavailable};
use tollgate::{Acquire, Clock, Cost, Error, Event, ManualClock, Reservation};

use super::manual::{Manual, new_key};
use super::requests::Form;
use super::wire::{Weather, Wire, World, lock, run_tasks};
use crate::random::Random;
use crate::task::{Bell, Woken};

mod checks;

/// The lease of places in flight, if it matters.
const LEASE: Duration = Duration::from_secs(1);

type Limiter<P> = RedisRateLimiter<P, Wire>;
type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// The limits of a policy.
#[derive(Clone)]
pub(crate) struct Rules<P: Scripted> {
    pub(crate) policy: P,
    /// The same at half the rate.
    pub(crate) slower: Option<P>,
    /// In any span at most the rate times the span, and the burst. Calls cost 1 to 5.
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    /// The most places out at once, for policies with places in flight.
    pub(crate) most: Option<u32>,
    /// The cost of a number of permits, and the permits and places of a cost.
    pub(crate) cost: fn(u32) -> P::Cost,
    pub(crate) number: fn(P::Cost) -> [u32; 2],
    /// Whether a refusal names its part.
    pub(crate) parts: bool,
}

enum What<P: Scripted> {
    Acquire(Acquire<RedisRateLimiter<P, Wire>>),
    Reserve(Boxed<Result<Reservation<RedisRateLimiter<P, Wire>>, Error>>),
    Placed(Reservation<RedisRateLimiter<P, Wire>>),
}

struct Caller<P: Scripted> {
    line: usize,
    cost: u32,
    patience: Option<Duration>,
    ahead: Duration,
    /// Its position in its queue, and when it joined.
    entered: Option<(usize, Duration)>,
    bell: Arc<Bell>,
    what: What<P>,
}

#[derive(Clone, Debug)]
struct Granted {
    line: usize,
    order: usize,
    ahead: Duration,
    cost: u32,
    due: Duration,
    /// The permits not given back.
    kept: u32,
}

/// The outcomes of the calls of a queue.
#[derive(Clone, Debug, Default)]
struct Tally {
    entered: u64,
    granted: u64,
    refused: u64,
    given_up: u64,
    untaken: u64,
    taken: u64,
    given_back: u64,
    /// The calls with `may_have_charged`, and their permits.
    unknown: u64,
    unknown_cost: u64,
    /// The permits of callers that left or timed out, perhaps during a request for them.
    left_cost: u64,
}

/// The kinds of events in a run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)]
struct Kinds {
    leave: bool,
    patience: bool,
    refund: bool,
    change: bool,
    pause: bool,
    outages: bool,
    /// Now and then the key is lost, the server's clock steps, or a process is stopped.
    loses: bool,
    steps: bool,
    sleeps: bool,
    /// Every other process has another policy in its code.
    disagree: bool,
    /// Callers enter ahead of others.
    ahead: bool,
    costs: u64,
    crowd: u64,
    pace: Duration,
}

pub(crate) struct Run<P: Scripted> {
    chance: Random,
    kinds: Kinds,
    rules: Rules<P>,
    clock: ManualClock,
    server: Manual,
    world: Arc<Mutex<World>>,
    limiters: Vec<Limiter<P>>,
    keys: Vec<String>,
    events: Vec<Arc<Mutex<Vec<Event>>>>,
    fails: bool,
    calm: bool,
    sets_policy: bool,
    local: bool,
    weather: Weather,
    out_until: Duration,
    sleep_until: Duration,
    /// A connection that no process uses.
    wire: Wire,
    /// The number of times that the key was lost or the server's clock set ahead.
    mishaps: Vec<u32>,
    /// Until when more places than the maximum may be out, and how many.
    excused: Vec<Duration>,
    allowed: Vec<u32>,
    callers: Vec<Caller<P>>,
    woken: Arc<Woken>,
    changes: Vec<(Boxed<()>, Arc<Bell>)>,
    grants: Vec<(usize, usize, RedisGrant<P, Wire>)>,
    granted: Vec<Granted>,
    tallies: Vec<Tally>,
    orders: usize,
}

impl<P: Scripted + Debug> Run<P> {
    pub(crate) fn new(rules: Rules<P>, seed: u64) -> Self {
        let mut chance = Random(seed);
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(7_200));
        let ms = Duration::from_millis;
        let pick = |chance: &mut Random| chance.below(2) == 0;
        let processes = 1 + usize::try_from(chance.below(4)).expect("few");
        let keys: Vec<_> = (0..1 + chance.below(2)).map(|_| new_key()).collect();
        let weather = Weather {
            slow: chance.one_of(&[ms(0), ms(2), ms(30), ms(300)]),
            faults: chance.one_of(&[0, 0, 20, 200]),
            ends: chance.one_of(&[0, 0, 0, 5]),
            is_out: false,
            late: pick(&mut chance),
        };
        let is_crowd = chance.below(24) == 0;
        let crowd = chance.one_of(if is_crowd { &[1_500] } else { &[3, 10, 40] });
        let kinds = Kinds {
            leave: pick(&mut chance),
            patience: pick(&mut chance),
            refund: pick(&mut chance),
            change: chance.below(4) == 0,
            pause: chance.below(4) == 0,
            outages: chance.below(3) == 0,
            costs: chance.one_of(&[1, 1, 2, 5]),
            crowd,
            pace: chance.one_of(&[ms(2), ms(50), ms(500)]),
            loses: chance.below(5) == 0,
            steps: chance.below(5) == 0,
            sleeps: chance.below(5) == 0,
            disagree: chance.below(5) == 0 && rules.slower.is_some(),
            ahead: seed.is_multiple_of(3),
        };
        let form = Form { step: 1 + usize::from(rules.parts), width: P::Cost::NUMBERS };
        let lines = processes * keys.len();
        let world = Arc::new(Mutex::new(World {
            chance: Random(seed ^ 0xabcd),
            weather: weather.clone(),
            keys: keys.clone(),
            tasks: Vec::new(),
            asleep: None,
            late: Vec::new(),
            paused: vec![Duration::ZERO; keys.len()],
            times: Vec::new(),
            charged: Vec::new(),
            given_back: vec![0; lines],
            unknown: vec![0; lines],
            longest: Duration::ZERO,
        }));
        let server = Manual::new(&clock);
        server.set_back(Duration::from_secs(3_600));
        let horizon = chance.one_of(&[ms(0), ms(20), ms(250), ms(250)]);
        let unavailable = chance.below(6);
        let max_waiters = chance.one_of(&[3, usize::MAX, usize::MAX]);
        // Only a process that renews in time keeps the places that it holds.
        let is_heard = weather.faults + weather.ends == 0
            && !kinds.outages
            && weather.slow <= ms(30)
            && kinds.pace <= ms(50);
        let lasts = if is_heard || weather.late { LEASE } else { Duration::from_secs(1 << 30) };
        let excused = if is_heard { Duration::ZERO } else { Duration::MAX };
        let excused =
            if kinds.loses || kinds.steps || weather.late { excused } else { Duration::ZERO };
        let wire = |process| Wire {
            process,
            clock: clock.clone(),
            server: server.clone(),
            world: Arc::clone(&world),
            form,
        };
        let mut limiters = Vec::new();
        let mut events = Vec::new();
        for process in 0..processes {
            let policy = rules.slower.as_ref().filter(|_| kinds.disagree && process % 2 == 1);
            let policy = policy.unwrap_or(&rules.policy).clone();
            let heard = Arc::new(Mutex::new(Vec::new()));
            events.push(Arc::clone(&heard));
            let limiter = RedisRateLimiter::builder(policy, wire(process), &*keys[0])
                .clock(&clock)
                .horizon(horizon)
                .lease(lasts)
                .max_waiters(max_waiters)
                .unavailable(match unavailable {
                    0 => Unavailable::Allow,
                    1 => Unavailable::Local(rules.policy.clone()),
                    _ => Unavailable::Fail,
                })
                .on_event(move |event| heard.lock().expect("whole").push(event.clone()))
                .build();
            limiters.extend(keys.iter().map(|key| limiter.at(&**key)));
        }
        let wire = wire(processes);
        let sets_policy = kinds.change || kinds.disagree;
        Self {
            wire,
            sleep_until: Duration::ZERO,
            mishaps: vec![0; keys.len()],
            excused: vec![excused; keys.len()],
            allowed: vec![rules.most.unwrap_or_default(); keys.len()],
            chance,
            kinds,
            rules,
            clock,
            server,
            world,
            limiters,
            keys,
            events,
            fails: unavailable > 1,
            sets_policy,
            calm: false,
            local: unavailable == 1,
            weather,
            out_until: Duration::ZERO,
            callers: Vec::new(),
            woken: Arc::default(),
            changes: Vec::new(),
            grants: Vec::new(),
            granted: Vec::new(),
            tallies: vec![Tally::default(); lines],
            orders: 0,
        }
    }

    /// After the last operation.
    pub(crate) fn end(mut self) {
        self.calm_down();
        self.check();
    }

    fn bell(&self) -> Arc<Bell> {
        Bell::new(0, &self.woken, &Clock::from(&self.clock))
    }

    fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    fn any(&mut self, of: usize) -> Option<usize> {
        (of > 0).then(|| usize::try_from(self.chance.below(of as u64)).expect("an index"))
    }

    /// An operation is the seed of what happens in it.
    pub(crate) fn take(&mut self, op: u64) {
        self.chance = Random(op);
        match self.chance.below(20) {
            0..4 => {
                let crowd = if self.kinds.crowd > 1_000 { 30 } else { 1 };
                (0..crowd).for_each(|_| self.come());
            }
            4..7 => {
                if let Some(caller) = self.any(self.callers.len()) {
                    self.poll(caller);
                }
            }
            7 if self.kinds.leave => {
                if let Some(caller) = self.any(self.callers.len()) {
                    self.leave(caller);
                }
            }
            8 if self.kinds.refund || self.rules.most.is_some() => self.give_back(),
            9 if self.kinds.pause && self.chance.below(10) == 0 => {
                let limiter = self.a_limiter();
                let pause = self.chance.up_to(Duration::from_secs(2));
                self.change(async move { limiter.pause_for(pause).await });
            }
            9 if self.kinds.change && self.chance.below(5) == 0 => {
                let limiter = self.a_limiter();
                let policies = [Some(&self.rules.policy), self.rules.slower.as_ref()];
                let policy = self.chance.one_of(&policies).unwrap_or(&self.rules.policy).clone();
                self.change(async move { limiter.set_policy(policy).await });
            }
            10 if self.chance.below(20) == 0 => {
                let limiter = self.a_limiter();
                self.change(async move { limiter.quota().await.map(drop) });
            }
            11 if self.kinds.outages && self.chance.below(20) == 0 => {
                self.out_until = self.now() + self.chance.up_to(Duration::from_secs(4));
                lock(&self.world).weather.is_out = true;
            }
            12 if self.weather.ends > 0 && self.chance.below(50) == 0 => {
                let running = lock(&self.world).tasks.len();
                let task = self.any(running).map(|task| lock(&self.world).tasks.remove(task));
                drop(task);
            }
            13 => match self.chance.below(60) {
                0 if self.kinds.loses => {
                    let key = self.any(self.keys.len()).expect("there are some");
                    self.server.lose(&self.keys[key]);
                    lock(&self.world).paused[key] = Duration::ZERO;
                    self.mishap(key);
                }
                1 if self.kinds.steps => {
                    let step = self.chance.up_to(Duration::from_secs(10));
                    self.server.set_back(self.server.server_time().saturating_sub(step));
                }
                2 if self.kinds.steps => {
                    let step = self.chance.up_to(Duration::from_secs(10));
                    self.server.set_back(self.server.server_time() + step);
                    for paused in &mut lock(&self.world).paused {
                        *paused = paused.saturating_sub(step);
                    }
                    (0..self.keys.len()).for_each(|key| self.mishap(key));
                }
                3 if self.kinds.sleeps => {
                    self.sleep_until = self.now() + self.chance.up_to(4 * LEASE);
                    lock(&self.world).asleep = self.any(self.limiters.len() / self.keys.len());
                    (0..self.keys.len()).for_each(|key| self.excuse(key, self.sleep_until));
                }
                4..7 => {
                    let limiter = self.a_limiter();
                    self.change(async move { limiter.flush().await });
                }
                _ => run_tasks(&self.world),
            },
            14..18 => {
                let by = self.chance.up_to(self.kinds.pace);
                self.advance(by);
            }
            _ => self.poll_woken(),
        }
        let Some(most) = self.rules.most else { return };
        for key in 0..self.keys.len() {
            let is_excused = self.now() < self.excused[key];
            if !is_excused && self.allowed[key] == u32::MAX {
                // A waiter that was granted a place and not polled has it.
                run_tasks(&self.world);
                self.poll_woken();
            }
            let held = self.grants.iter().filter(|(line, ..)| line % self.keys.len() == key);
            let held: u32 = held.map(|(_, _, grant)| (self.rules.number)(grant.cost())[1]).sum();
            let allowed = self.allowed[key];
            assert!(held <= allowed || is_excused || !self.fails, "{held} are out, not {allowed}");
            self.allowed[key] = if is_excused { u32::MAX } else { allowed.min(held).max(most) };
        }
    }

    /// The state of the key is wrong, so more is granted, once.
    fn mishap(&mut self, key: usize) {
        self.mishaps[key] += 1;
        self.excuse(key, self.now());
    }

    /// A holder of places renews them after a third of a lease.
    fn excuse(&mut self, key: usize, since: Duration) {
        self.excused[key] = self.excused[key].max(since + LEASE);
        self.allowed[key] = u32::MAX;
    }

    fn a_limiter(&mut self) -> Limiter<P> {
        let line = self.any(self.limiters.len()).expect("there are some");
        self.limiters[line].clone()
    }

    fn change(&mut self, change: impl Future<Output = Result<(), Error>> + 'static) {
        let calm = self.calm;
        let change = change.map(move |done| match done {
            Ok(()) => {}
            Err(Error::Store(error)) if error.is_unavailable() && !calm => {}
            Err(error) => panic!("{error}"),
        });
        let bell = self.bell();
        bell.wake_by_ref();
        self.changes.push((Box::pin(change), bell));
        self.poll_changes();
    }

    fn poll_changes(&mut self) {
        self.changes.retain_mut(|(change, bell)| {
            bell.rung().is_none() || {
                bell.reset();
                let waker = Waker::from(Arc::clone(bell));
                change.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            }
        });
    }

    fn come(&mut self) {
        if self.callers.len() as u64 >= self.kinds.crowd {
            return;
        }
        let line = self.any(self.limiters.len()).expect("there are some");
        let limiter = self.limiters[line].clone();
        let cost = 1 + u32::try_from(self.chance.below(self.kinds.costs)).expect("small");
        let mut patience = None;
        let price = (self.rules.cost)(cost);
        let ahead = [0, 0, 1, 60].map(Duration::from_secs);
        let ahead = if self.kinds.ahead { self.chance.one_of(&ahead) } else { Duration::ZERO };
        let what = match self.chance.below(6) {
            0 => What::Reserve(Box::pin(limiter.acquire(price).ahead_by(ahead).reserve())),
            1 if self.kinds.patience => {
                patience = Some(Duration::ZERO);
                What::Acquire(limiter.try_acquire(price).ahead_by(ahead))
            }
            2 if self.kinds.patience => {
                let timeout = self.chance.up_to(Duration::from_secs(2));
                patience = Some(timeout);
                What::Acquire(limiter.try_acquire_timeout(price, timeout).ahead_by(ahead))
            }
            _ => What::Acquire(limiter.acquire(price).ahead_by(ahead)),
        };
        let (entered, bell) = (None, self.bell());
        let caller = Caller { line, cost, patience, ahead, entered, bell, what };
        self.callers.push(caller);
        if self.chance.below(4) > 0 {
            self.poll(self.callers.len() - 1);
        }
    }

    fn poll(&mut self, index: usize) {
        let now = self.now();
        let caller = &mut self.callers[index];
        if caller.entered.is_none() {
            caller.entered = Some((self.orders, now));
            self.orders += 1;
            self.tallies[caller.line].entered += 1;
        }
        caller.bell.reset();
        let waker = Waker::from(Arc::clone(&caller.bell));
        let context = &mut Context::from_waker(&waker);
        let over = match &mut caller.what {
            What::Acquire(acquire) => acquire.poll_unpin(context),
            What::Reserve(reserve) => match reserve.as_mut().poll(context) {
                Poll::Ready(Ok(place)) => {
                    caller.bell.wake_by_ref();
                    caller.what = What::Placed(place);
                    return;
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
            What::Placed(_) => {
                let mut caller = self.callers.swap_remove(index);
                let What::Placed(place) = caller.what else { unreachable!() };
                caller.what = What::Acquire(place.wait());
                caller.bell.wake_by_ref();
                self.callers.push(caller);
                return;
            }
        };
        if let Poll::Ready(outcome) = over {
            let caller = self.callers.swap_remove(index);
            self.over(&caller, outcome);
        }
    }

    fn over(&mut self, caller: &Caller<P>, outcome: Result<RedisGrant<P, Wire>, Error>) {
        let (order, entered) = caller.entered.expect("it was polled");
        let tally = &mut self.tallies[caller.line];
        match outcome {
            Ok(grant) if !grant.is_shared() => assert!(!self.fails, "granted without Redis"),
            Ok(grant) => {
                let due = entered + grant.waited();
                assert!(due <= self.clock.elapsed(), "granted before it is due");
                tally.granted += 1;
                tally.taken += u64::from(caller.cost);
                let (line, cost, ahead) = (caller.line, caller.cost, caller.ahead);
                self.granted.push(Granted { line, order, ahead, cost, due, kept: cost });
                self.grants.push((line, self.granted.len() - 1, grant));
            }
            Err(Error::Denied { .. }) => {
                assert!(caller.patience.is_some(), "denied a caller that waits for ever");
                tally.refused += 1;
                tally.left_cost += u64::from(caller.cost);
            }
            Err(Error::Store(error)) => {
                assert!(error.is_unavailable(), "{error}");
                tally.refused += 1;
                let time = caller.patience.filter(|time| !time.is_zero());
                if time.is_some_and(|time| entered + time <= self.clock.elapsed()) {
                    // It timed out; a request for it may have been in flight.
                    tally.left_cost += u64::from(caller.cost);
                } else if error.may_have_charged() {
                    tally.unknown += 1;
                    tally.unknown_cost += u64::from(caller.cost);
                }
            }
            Err(Error::QueueFull { .. }) => {
                tally.refused += 1;
                tally.left_cost += u64::from(caller.cost);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn leave(&mut self, index: usize) {
        let caller = self.callers.swap_remove(index);
        let limiter = self.limiters[caller.line].clone();
        let before = (limiter.queue_len(), limiter.key_stats());
        drop(caller.what);
        let after = (limiter.queue_len(), limiter.key_stats());
        let tally = &mut self.tallies[caller.line];
        if caller.entered.is_none() {
            // A poll may find that a runtime has ended, which also fails other calls.
            let ends = self.weather.ends > 0;
            assert!(
                before == after || ends,
                "a caller that has not joined cannot leave: {before:?}, {after:?}"
            );
            return;
        }
        tally.left_cost += u64::from(caller.cost);
        if after.1.given_up == before.1.given_up {
            // It was refused, and was not polled.
            tally.refused += 1;
        } else {
            tally.given_up += 1;
            tally.untaken += u64::from(after.0 == before.0);
        }
    }

    /// Some grant is dropped, given back or settled.
    fn give_back(&mut self) {
        let Some(index) = self.any(self.grants.len()) else { return };
        let (line, index, mut grant) = self.grants.swap_remove(index);
        let granted = &mut self.granted[index];
        if !self.kinds.refund {
            return;
        }
        match self.chance.below(3) {
            0 => {
                grant.refund();
                granted.kept = 0;
                self.tallies[line].given_back += u64::from(granted.cost);
            }
            1 => {
                let cost = u32::try_from(self.chance.below(7)).expect("small");
                granted.kept = granted.cost.min(cost);
                self.tallies[line].given_back += u64::from(granted.cost.saturating_sub(cost));
                // It may hold more places then than there are.
                self.excuse(line % self.keys.len(), self.clock.elapsed());
                let price = (self.rules.cost)(cost);
                self.change(async move { grant.settle(price).await });
            }
            _ => {}
        }
    }

    fn poll_woken(&mut self) {
        self.poll_changes();
        for index in (0..self.callers.len()).rev() {
            if self
                .callers
                .get(index)
                .is_some_and(|caller| caller.entered.is_some() && caller.bell.rung().is_some())
            {
                self.poll(index);
            }
        }
    }

    /// Time passes. Events on the wires occur at their times, unless the runtime is busy.
    fn advance(&mut self, by: Duration) {
        let end = self.now() + by;
        let is_busy = self.chance.below(10) == 0;
        loop {
            let now = self.now();
            let next = {
                let mut world = lock(&self.world);
                world.times.retain(|&time| time > now);
                world.times.iter().copied().min().filter(|&next| next < end && !is_busy)
            };
            self.clock.advance(next.unwrap_or(end) - now);
            if self.now() >= self.out_until {
                lock(&self.world).weather.is_out = false;
            }
            if self.now() >= self.sleep_until {
                lock(&self.world).asleep = None;
            }
            self.wire.arrive_late(self.now());
            if !is_busy {
                run_tasks(&self.world);
            }
            if next.is_none() {
                return;
            }
        }
    }

    fn observers(&self) -> Vec<RedisRateLimiter<P, Manual>> {
        let observer = |key: &String| {
            RedisRateLimiter::builder(self.rules.policy.clone(), self.server.clone(), &**key)
                .clock(&self.clock)
                .build()
        };
        self.keys.iter().map(observer).collect()
    }

    /// All faults cease, and each caller gets its permits.
    fn calm_down(&mut self) {
        lock(&self.world).weather =
            Weather { slow: Duration::from_millis(2), ..Weather::default() };
        (self.out_until, self.sleep_until) = (Duration::ZERO, Duration::ZERO);
        self.wire.arrive_late(Duration::MAX);
        self.advance(Duration::from_millis(1));
        self.callers.retain(|caller| caller.entered.is_some());
        if self.kinds.disagree {
            self.rest();
            for line in 0..self.keys.len() {
                let limiter = self.limiters[line].clone();
                let policy = self.rules.policy.clone();
                self.change(async move { limiter.set_policy(policy).await });
            }
            self.settle_down();
            self.agree();
            self.poll_woken();
            self.kinds.disagree = false;
        }
        let owed = self.observers().into_iter().map(|observer| {
            let quota = observer.quota().now_or_never().expect("at once").expect("Redis is there");
            quota.reset_after.unwrap_or_default()
        });
        let owed = owed.max().unwrap_or_default();
        let wanted: u32 = self.callers.iter().map(|caller| caller.cost).sum();
        let of_rate = Duration::from_secs_f64(2.0 * f64::from(wanted) / self.rules.rate);
        let each = Duration::from_millis(300) * u32::try_from(self.callers.len()).expect("few");
        let bound = self.now() + owed + of_rate + each + Duration::from_secs(3);
        while !self.callers.is_empty() || !self.changes.is_empty() {
            assert!(
                self.now() < bound,
                "{} of {wanted} permits and {} changes hang",
                self.callers.len(),
                self.changes.len()
            );
            self.poll_woken();
            self.advance(Duration::from_millis(10));
            self.look_after();
            if self.rules.most.is_some() && !self.callers.is_empty() {
                self.grants.clear();
            }
        }
        self.rest();
        self.agree();
        self.grants.clear();
        for limiter in self.limiters.clone() {
            self.change(async move { limiter.flush().await });
        }
        self.settle_down();
        for observer in self.observers().into_iter().filter(|_| self.rules.rate > 1e6) {
            let quota = observer.quota().now_or_never().expect("at once").expect("Redis is there");
            assert_eq!(quota.remaining, quota.limit, "flushed permits are free");
        }
        self.rest();
    }

    /// All requests in flight arrive, and leases end.
    fn rest(&mut self) {
        for _ in 0..1 + u32::from(self.weather.late) {
            for _ in 0..80 {
                self.advance(Duration::from_millis(25));
                self.look_after();
            }
            self.wire.arrive_late(Duration::MAX);
        }
        self.calm = true;
    }

    /// All processes come to the same policy.
    fn agree(&mut self) {
        for round in 0..3 {
            for limiter in self.limiters.clone() {
                self.change(async move { limiter.quota().await.map(drop) });
            }
            self.settle_down();
            // Each follows its own until one is set.
            for line in (0..self.keys.len()).filter(|_| round == 0) {
                let limiter = self.limiters[line].clone();
                self.change(async move { limiter.set_policy(limiter.policy()).await });
            }
            self.settle_down();
        }
        let policy = |limiter: &Limiter<P>| format!("{:?}", limiter.policy());
        for (line, limiter) in self.limiters.iter().enumerate() {
            let first = &self.limiters[line % self.keys.len()];
            assert_eq!(policy(limiter), policy(first), "all agree");
        }
    }

    /// All pending work is done.
    fn settle_down(&mut self) {
        for _ in 0..300 {
            self.poll_woken();
            if self.changes.is_empty() {
                return;
            }
            self.advance(Duration::from_millis(10));
            self.look_after();
        }
        assert!(self.changes.is_empty(), "{} changes hang", self.changes.len());
    }

    /// A queue whose runtime has ended continues at its next use.
    fn look_after(&self) {
        if self.weather.ends > 0 {
            for limiter in &self.limiters {
                let _ = limiter.queue_len();
            }
        }
    }

    fn downs(&self) -> usize {
        let downs = |events: &Arc<Mutex<Vec<Event>>>| {
            let events = events.lock().expect("whole");
            events.iter().filter(|event| matches!(event, Event::Down { .. })).count()
        };
        self.events.iter().map(downs).sum()
    }
}
