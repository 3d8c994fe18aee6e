//! A client of reqwest with two lines of this crate, against a server with a quota that the client does not know.
//!
//! ```text
//! cargo run -p examples --bin reqwest_client
//! ```
//!
//! The server, on a free loopback port, accepts 40 requests in any sliding second, and says in each response what
//! remains, as Discord does. 64 tasks share one client, and call as fast as they may. The table has a line for each
//! second. The whole quota is used, so single requests arrive some milliseconds before the server has a permit again: the
//! program fails if more than one in fifty is refused after the first second.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
// The first line of two.
use tollgate::{Limits, RateLimit};

const TASKS: u32 = 64;
const QUOTA: usize = 40;
const SECONDS: usize = 8;
const WINDOW: Duration = Duration::from_secs(1);

/// The requests that were accepted in the last second.
type Log = Arc<Mutex<VecDeque<Instant>>>;

fn answer(log: &Log) -> (StatusCode, [(&'static str, String); 4]) {
    let now = Instant::now();
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    while log.front().is_some_and(|at| now - *at >= WINDOW) {
        log.pop_front();
    }
    let is_accepted = log.len() < QUOTA;
    if is_accepted {
        log.push_back(now);
    }
    let reset = log.back().map_or(Duration::ZERO, |at| WINDOW.saturating_sub(now - *at));
    let status = if is_accepted { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    let headers = [
        ("x-ratelimit-limit", QUOTA.to_string()),
        ("x-ratelimit-remaining", (QUOTA - log.len()).to_string()),
        // Rounded up to milliseconds.
        ("x-ratelimit-reset-after", format!("{:.3}", reset.as_secs_f64() + 0.0005)),
        ("x-ratelimit-bucket", "demo".to_owned()),
    ];
    (status, headers)
}

async fn serve() -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let log = Log::default();
    let app = Router::new().fallback(async move || answer(&log));
    tokio::spawn(async { axum::serve(listener, app).await });
    Ok(url)
}

/// How many requests of each second were accepted and refused.
type Seconds = [(u32, u32); SECONDS];

/// One task: calls until the time is over. Each request counts in the second in which it was sent.
async fn task(
    client: ClientWithMiddleware,
    url: String,
    start: Instant,
) -> Result<Seconds, reqwest_middleware::Error> {
    let mut seconds = Seconds::default();
    let span = Duration::from_secs(SECONDS as u64);
    while let Some(left) = span.checked_sub(start.elapsed()) {
        let Ok(response) = timeout(left, client.get(&url).send()).await else { break };
        let is_accepted = response?.status().is_success();
        let second =
            &mut seconds[usize::try_from(start.elapsed().as_secs()).unwrap_or(0).min(SECONDS - 1)];
        *(if is_accepted { &mut second.0 } else { &mut second.1 }) += 1;
        if !is_accepted {
            // A client without a limit would spin.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(seconds)
}

async fn run(client: ClientWithMiddleware) -> Result<Seconds, Box<dyn Error>> {
    let (url, start) = (serve().await?, Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(task(client.clone(), url.clone(), start));
    }
    let mut sum = Seconds::default();
    while let Some(seconds) = tasks.join_next().await {
        for (sum, second) in sum.iter_mut().zip(seconds??) {
            *sum = (sum.0 + second.0, sum.1 + second.1);
        }
    }
    Ok(sum)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = reqwest::Client::new();
    let without = ClientBuilder::new(client.clone()).build();
    // The second line: `.with(..)`. The limit is a guess, far above the quota; the server says better.
    let with =
        ClientBuilder::new(client).with(RateLimit::limits(Limits::per_host("200/s")?)).build();

    let (without, with) = tokio::join!(run(without), run(with));
    let (without, with) = (without?, with?);
    println!("{TASKS} tasks; the server accepts {QUOTA} requests in any second\n");
    println!("          without a limit      with two lines");
    println!("second      200       429       200       429");
    for (second, (without, with)) in without.iter().zip(&with).enumerate() {
        println!("{second:>6} {:>8} {:>9} {:>9} {:>9}", without.0, without.1, with.0, with.1);
    }
    let sum =
        |seconds: &Seconds| seconds.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let (all_without, all_with) = (sum(&without), sum(&with));
    println!(
        "{:>6} {:>8} {:>9} {:>9} {:>9}",
        "sum", all_without.0, all_without.1, all_with.0, all_with.1
    );

    let late: u32 = with.iter().skip(1).map(|second| second.1).sum();
    if late * 50 > all_with.0 {
        return Err(format!("{late} requests were refused after the quota was learned").into());
    }
    println!("\nWith two lines {late} of {} are 429s once the quota is learned.", all_with.0);
    Ok(())
}
