//! How evenly is one task paced, and what does that cost?
//!
//! `cargo bench --bench pacing`, a minute; with arguments only the rates named, for example `1000 100000`. One task
//! acquires a permit at a time, 10 to 1,000,000 a second: by the default clock, without timer slack (precise), with
//! 5 ms of it (quiet), and as a peer by tokio's interval. Two more show what the operating system takes: a thread that
//! sleeps until each permit is due (thread), and a task that such a thread wakes (woken), which is the least that a
//! wait without a timer of the runtime takes. The cases run in turns, three times; the medians are printed, as
//! `name=value`. Late is a permit that was acquired after it was due. Processor time is the process's own,
//! so it is only known on Linux.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{MissedTickBehavior, interval_at};
use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

#[path = "support/measure.rs"]
mod measure;

use measure::{Run, cpu_time};

const ROUNDS: usize = 3;
const RATES: [u32; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Permits of a run, in tenths of a second.
const TENTHS: u32 = 7;

type Case<'a> = (&'static str, &'a dyn Fn() -> Run);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let asked: Vec<u32> = std::env::args().skip(1).filter_map(|rate| rate.parse().ok()).collect();
    for rate in RATES.into_iter().filter(|rate| asked.is_empty() || asked.contains(rate)) {
        let by = |clock: Clock| runtime.block_on(spawned(rate, clock));
        let default = || by(Clock::system());
        let precise = || by(Clock::system().timer_slack(Duration::ZERO));
        let quiet = || by(Clock::system().timer_slack(Duration::from_millis(5)));
        let interval = || runtime.block_on(by_interval(rate));
        let woken = || runtime.block_on(by_waker(rate));
        let cases: [Case<'_>; 6] = [
            ("default", &default),
            ("precise", &precise),
            ("quiet", &quiet),
            ("interval", &interval),
            ("thread", &|| by_thread(rate)),
            ("woken", &woken),
        ];
        let mut runs: [Vec<Run>; 6] = Default::default();
        for _ in 0..ROUNDS {
            for (run, (_, case)) in runs.iter_mut().zip(&cases) {
                run.push(case());
            }
        }
        for (runs, (name, _)) in runs.iter().zip(&cases) {
            println!("pacing rate={rate} side={name} {}", measure::medians(runs));
        }
    }
}

/// How many permits, so that a run takes as long at each rate, and ten at least.
fn permits(rate: u32) -> u32 {
    10.max(rate * TENTHS / 10)
}

fn due(rate: u32) -> impl Fn(u32) -> Duration {
    move |permit| Duration::from_secs_f64(f64::from(permit) / f64::from(rate))
}

async fn spawned(rate: u32, clock: Clock) -> Run {
    tokio::spawn(by_limiter(rate, clock)).await.expect("no panic")
}

async fn by_limiter(rate: u32, clock: Clock) -> Run {
    let policy = SmoothBursty::new(Rate::per_second(rate.into()));
    let limiter = RateLimiter::with_clock(policy.max_burst(Duration::from_millis(10)), clock);
    let permits = permits(rate);
    let mut ends = Vec::with_capacity(permits as usize);
    let cpu = cpu_time();
    limiter.acquire(1).await.expect("granted");
    let start = Instant::now();
    ends.push(Duration::ZERO);
    for _ in 1..permits {
        limiter.acquire(1).await.expect("granted");
        ends.push(start.elapsed());
    }
    let cpu = cpu_time().saturating_sub(cpu);
    Run::new(cpu, ends, (0..permits).map(due(rate)).collect())
}

async fn by_interval(rate: u32) -> Run {
    tokio::spawn(async move {
        let permits = permits(rate);
        let mut ends = Vec::with_capacity(permits as usize);
        let cpu = cpu_time();
        let start = Instant::now();
        let mut ticks = interval_at(start.into(), Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..permits {
            ticks.tick().await;
            ends.push(start.elapsed());
        }
        let cpu = cpu_time().saturating_sub(cpu);
        Run::new(cpu, ends, (0..permits).map(due(rate)).collect())
    })
    .await
    .expect("no panic")
}

/// Calls `at` at each time when a permit is due.
fn sleep_until_each(rate: u32, start: Instant, mut at: impl FnMut()) {
    for permit in 0..permits(rate) {
        thread::sleep(due(rate)(permit).saturating_sub(start.elapsed()));
        at();
    }
}

fn by_thread(rate: u32) -> Run {
    let mut ends = Vec::with_capacity(permits(rate) as usize);
    let cpu = cpu_time();
    let start = Instant::now();
    sleep_until_each(rate, start, || ends.push(start.elapsed()));
    let cpu = cpu_time().saturating_sub(cpu);
    Run::new(cpu, ends, (0..permits(rate)).map(due(rate)).collect())
}

async fn by_waker(rate: u32) -> Run {
    tokio::spawn(async move {
        let mut ends = Vec::with_capacity(permits(rate) as usize);
        let (is_due, mut each) = unbounded_channel();
        let cpu = cpu_time();
        let start = Instant::now();
        let sleeper = thread::spawn(move || {
            sleep_until_each(rate, start, || is_due.send(()).expect("a receiver"));
        });
        while each.recv().await.is_some() {
            ends.push(start.elapsed());
        }
        sleeper.join().expect("no panic");
        let cpu = cpu_time().saturating_sub(cpu);
        Run::new(cpu, ends, (0..permits(rate)).map(due(rate)).collect())
    })
    .await
    .expect("no panic")
}
