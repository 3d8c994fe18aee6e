//! What does waiting cost, and how late is it?
//!
//! `cargo bench --bench crowd`. A hundred thousand tasks wait in one queue at 20,000 per second,
//! beside as many plain tokio sleeps until the same times; then one task is paced at 1,000 per
//! second, beside tokio's interval. Each pair runs in turns, three times; the medians are printed.
//! Processor time is the process's own, so it is only known on Linux.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval_at, sleep_until};
use tollgate::{Rate, RateLimiter, SmoothBursty};

const TASKS: u32 = 100_000;
const TASKS_PER_SECOND: f64 = 20_000.0;
const PACED: u32 = 2_000;
const PACED_PER_SECOND: f64 = 1_000.0;
const ROUNDS: usize = 3;

/// The results of one run.
struct Run {
    cpu: Duration,
    /// Achieved rate over the asked one.
    rate: f64,
    late: Vec<Duration>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    println!(
        "{:<34}{:>8}{:>8}{:>10}{:>10}",
        "median of 3", "cpu s", "rate", "late p50", "late p99"
    );
    for (name, run) in [
        ("100,000 waiters, tollgate", (|| Box::pin(crowd_queued())) as fn() -> RunFuture),
        ("100,000 waiters, tokio sleeps", || Box::pin(crowd_asleep())),
        ("paced at 1,000/s, tollgate", || Box::pin(paced_by_limiter())),
        ("paced at 1,000/s, tokio interval", || Box::pin(paced_by_interval())),
    ] {
        let runs: Vec<_> = (0..ROUNDS).map(|_| runtime.block_on(run())).collect();
        let median = |key: fn(&Run) -> f64| {
            let mut values: Vec<_> = runs.iter().map(key).collect();
            values.sort_by(f64::total_cmp);
            values[ROUNDS / 2]
        };
        println!(
            "{name:<34}{:>8.2}{:>8.4}{:>7.2} ms{:>7.2} ms",
            median(|run| run.cpu.as_secs_f64()),
            median(|run| run.rate),
            median(|run| percentile(&run.late, 50)),
            median(|run| percentile(&run.late, 99)),
        );
    }
}

type RunFuture = std::pin::Pin<Box<dyn Future<Output = Run>>>;

fn percentile(late: &[Duration], percent: usize) -> f64 {
    late[(late.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

fn measured(cpu: Duration, ends: Vec<Duration>, asked: f64) -> Run {
    let interval = 1.0 / asked;
    let last = ends.iter().max().expect("some").as_secs_f64();
    let due = |index: usize| Duration::from_secs_f64(index as f64 * interval);
    let mut ends = ends;
    ends.sort();
    let mut late: Vec<_> =
        ends.iter().enumerate().map(|(index, end)| end.saturating_sub(due(index))).collect();
    late.sort();
    let rate = (ends.len() - 1) as f64 / last / asked;
    Run { cpu: cpu_time().saturating_sub(cpu), rate, late }
}

async fn crowd_queued() -> Run {
    let limiter = RateLimiter::new(SmoothBursty::new(Rate::per_second(TASKS_PER_SECOND)));
    let cpu = cpu_time();
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.acquire(1).await.expect("granted");
                start.elapsed()
            })
        })
        .collect();
    ended(cpu, tasks).await
}

async fn crowd_asleep() -> Run {
    let cpu = cpu_time();
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|index| {
            let due = start + Duration::from_secs_f64(f64::from(index) / TASKS_PER_SECOND);
            tokio::spawn(async move {
                sleep_until(due.into()).await;
                start.elapsed()
            })
        })
        .collect();
    ended(cpu, tasks).await
}

async fn ended(cpu: Duration, tasks: Vec<tokio::task::JoinHandle<Duration>>) -> Run {
    let mut ends = Vec::with_capacity(tasks.len());
    for task in tasks {
        ends.push(task.await.expect("ended"));
    }
    measured(cpu, ends, TASKS_PER_SECOND)
}

async fn paced_by_limiter() -> Run {
    let policy = SmoothBursty::new(Rate::per_second(PACED_PER_SECOND));
    let limiter = RateLimiter::new(policy.max_burst(Duration::from_millis(10)));
    let cpu = cpu_time();
    limiter.acquire(1).await.expect("granted");
    let start = Instant::now();
    let mut ends = vec![Duration::ZERO];
    for _ in 1..PACED {
        limiter.acquire(1).await.expect("granted");
        ends.push(start.elapsed());
    }
    measured(cpu, ends, PACED_PER_SECOND)
}

async fn paced_by_interval() -> Run {
    let cpu = cpu_time();
    let start = Instant::now();
    let mut ticks = interval_at(start.into(), Duration::from_secs_f64(1.0 / PACED_PER_SECOND));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut ends = Vec::new();
    for _ in 0..PACED {
        ticks.tick().await;
        ends.push(start.elapsed());
    }
    measured(cpu, ends, PACED_PER_SECOND)
}

/// User and system time of this process, in the kernel's ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields follow the command's name, which is in parentheses; the 14th and 15th of all.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
