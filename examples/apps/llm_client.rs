//! A client of an LLM API, whose calls cost tokens: estimated before, known only while the answer streams.
//!
//! ```text
//! cargo run --release -p examples --bin llm_client
//! ```
//!
//! The API is a server on a free loopback port that streams its answers. A minute takes 0.4 s here. For each kind
//! of estimates 40 workers share one limiter: 60 requests and 90,000 tokens a minute, and 10 calls in flight. A
//! call settles at the tokens that have come, also if it is cancelled: see [`read`]. So the whole quota is used
//! whatever the estimates; the program fails if the use of one leaves 97 to 101 %.

use std::convert::Infallible;
use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use futures::stream;
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{Grant, InFlight, Metered, Rate, RateLimiter, TokenBucket};

type Failure = Box<dyn Error + Send + Sync>;
type Llm = (TokenBucket, TokenBucket, InFlight);

const MINUTE: Duration = Duration::from_millis(400);
const MINUTES: u32 = 25;
/// The bucket is full at first; what is used from here on is what comes.
const FIRST: u32 = 5;
const TOKENS: u32 = 90_000;
const CHUNKS: u32 = 10;

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// The estimate for a call, of its true tokens, in percent.
    least: u32,
    most: u32,
    /// The share of the calls that are cancelled on their way, in percent.
    cancelled: u32,
}

const fn kind(name: &'static str, least: u32, most: u32, cancelled: u32) -> Kind {
    Kind { name, least, most, cancelled }
}

const KINDS: [Kind; 5] = [
    kind("right", 100, 100, 0),
    kind("twice too high", 200, 200, 0),
    kind("twice too low", 50, 50, 0),
    kind("at random, half to twice", 50, 200, 0),
    kind("right, 30 % cancelled", 100, 100, 30),
];

/// When each call was granted, and the tokens that it used.
type Calls = Arc<Mutex<Vec<(Duration, u32)>>>;

/// Reads one answer. The caller may drop this at any time: the call then costs what has come until then.
async fn read(
    mut call: Metered<Grant<'static, Llm>>,
    client: &Client,
    url: String,
    used: impl Fn(u32),
) -> Result<(), Failure> {
    let mut answer = client.get(url).send().await?.error_for_status()?;
    while let Some(bytes) = answer.chunk().await? {
        let tokens = u32::try_from(bytes.len())?;
        call.add((0, tokens, 0));
        used(tokens);
    }
    Ok(())
}

async fn work(
    kind: Kind,
    mut random: Random,
    limiter: RateLimiter<Llm>,
    client: Client,
    server: String,
    calls: Calls,
    start: Instant,
) -> Result<(), Failure> {
    while start.elapsed() < MINUTE * MINUTES {
        let chunk = random.within(50, 550);
        // 2 to 15 of 60 seconds.
        let latency = MINUTE * random.within(2_000, 15_000) / 60_000;
        let estimate = CHUNKS * chunk * random.within(kind.least, kind.most) / 100;
        // Zero if nothing has come when the call ends.
        let call = limiter.acquire_owned((1, estimate, 1)).await?.metered().or((1, 0, 1));
        let index = {
            let mut calls = lock(&calls);
            calls.push((start.elapsed(), 0));
            calls.len() - 1
        };
        let used = |tokens| lock(&calls)[index].1 += tokens;
        let url = format!("{server}/{chunk}/{}", latency.as_millis());
        let answer = read(call, &client, url, used);
        if random.within(1, 100) <= kind.cancelled {
            let patience = latency * random.within(0, 100) / 100;
            let _ = tokio::time::timeout(patience, answer).await;
        } else {
            answer.await?;
        }
    }
    Ok(())
}

fn lock(calls: &Calls) -> std::sync::MutexGuard<'_, Vec<(Duration, u32)>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Streams ten chunks of `chunk` bytes, a byte for a token, within `millis` milliseconds.
async fn answer(Path((chunk, millis)): Path<(usize, u64)>) -> Body {
    let pause = Duration::from_millis(millis) / CHUNKS;
    Body::from_stream(stream::unfold(0, move |sent| async move {
        if sent == CHUNKS {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some((Ok::<_, Infallible>("t".repeat(chunk)), sent + 1))
    }))
}

/// A small xorshift generator, so that the example needs no crate for it.
struct Random(u64);

impl Random {
    /// From `from` to `to`.
    fn within(&mut self, from: u32, to: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + u32::try_from(self.0 % u64::from(to - from + 1)).unwrap_or(0)
    }
}

async fn run(kind: Kind, server: String, start: Instant) -> Result<Calls, Failure> {
    let a_minute = |permits: u32| Rate::new(u64::from(permits), MINUTE);
    let requests = TokenBucket::new(a_minute(60), 60);
    let tokens = TokenBucket::new(a_minute(TOKENS), TOKENS);
    let limiter = RateLimiter::new((requests, tokens, InFlight::new(10)));
    let (client, calls) = (Client::new(), Calls::default());
    let mut workers = JoinSet::new();
    for worker in 1..=40 {
        let random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker));
        let (limiter, client) = (limiter.clone(), client.clone());
        workers.spawn(work(kind, random, limiter, client, server.clone(), calls.clone(), start));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(calls)
}

/// The share of the tokens that was used, in percent, and the tokens of the fullest minute.
fn judge(calls: &[(Duration, u32)]) -> (f64, u64) {
    let within = |from: Duration, to: Duration| -> u64 {
        let inside = calls.iter().filter(|(at, _)| (from..to).contains(at));
        inside.map(|&(_, tokens)| u64::from(tokens)).sum()
    };
    let used = within(MINUTE * FIRST, MINUTE * MINUTES);
    let counted = |at: &Duration| (MINUTE * FIRST..MINUTE * (MINUTES - 1)).contains(at);
    let starts = calls.iter().map(|&(at, _)| at).filter(counted);
    let fullest = starts.map(|at| within(at, at + MINUTE)).max().unwrap_or(0);
    #[allow(clippy::cast_precision_loss)] // millions
    let share = 100.0 * used as f64 / f64::from((MINUTES - FIRST) * TOKENS);
    (share, fullest)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let server = format!("http://{}", listener.local_addr()?);
    let routes = Router::new().route("/{chunk}/{millis}", get(answer));
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await });

    println!("{MINUTES} minutes of {} ms; {TOKENS} tokens a minute\n", MINUTE.as_millis());
    let start = Instant::now();
    let mut runs = JoinSet::new();
    for (place, kind) in KINDS.into_iter().enumerate() {
        let run = run(kind, server.clone(), start);
        runs.spawn(async move { (place, run.await) });
    }
    let mut all = Vec::new();
    while let Some(run) = runs.join_next().await {
        let (place, calls) = run?;
        all.push((place, calls?));
    }
    serving.abort();
    all.sort_by_key(|&(place, _)| place);

    println!("{:26}{:>7}{:>10}{:>24}", "estimates", "calls", "used", "in the fullest minute");
    let mut is_full = true;
    for (kind, (_, calls)) in KINDS.iter().zip(&all) {
        let calls = lock(calls);
        let (share, fullest) = judge(&calls);
        is_full &= (97.0..=101.0).contains(&share);
        println!("{:26}{:>7}{share:>8.1} %{fullest:>24}", kind.name, calls.len());
    }
    if !is_full {
        eprintln!("\nthe use of a quota has left 97 to 101 %");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
