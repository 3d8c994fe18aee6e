//! What a program sees of its limiters: counts, waits, events, and what Prometheus scrapes.
//!
//! ```text
//! cargo run -p examples --bin metrics
//! ```
//!
//! Three limiters work for four seconds: one with more calls than its rate, one for uploads whose callers give up
//! after a second, and one for each of five users.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::metrics::Publisher;
use tollgate::{
    InFlight, KeyedRateLimiter, Rate, RateLimiter, SlidingWindowLog, SmoothBursty, Stats,
    TokenBucket,
};

const RUN: Duration = Duration::from_secs(4);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;

    // 20 a second, and 30 in any two seconds.
    let window = SlidingWindowLog::new(30, Duration::from_secs(2));
    let search = RateLimiter::builder((SmoothBursty::new(Rate::per_second(20.0)), window))
        .name("search")
        .slow_wait(Duration::from_millis(2_500))
        .on_event(|event| println!("search {event}"))
        .build();
    let uploads = RateLimiter::builder(InFlight::new(2)).name("uploads").build();
    let users = TokenBucket::new(Rate::per_second(5.0), 5);
    let users: KeyedRateLimiter<u32, _> = KeyedRateLimiter::builder(users).name("users").build();

    let publisher = Publisher::new();
    publisher.add(&search);
    publisher.add(&uploads);
    publisher.add_keyed(&users);
    let publishing = tokio::spawn({
        let publisher = publisher.clone();
        async move {
            loop {
                publisher.publish();
                sleep(Duration::from_secs(1)).await;
            }
        }
    });

    let end = Instant::now() + RUN;
    let mut tasks = JoinSet::new();
    for _ in 0..25 {
        let search = search.clone();
        tasks.spawn(async move {
            while Instant::now() < end {
                let left = end - Instant::now();
                if search.try_acquire_timeout((1, 1), left).await.is_err() {
                    break;
                }
            }
        });
    }
    for _ in 0..10 {
        let uploads = uploads.clone();
        tasks.spawn(async move {
            while Instant::now() < end {
                if let Ok(Ok(place)) = timeout(Duration::from_secs(1), uploads.acquire(1)).await {
                    sleep(Duration::from_millis(300)).await;
                    drop(place);
                }
            }
        });
    }
    for user in 0..5 {
        let users = users.clone();
        tasks.spawn(async move {
            while Instant::now() < end {
                // A refused call goes elsewhere, and the user comes back.
                let _ = users.at(&user).try_acquire(1);
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    sleep(RUN / 2).await;
    search.pause_for(Duration::from_millis(500)); // as after a 429
    while tasks.join_next().await.transpose()?.is_some() {}
    drop(publishing); // has published a last time

    println!(
        "\n{:>8} {:>8} {:>8} {:>9} {:>7} {:>9} {:>9}",
        "limiter", "granted", "refused", "given up", "waited", "p50", "p99"
    );
    show("search", &search.stats());
    show("uploads", &uploads.stats());
    show("users", &users.stats());
    println!();
    for (part, calls) in search.stats().limited_by() {
        println!("search: {calls} calls waited for {part}");
    }
    println!("\nwhat Prometheus scrapes, in part:");
    let scrape = prometheus.render();
    scrape
        .lines()
        .filter(|line| line.starts_with("tollgate_") && !line.contains("quantile"))
        .for_each(|line| println!("  {line}"));
    Ok(())
}

fn show(limiter: &str, stats: &Stats) {
    let Stats { granted, refused, given_up, .. } = stats;
    let quantile = |q| {
        stats.wait_quantile(q).map_or("-".to_owned(), |wait| format!("{} ms", wait.as_millis()))
    };
    let (p50, p99) = (quantile(0.5), quantile(0.99));
    println!(
        "{limiter:>8} {granted:>8} {refused:>8} {given_up:>9} {:>7} {p50:>9} {p99:>9}",
        stats.waits()
    );
}
