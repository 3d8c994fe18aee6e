//! What do many tasks cost that wait on one limiter, and does it keep its rate?
//!
//! As many plain tokio sleeps until the same times are what waiting costs at the least. A run ends when all
//! tasks have been granted, or after two and a half times the time that this should take. With arguments only crowds of as
//! many tasks: `crowd 100000`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use throttle_net::Throttle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tollgate::{Rate, RateLimiter, SmoothBursty};
use tower::limit::RateLimit;
use tower::{ServiceExt, buffer::Buffer, service_fn};

use crate::limiters::{TICK, governor, leaky_bucket};
use crate::measure::{cpu_time, median, percentile, print, quick, runtime};

/// Tasks, and how many of them may go on in a second.
#[derive(Clone, Copy)]
struct Crowd {
    tasks: u32,
    rate: u32,
}

/// The results of one run.
struct Run {
    /// Microseconds of processor time for each task that was granted.
    cpu: f64,
    rate: f64,
    /// Milliseconds.
    late_p99: f64,
}

const NAMES: [&str; 8] = [
    "tollgate",
    "sleeps",
    "async-throttle",
    "Semaphore",
    "tower",
    "leaky-bucket",
    "governor",
    "throttle-net",
];

/// In each round the first two take turns, and the others in fewer, because theirs take long in a large crowd.
const ROUNDS: usize = 3;
const ALWAYS: usize = 2;

/// When each task ended.
struct Tally {
    /// In nanoseconds, and zero until then.
    ends: Vec<AtomicU64>,
    ended: AtomicU32,
    all: Notify,
}

pub fn run() {
    let crowd = |tasks, rate| Crowd { tasks, rate };
    let full =
        [(crowd(10_000, 20_000), 3), (crowd(100_000, 20_000), 1), (crowd(1_000_000, 200_000), 1)];
    let short = [(crowd(1_000, 5_000), 1), (crowd(10_000, 50_000), 1)];
    let asked: Vec<u32> = std::env::args().skip(2).filter_map(|tasks| tasks.parse().ok()).collect();
    let crowds = if quick() { &short[..] } else { &full };
    let is_asked = |crowd: Crowd| asked.is_empty() || asked.contains(&crowd.tasks);
    for &(crowd, rounds) in crowds.iter().filter(|(crowd, _)| is_asked(*crowd)) {
        let mut runs: [Vec<Run>; NAMES.len()] = Default::default();
        for round in 0..ROUNDS {
            let names = if round < rounds { NAMES.len() } else { ALWAYS };
            for (name, runs) in NAMES.iter().zip(&mut runs).take(names) {
                runs.push(crowd.run(name));
            }
        }
        let sleeps: Vec<_> = runs[1].iter().map(|run| run.cpu).collect();
        for (name, runs) in NAMES.iter().zip(&runs) {
            let of = |pick: fn(&Run) -> f64| median(runs.iter().map(pick).collect());
            let ratios = runs.iter().zip(&sleeps).map(|(run, sleeps)| run.cpu / sleeps);
            let figures = [
                ("x_sleeps", median(ratios.collect())),
                ("cpu_us", of(|run| run.cpu)),
                ("rate", of(|run| run.rate)),
                ("late_p99_ms", of(|run| run.late_p99)),
            ];
            print(&format!("{name}/{}", crowd.tasks), &figures);
        }
    }
}

