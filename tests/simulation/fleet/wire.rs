//! Connections over which requests arrive, and replies come back or are lost, at random.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tollgate::ManualClock;
use tollgate::redis::{Connection, Request, StoreError};

use super::manual::Manual;
use super::requests::{Form, is_mismatch, is_take, number};
use crate::random::Random;

/// A charge of the server to a queue, as the connection has seen it.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    pub(crate) line: usize,
    pub(crate) cost: u32,
    /// By the server's clock.
    pub(crate) due: Duration,
    /// Whether the process has received the reply.
    pub(crate) answered: bool,
    /// How old the answer was when it came.
    pub(crate) late: Duration,
}

/// The probabilities of the faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// The longest time that a request or a reply is on its way.
    pub(crate) slow: Duration,
    /// Faults in a thousand requests.
    pub(crate) faults: u64,
    /// Tasks in a thousand that end too early.
    pub(crate) ends: u64,
    /// Whether nothing is answered.
    pub(crate) is_out: bool,
    /// Whether a failed request may reach the server later.
    pub(crate) late: bool,
}

pub(crate) struct World {
    pub(crate) chance: Random,
    pub(crate) weather: Weather,
    pub(crate) keys: Vec<String>,
    /// By the process that runs them.
    pub(crate) tasks: Vec<(usize, BoxFuture<'static, ()>)>,
    /// The process that is stopped.
    pub(crate) asleep: Option<usize>,
    /// Requests given up by their queues, with the times when they were sent and when they reach
    /// the server.
    pub(crate) late: Vec<(usize, Request, [Duration; 2])>,
    /// When the next event of a request is due.
    pub(crate) times: Vec<Duration>,
    pub(crate) charged: Vec<Charged>,
    /// For each queue, the permits given back by requests that may have been executed.
    pub(crate) given_back: Vec<u64>,
    /// For each queue, the most calls that may have got an error with `may_have_charged`.
    pub(crate) unknown: Vec<u64>,
    /// The longest time that a request was on its way to the server.
    pub(crate) longest: Duration,
    /// Until when each key is paused.
    pub(crate) paused: Vec<Duration>,
}

/// One process's connection.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) process: usize,
    pub(crate) clock: ManualClock,
    pub(crate) server: Manual,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) form: Form,
}

/// The planned outcome of a request.
struct Plan {
    line: usize,
    /// When it reaches the server, if it does.
    there: Option<Duration>,
    back: Duration,
    fails: Option<StoreError>,
}

