//! How exactly does a limiter pace one task?

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, sleep};
use tollgate::{Rate, RateLimiter, SmoothBursty};
use tower::limit::RateLimit;
use tower::{Service, ServiceExt, service_fn};

use crate::limiters::{TICK, governor, leaky_bucket, ratelimit};
use crate::measure::{cpu_time, median, percentile, print, quick, runtime};

const RATES: [u32; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
const NAMES: [&str; 7] =
    ["interval", "tollgate", "governor", "leaky-bucket", "async-throttle", "tower", "ratelimit"];

/// The results of one run.
struct Run {
    /// Achieved rate over the asked one.
    rate: f64,
    /// Milliseconds after the time that the rate allows.
    late_p50: f64,
    /// Microseconds of processor time a permit.
    cpu: f64,
}

pub fn run() {
    let runtime = runtime();
    for rate in RATES {
        let rounds = if rate < 1_000 || quick() { 1 } else { 3 };
        let span = if quick() {
            0.1
        } else if rate < 1_000 {
            1.0
        } else {
            0.3
        };
        let calls = 5.max((f64::from(rate) * span) as usize);
        let mut runs: [Vec<Run>; NAMES.len()] = Default::default();
        for _ in 0..rounds {
            for (name, runs) in NAMES.iter().zip(&mut runs) {
                runs.push(runtime.block_on(of(name, rate, calls)));
            }
        }
        for (name, runs) in NAMES.iter().zip(&runs) {
            let of = |pick: fn(&Run) -> f64| median(runs.iter().map(pick).collect());
            let figures = [
                ("rate", of(|run| run.rate)),
                ("late_p50_ms", of(|run| run.late_p50)),
                ("cpu_us", of(|run| run.cpu)),
            ];
            print(&format!("{name}/{rate}"), &figures);
        }
    }
}

/// Each limiter in the way that its documentation paces a task, with what it may store at most ten
/// milliseconds of the rate, so that a late timer can be made good.
async fn of(name: &str, rate: u32, calls: usize) -> Run {
    let each = Duration::from_secs(1) / rate;
    let burst = (rate / 100).max(1);
    match name {
        "interval" => {
            let mut ticks = interval(each);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            paced(rate, calls, async || _ = ticks.tick().await).await
        }
        "tollgate" => {
            let policy = SmoothBursty::new(Rate::per_second(f64::from(rate)));
            let limiter = RateLimiter::new(policy.max_burst(TICK));
            paced(rate, calls, async || drop(limiter.acquire(1).await.expect("granted"))).await
        }
        "governor" => {
            let limiter = governor(each, burst);
            // What is stored at first would come at once.
            while limiter.check().is_ok() {}
            paced(rate, calls, async || limiter.until_ready().await).await
        }
        "leaky-bucket" => {
            let limiter = leaky_bucket(burst as usize, each * burst, 1, burst as usize);
            paced(rate, calls, async || limiter.acquire_one().await).await
        }
        "async-throttle" => {
            let limiter = async_throttle::RateLimiter::new(each);
            paced(rate, calls, async || limiter.throttle(async || ()).await).await
        }
        "tower" => {
            let service = service_fn(|()| std::future::ready(Ok::<_, Infallible>(())));
            let rate_of = tower::limit::rate::Rate::new(burst.into(), each * burst);
            let mut service = RateLimit::new(service, rate_of);
            paced(rate, calls, async || {
                service.ready().await.expect("ready").call(()).await.expect("an answer");
            })
            .await
        }
        "ratelimit" => {
            let limiter = ratelimit(rate.into(), Duration::from_secs(1), burst.into(), 1);
            paced(rate, calls, async || {
                while let Err(error) = limiter.try_wait() {
                    match error {
                        ratelimit::TryWaitError::Insufficient(wait) => sleep(wait).await,
                        error => unreachable!("{error}"),
                    }
                }
            })
            .await
        }
        other => unreachable!("{other}"),
    }
}

/// Ends early, at four times the time that the calls should take.
async fn paced(rate: u32, calls: usize, mut call: impl AsyncFnMut()) -> Run {
    call().await;
    let cpu = cpu_time();
    let start = Instant::now();
    let mut ends = vec![0.0];
    while ends.len() < calls && start.elapsed().as_secs_f64() < 4.0 * calls as f64 / f64::from(rate)
    {
        call().await;
        ends.push(start.elapsed().as_secs_f64());
    }
    let cpu = (cpu_time().saturating_sub(cpu)).as_secs_f64() * 1e6;
    let grants = (ends.len() - 1) as f64;
    let took = ends.last().copied().unwrap_or_default();
    // After the latest schedule at this rate that makes no call early.
    let due = |(index, end): (usize, &f64)| end - index as f64 / f64::from(rate);
    let first = ends.iter().enumerate().map(due).fold(f64::INFINITY, f64::min);
    let mut late: Vec<_> = ends.iter().enumerate().map(|end| 1e3 * (due(end) - first)).collect();
    Run {
        rate: grants / took / f64::from(rate),
        late_p50: percentile(&mut late, 0.5),
        cpu: cpu / grants,
    }
}