impl Crowd {
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.rate
    }

    /// The permits of a [`TICK`], for limiters that refill so.
    fn a_tick(self) -> usize {
        (self.rate / 100) as usize
    }

    fn run(self, name: &str) -> Run {
        let runtime = runtime();
        let run = runtime.block_on(self.of(name));
        runtime.shutdown_background();
        run
    }

    async fn of(self, name: &str) -> Run {
        let (interval, a_tick) = (self.interval(), self.a_tick());
        // Made before the limiter, so that this is no part of its time.
        let ends = (0..self.tasks).map(|_| AtomicU64::new(0)).collect();
        let tally = Tally { ends, ended: AtomicU32::new(0), all: Notify::new() };
        match name {
            "sleeps" => {
                let start = Instant::now();
                self.each(tally, |task| sleep_until(start + interval * task)).await
            }
            "tollgate" => {
                let policy = SmoothBursty::new(Rate::per_second(f64::from(self.rate)));
                let limiter = RateLimiter::new(policy);
                self.each(tally, |_| {
                    let limiter = limiter.clone();
                    async move { drop(limiter.acquire(1).await.expect("granted")) }
                })
                .await
            }
            "async-throttle" => {
                let limiter = Arc::new(async_throttle::RateLimiter::new(interval));
                self.each(tally, |_| {
                    let limiter = Arc::clone(&limiter);
                    async move { limiter.throttle(async || ()).await }
                })
                .await
            }
            // A task adds the permits of each tick: the usual limiter by hand.
            "Semaphore" => {
                let semaphore = Arc::new(Semaphore::new(1));
                let refilled = Arc::clone(&semaphore);
                tokio::spawn(async move {
                    let mut ticks = tokio::time::interval(TICK);
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                    loop {
                        ticks.tick().await;
                        refilled.add_permits(a_tick);
                    }
                });
                self.each(tally, |_| {
                    let semaphore = Arc::clone(&semaphore);
                    async move { semaphore.acquire().await.expect("open").forget() }
                })
                .await
            }
            "tower" => {
                let service = service_fn(|()| std::future::ready(Ok::<_, Infallible>(())));
                let rate = tower::limit::rate::Rate::new(a_tick as u64, TICK);
                let service = Buffer::new(RateLimit::new(service, rate), 1_024);
                self.each(tally, |_| {
                    let service = service.clone();
                    async move { service.oneshot(()).await.expect("an answer") }
                })
                .await
            }
            "leaky-bucket" => {
                let limiter = Arc::new(leaky_bucket(a_tick, TICK, 1, a_tick));
                self.each(tally, |_| limiter.clone().acquire_owned(1)).await
            }
            "governor" => {
                let limiter = Arc::new(governor(interval, (self.rate / 100).max(1)));
                // What is stored at first would come at once.
                while limiter.check().is_ok() {}
                self.each(tally, |_| {
                    let limiter = Arc::clone(&limiter);
                    async move { limiter.until_ready().await }
                })
                .await
            }
            "throttle-net" => {
                let limiter = Arc::new(Throttle::smooth(self.rate, Duration::from_secs(1)));
                self.each(tally, |_| {
                    let limiter = Arc::clone(&limiter);
                    async move { limiter.acquire().await.expect("granted") }
                })
                .await
            }
            other => unreachable!("{other}"),
        }
    }

    /// A task for each future, and what all of them took. No task is joined: a joiner is woken for some of them, and
    /// what that costs is no part of what waiting costs.
    async fn each<F: Future<Output = ()> + Send + 'static>(
        self,
        tally: Tally,
        future: impl Fn(u32) -> F,
    ) -> Run {
        let tally = Arc::new(tally);
        let (cpu, start) = (cpu_time(), Instant::now());
        // Their memory is given back at the end, with the handles.
        let mut handles = Vec::with_capacity(tally.ends.len());
        for task in 0..self.tasks {
            let (tally, future) = (Arc::clone(&tally), future(task));
            handles.push(tokio::spawn(async move {
                future.await;
                let end = start.elapsed().as_nanos() as u64;
                tally.ends[task as usize].store(end, Ordering::Relaxed);
                if tally.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
                    tally.all.notify_one();
                }
            }));
        }
        _ = timeout(self.interval() * self.tasks * 5 / 2, tally.all.notified()).await;
        let cpu = cpu_time().saturating_sub(cpu).as_secs_f64();
        let ends = tally.ends.iter().map(|end| end.load(Ordering::Relaxed) as f64 / 1e9);
        let mut ends: Vec<_> = ends.filter(|&end| end > 0.0).collect();
        ends.sort_by(f64::total_cmp);
        let interval = self.interval().as_secs_f64();
        let behind = ends.iter().enumerate().map(|(task, end)| end - interval * task as f64);
        let behind: Vec<_> = behind.collect();
        Run {
            cpu: cpu * 1e6 / ends.len() as f64,
            rate: rate_over_asked(&behind, interval),
            late_p99: 1e3
                * percentile(
                    &mut behind.iter().map(|late| late.max(0.0)).collect::<Vec<_>>(),
                    0.99,
                ),
        }
    }
}

/// Achieved rate over the asked one. By how much later the last tenth of the waits ended than the first, not by the
/// very last one, so that a constant lateness does not count.
fn rate_over_asked(behind: &[f64], interval: f64) -> f64 {
    let tenth = behind.len().div_ceil(10);
    let first = median(behind[..tenth].to_vec());
    let last = median(behind[behind.len() - tenth..].to_vec());
    let span = interval * (behind.len() - 1) as f64 * 0.9;
    span / (span + last - first)
}
