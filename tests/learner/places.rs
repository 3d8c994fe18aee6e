//! Places in flight that are found, before servers with a pool of workers: beside a fixed number and AIMD.

use std::cell::RefCell;
use std::rc::Rc;

use futures::FutureExt;

use crate::clients::{self, Aimd, Client, Fixed};
use crate::random::Random;
use crate::rows::{Misses, seeds};
use crate::server::{Answer, Request};
use crate::world::World;

/// A server, and the callers in a loop before it.
#[derive(Clone, Copy)]
struct Pool {
    workers: fn(f64) -> usize,
    /// How long a call takes, on average if that is random, from a time on.
    takes: fn(f64) -> f64,
    is_random: bool,
    /// The answer to a call for which no worker is free; 200: it waits for one.
    busy: u16,
    /// The share of calls that fail by themselves.
    bad: f64,
    /// One way of the network.
    delay: f64,
    callers: usize,
    /// A caller gives up after this time.
    patience: f64,
    end: f64,
}

const TEN: Pool = Pool {
    workers: |_| 10,
    takes: |_| 0.05,
    is_random: false,
    busy: 200,
    bad: 0.0,
    delay: 0.0005,
    callers: 100,
    patience: f64::INFINITY,
    end: 60.0,
};
const RANDOM: Pool = Pool { is_random: true, ..TEN };
/// Twenty, ten from half a minute on, and twenty again half a minute later.
const CHANGES: Pool =
    Pool { workers: |now| if (30.0..60.0).contains(&now) { 10 } else { 20 }, end: 90.0, ..TEN };

/// Answers: when they arrived, and how long their calls took. Refusals or failures have no time.
#[derive(Default)]
struct Run {
    answers: Vec<(f64, Option<f64>)>,
}

impl Run {
    fn times(&self, from: f64, to: f64) -> Vec<f64> {
        let within = self.answers.iter().filter(|(at, _)| (from..to).contains(at));
        let mut times: Vec<f64> = within.filter_map(|&(_, time)| time).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Good answers a second, and the 99th percentile of their times in milliseconds.
    fn figures(&self, from: f64, to: f64) -> (f64, f64) {
        let times = self.times(from, to);
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
        (times.len() as f64 / (to - from), p99 * 1000.0)
    }

    fn share_refused(&self) -> f64 {
        let refused = self.answers.iter().filter(|(_, time)| time.is_none()).count();
        refused as f64 / self.answers.len() as f64
    }
}

struct Server {
    pool: Pool,
    random: Random,
    /// When each worker is free.
    free: Vec<f64>,
}

impl Server {
    /// The answer to a call that arrives now, and how long it takes.
    fn ask(&mut self, now: f64) -> (u16, f64) {
        if self.random.share() < self.pool.bad {
            return (500, 0.0);
        }
        let workers = (self.pool.workers)(now);
        self.free.resize(self.free.len().max(workers), 0.0);
        let first = self.free[..workers].iter_mut().min_by(|a, b| a.total_cmp(b));
        let free = first.expect("there are workers");
        if *free > now && self.pool.busy != 200 {
            return (self.pool.busy, 0.0);
        }
        let spread = if self.pool.is_random { self.random.gap() } else { 1.0 };
        *free = free.max(now) + (self.pool.takes)(now) * spread;
        (200, *free - now)
    }

