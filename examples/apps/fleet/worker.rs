//! One worker: a process that calls the API as often as the shared limiter allows.

use std::io::{self, Read};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;
use tollgate::redis::{Reconnecting, RedisRateLimiter, Unavailable};
use tollgate::{Event, Rate, SmoothBursty};

use crate::{Failure, WORKERS};

const KEY: &str = "tollgate:example:fleet";
const TASKS: u32 = 8;
/// Unused rate is lost after this time. It is short, because an API's quota counts bursts too.
const MAX_BURST: Duration = Duration::from_millis(20);
/// The longest wait for a Redis that does not answer.
const DEADLINE: Duration = Duration::from_millis(300);

/// Prints a line for each event: `up`, `down`, and for each call the time of the grant, with or
/// without Redis, and the API's answer.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let [number, api, redis, rate] = words else {
        return Err("a worker takes four arguments".into());
    };
    let (key, rate) = (format!("{KEY}:{number}"), rate.parse::<u32>()?);
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(call(api, redis, key, rate))
}

/// The parent holds the other end of our input, which ends with it.
fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(0);
    });
}

async fn call(api: &str, redis: &str, key: String, rate: u32) -> Result<(), Failure> {
    let all = SmoothBursty::new(Rate::per_second(rate.into())).max_burst(MAX_BURST);
    let share = f64::from(rate) / f64::from(WORKERS);
    let share = SmoothBursty::new(Rate::per_second(share)).max_burst(MAX_BURST);
    let limiter = RedisRateLimiter::builder(all, Reconnecting::open(redis)?, key)
        .unavailable(Unavailable::Local(share))
        .deadline(DEADLINE)
        .on_event(|event| match event {
            Event::Up { .. } => println!("up"),
            Event::Down { .. } => println!("down"),
            _ => {}
        })
        .build();
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
    let url: Arc<str> = api.into();

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (limiter, client, url) = (limiter.clone(), client.clone(), Arc::clone(&url));
        tasks.spawn(async move {
            loop {
                let grant = limiter.acquire(1).await?;
                let granted = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
                let status = client.get(&*url).send().await?.status();
                let by = if grant.is_shared() { "redis" } else { "alone" };
                let refused = status == StatusCode::TOO_MANY_REQUESTS;
                println!("call {granted} {by} {}", if refused { "429" } else { "ok" });
            }
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        let outcome: Result<(), Failure> = outcome?;
        outcome?;
    }
    Ok(())
}