pub(crate) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    fn plan(&self, request: &Request) -> Plan {
        let world = &mut *lock(&self.world);
        let key = world.keys.iter().position(|key| **key == *request.key);
        let line = self.process * world.keys.len() + key.expect("one of ours");
        let now = self.clock.elapsed();
        let slow = world.weather.slow;
        let there = now + world.chance.up_to(slow);
        let back = there + world.chance.up_to(slow);
        let (mut there, mut back, mut fails) = (Some(there), back, None);
        if world.weather.is_out || world.chance.of_thousand(world.weather.faults) {
            match world.chance.below(5) {
                0 | 1 => (there, fails) = (None, Some(StoreError::refused("chance"))),
                2 if !world.weather.late => {
                    (there, fails) = (None, Some(StoreError::lost("chance")))
                }
                3 => fails = Some(StoreError::lost("chance")),
                // No reply arrives.
                _ => {
                    back = now + request.deadline;
                    fails = Some(StoreError::lost("chance"));
                    there = there.filter(|_| world.chance.below(2) == 0);
                    if world.weather.late {
                        there = there.map(|_| back + world.chance.up_to(4 * request.deadline));
                    }
                }
            }
        }
        if back > now + request.deadline {
            (back, fails) = (now + request.deadline, Some(StoreError::lost("chance")));
            there = there.filter(|&there| there <= back || world.weather.late);
        }
        world.times.extend(there.into_iter().chain([back]));
        Plan { line, there, back, fails }
    }

    /// The outcomes of calls: their costs, and when those that were booked are due.
    fn book(&self, line: usize, request: &Request, reply: &[f64]) -> Vec<Charged> {
        if !is_take(request) {
            return Vec::new();
        }
        let now = self.clock.elapsed();
        // The server knows whole microseconds.
        let server = Duration::from_micros(u64::try_from(now.as_micros()).expect("a time"));
        let booked = self.form.booked(request, reply).into_iter().map(|(cost, wait)| {
            let due = server + Duration::from_micros(wait);
            Charged { line, cost, due, answered: false, late: now }
        });
        booked.collect()
    }

    /// How much a request gives back, and for how long it pauses the key.
    fn changes(&self, request: &Request) -> (u64, Duration) {
        let (mut sum, mut pause) = (0, Duration::ZERO);
        for (what, rest) in self.form.changes(request) {
            if what == b'R' {
                sum += u64::from(number(rest));
            }
            if what == b'P' {
                let micros = f64::from_le_bytes(rest.try_into().expect("eight bytes"));
                pause = pause.max(Duration::from_secs_f64(micros / 1e6));
            }
        }
        (sum, pause)
    }

    /// A request has reached the server: the reply, and the charges.
    fn arrive(&self, line: usize, request: &Request, sent: Duration) -> (Vec<f64>, Range<usize>) {
        let reply = self.server.run(request).now_or_never().expect("it is there");
        let reply = reply.expect("the server is well");
        let charged = self.book(line, request, &reply);
        let world = &mut *lock(&self.world);
        let now = self.clock.elapsed();
        world.longest = world.longest.max(now - sent);
        let paused = &mut world.paused[line % world.keys.len()];
        let is_free = |charged: &Charged| charged.due + Duration::from_micros(2) >= *paused;
        assert!(charged.iter().all(is_free), "paused until {paused:?}, {charged:?}");
        if !is_take(request) && !is_mismatch(&reply) {
            *paused = (*paused).max(now + self.changes(request).1);
        }
        let booked = world.charged.len()..world.charged.len() + charged.len();
        world.charged.extend(charged);
        (reply, booked)
    }

    /// Requests that were given up reach the server.
    pub(crate) fn arrive_late(&self, until: Duration) {
        let mut world = lock(&self.world);
        let (now, later) =
            std::mem::take(&mut world.late).into_iter().partition(|l| l.2[1] <= until);
        world.late = later;
        drop(world);
        let mut now: Vec<_> = now;
        now.sort_by_key(|late: &(usize, Request, [Duration; 2])| late.2[1]);
        for (line, request, [sent, _]) in now {
            self.arrive(line, &request, sent);
        }
    }
}

impl Connection for Wire {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let mut plan = self.plan(request);
        let mut ran = None;
        let sent = self.clock.elapsed();
        poll_fn(|_| {
            let now = self.clock.elapsed();
            if plan.there.is_some_and(|there| there <= now) {
                plan.there = None;
                ran = Some(self.arrive(plan.line, request, sent));
            }
            if now < plan.back {
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        let world = &mut *lock(&self.world);
        if let Some(there) = plan.there {
            world.late.push((plan.line, request.clone(), [sent, there]));
        }
        let is_refused = plan.fails.as_ref().is_some_and(|failure| !failure.may_have_charged());
        let is_mismatch = ran.as_ref().is_some_and(|(reply, _)| is_mismatch(reply));
        if !is_take(request) && !is_refused && !is_mismatch {
            world.given_back[plan.line] += self.changes(request).0;
        }
        // The queue has gone on without it, and reports that it may have charged.
        let is_lost = self.clock.elapsed() - sent >= request.deadline + request.deadline / 8;
        if (is_lost || (plan.fails.is_some() && !is_refused)) && is_take(request) {
            world.unknown[plan.line] += self.form.costs(request).len() as u64;
        }
        if let Some(failure) = plan.fails {
            return Err(failure);
        }
        let (reply, charged) = ran.expect("a request that does not fail has run");
        for charged in &mut world.charged[charged] {
            charged.answered = !is_lost;
            charged.late = self.clock.elapsed().saturating_sub(charged.late);
        }
        Ok(reply)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut world = lock(&self.world);
        let ends = world.weather.ends;
        if world.chance.of_thousand(ends) {
            drop(world);
            drop(task);
        } else {
            world.tasks.push((self.process, task));
        }
    }
}

/// Polls all tasks, more often than any lets others run.
pub(crate) fn run_tasks(world: &Mutex<World>) {
    for _ in 0..4 {
        let mut all = lock(world);
        let (mut tasks, asleep) = (std::mem::take(&mut all.tasks), all.asleep);
        drop(all);
        let context = &mut Context::from_waker(Waker::noop());
        tasks.retain_mut(|(process, task)| {
            asleep == Some(*process) || task.as_mut().poll(context).is_pending()
        });
        let mut world = lock(world);
        tasks.append(&mut world.tasks);
        world.tasks = tasks;
    }
}