    fn travel(&mut self) -> f64 {
        self.pool.delay * self.random.between(0.8, 1.2)
    }
}

fn run(pool: Pool, seed: u64, client: impl FnOnce(&Rc<World>) -> Rc<dyn Client>) -> Run {
    let world = Rc::new(World::default());
    let client = client(&world);
    let server = Server { pool, random: Random::new(seed), free: Vec::new() };
    let (server, outcome) = (Rc::new(RefCell::new(server)), Rc::new(RefCell::new(Run::default())));
    for _ in 0..pool.callers {
        let (world, client) = (Rc::clone(&world), Rc::clone(&client));
        let (server, outcome) = (Rc::clone(&server), Rc::clone(&outcome));
        world.clone().spawn(async move {
            loop {
                let sent = Client::acquire(&*client, &Request::default()).await;
                let began = world.now();
                let travel = server.borrow_mut().travel();
                world.sleep(travel).await;
                let (status, takes) = server.borrow_mut().ask(world.now());
                let rest = takes + server.borrow_mut().travel();
                let patience = (began + pool.patience - world.now()).max(0.0);
                world.sleep(rest.min(patience)).await;
                let is_good = rest <= patience && status == 200;
                if rest <= patience {
                    sent.answered(&Answer { status, fields: Vec::new() });
                } else {
                    drop(sent);
                }
                let time = is_good.then(|| world.now() - began);
                outcome.borrow_mut().answers.push((world.now(), time));
                if !is_good {
                    world.sleep(0.05).await;
                }
            }
        });
    }
    world.run_until(pool.end);
    outcome.take()
}

fn fixed(pool: Pool, seed: u64, n: u32) -> Run {
    run(pool, seed, |world| Rc::new(Fixed::new(world, n)))
}

fn learned(pool: Pool, seed: u64, start: u32) -> Run {
    run(pool, seed, |world| Rc::new(clients::learned(world, start)))
}

/// Of the right number's answers at least this part, and at most this multiple of its p99: as means over the seeds.
fn is_found(
    what: &str,
    pool: Pool,
    start: u32,
    right: u32,
    (from, to): (f64, f64),
    bounds: (f64, f64),
) {
    let mut misses = Misses::default();
    let mut sums = [0.0; 4];
    for seed in seeds(if pool.is_random { 4 } else { 1 }) {
        let ((rate, p99), (best, best_p99)) = (
            learned(pool, seed, start).figures(from, to),
            fixed(pool, seed, right).figures(from, to),
        );
        println!("{what}, seed {seed}: {rate:.1} of {best:.1}, p99 {p99:.0} of {best_p99:.0} ms");
        [rate, best, p99, best_p99].iter().zip(&mut sums).for_each(|(value, sum)| *sum += value);
    }
    misses.at_least(&format!("{what}: answers"), sums[0] / sums[1], bounds.0);
    misses.at_most(&format!("{what}: p99"), sums[2] / sums[3], bounds.1);
}

const WANTED: (f64, f64) = (0.95, 1.2);
const SETTLED: (f64, f64) = (20.0, 60.0);

#[test]
fn a_pool_of_workers_is_found() {
    is_found("ten", TEN, 1, 10, SETTLED, WANTED);
    is_found("ten, random", RANDOM, 10, 10, SETTLED, WANTED);
    let forty = Pool { workers: |_| 40, end: 40.0, ..RANDOM };
    is_found("forty, random", forty, 10, 40, (20.0, 40.0), WANTED);
    // The way takes as long as the work: twice as many are right.
    is_found("far, random", Pool { delay: 0.025, ..RANDOM }, 10, 20, SETTLED, WANTED);
}

/// All callers go at first. Their times are ten times as long, so each look takes longer too: up to a minute in all.
/// Workers that all take as long are free together, so a single place too many takes some calls twice as long: only few calls
/// may meet one. As `./tests/servers/run pool`.
#[test]
fn a_pool_whose_calls_take_equally_long_has_no_tail() {
    for delay in [0.002, 0.003, 0.004] {
        let workers = |now| if now < 60.0 { 20 } else { 10 };
        let pool = Pool { workers, takes: |_| 0.2, delay, end: 100.0, ..TEN };
        is_found("slow, even", pool, 8, 20, (20.0, 60.0), WANTED);
        is_found("slow, even, half", pool, 8, 10, (70.0, 100.0), WANTED);
    }
}

#[test]
fn a_start_that_is_far_too_high_is_found_out() {
    is_found("from 100", RANDOM, 100, 10, (40.0, 60.0), (0.9, 2.0));
}

#[test]
fn a_pool_that_halves_or_doubles_is_found_again_in_ten_seconds() {
    for (what, is_random) in [("even", false), ("random", true)] {
        let pool = Pool { is_random, ..CHANGES };
        is_found(&format!("{what}, half"), pool, 10, 10, (40.0, 60.0), WANTED);
        is_found(&format!("{what}, double"), pool, 10, 20, (70.0, 90.0), WANTED);
    }
}

#[test]
fn a_server_that_refuses_what_it_cannot_begin_is_seldom_asked_for_more() {
    let mut misses = Misses::default();
    for (busy, is_random) in [(429, false), (503, true)] {
        let pool = Pool { busy, is_random, ..TEN };
        let what = format!("{busy}, random {is_random}");
        is_found(&what, pool, 4, 10, SETTLED, WANTED);
        misses.at_most(&what, learned(pool, 1, 4).share_refused(), 0.005);
    }
    let halves = Pool { busy: 429, is_random: true, ..CHANGES };
    is_found("429, half", halves, 10, 10, (40.0, 60.0), WANTED);
    is_found("429, double", halves, 10, 20, (70.0, 90.0), WANTED);
}

/// Three times slower, with as many workers: fewer calls at once would make it no faster.
#[test]
fn a_server_that_is_slow_by_itself_keeps_its_places() {
    for is_random in [false, true] {
        let pool = Pool {
            takes: |now| if (30.0..60.0).contains(&now) { 0.15 } else { 0.05 },
            is_random,
            ..Pool { end: 90.0, ..TEN }
        };
        is_found("slow", pool, 10, 10, (35.0, 60.0), (0.9, 1.3));
        is_found("fast again", pool, 10, 10, (70.0, 90.0), (0.9, 1.3));
    }
}

#[test]
fn calls_that_fail_by_themselves_take_no_places() {
    is_found("one in five", Pool { bad: 0.2, ..RANDOM }, 10, 10, SETTLED, (0.95, 1.25));
}

/// They wait for twice the time that a call takes, so of forty at once none is answered in time; and the server works on
/// what no caller waits for any more until half a minute later.
#[test]
fn callers_that_give_up_are_too_many() {
    is_found("patience", Pool { patience: 0.1, ..TEN }, 40, 10, (45.0, 60.0), WANTED);
}

#[test]
fn an_idle_client_keeps_its_places() {
    let world = Rc::new(World::default());
    let client = Rc::new(clients::learned(&world, 7));
    let sleeper = (Rc::clone(&world), Rc::clone(&client));
    world.spawn(async move {
        let (world, client) = sleeper;
        for _ in 0..1000 {
            let sent = Client::acquire(&*client, &Request::default()).await;
            world.sleep(0.05).await;
            sent.answered(&Answer { status: 200, fields: Vec::new() });
            world.sleep(60.0).await;
        }
    });
    world.run_until(1e6);
    assert_eq!(client.server_state().places, Some(7));
    let calls: Vec<_> = std::iter::from_fn(|| client.try_acquire(1).now_or_never()?.ok()).collect();
    assert_eq!(calls.len(), 7);
}

/// The table of `docs/http.md`: good answers a second, the 99th percentile of their times, and the refused, as means.
#[test]
#[ignore = "prints a table; takes a minute unless optimized"]
fn places_side_by_side() {
    let changes = Pool { is_random: true, ..CHANGES };
    let servers = [
        ("10 workers, 50 ms each", TEN, 10, SETTLED),
        ("the same, 50 ms on average", RANDOM, 10, SETTLED),
        ("the same, a 429 if all are busy", Pool { busy: 429, ..RANDOM }, 10, SETTLED),
        ("20 workers, 10 s after 10 are left", changes, 10, (40.0, 60.0)),
    ];
    println!("| server | `InFlight` of half | right | double | AIMD | `learn_in_flight` |");
    println!("|---|---|---|---|---|---|");
    for (title, pool, right, (from, to)) in servers {
        let cell = |client: &dyn Fn(u64) -> Run| {
            let runs: Vec<Run> = seeds(4).map(client).collect();
            let mean =
                |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            let rate = mean(&|run| run.figures(from, to).0);
            let p99 = mean(&|run| run.figures(from, to).1);
            let refused = match mean(&Run::share_refused) * 100.0 {
                ..0.05 => String::new(),
                refused => format!(", {refused:.1} % refused"),
            };
            format!("{rate:.0}/s, {p99:.0} ms{refused}")
        };
        let cells = [
            cell(&|seed| fixed(pool, seed, right / 2)),
            cell(&|seed| fixed(pool, seed, right)),
            cell(&|seed| fixed(pool, seed, 2 * right)),
            cell(&|seed| run(pool, seed, |world| Rc::new(Aimd::new(world, 4)))),
            cell(&|seed| learned(pool, seed, 4)),
        ];
        println!("| {title} | {} |", cells.join(" | "));
    }
}
