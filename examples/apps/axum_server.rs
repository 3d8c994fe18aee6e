//! A server that limits each API key, and four clients that take its answers differently.
//!
//! ```text
//! cargo run -p examples --bin axum_server
//! ```
//!
//! Each key has 5 requests a second, 10 at once, and all together have 100 in flight. The server is axum's, on a free
//! loopback port, with the layers that servers have, and all of the limit is one layer: [`RefuseLayer`]. After ten
//! seconds the table says what each client got.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderName;
use reqwest::{Client, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate::tower::RefuseLayer;
use tollgate::{InFlight, KeyedRateLimiter, Limiter, Rate, RateLimiter, TokenBucket};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

type Failure = Box<dyn Error + Send + Sync>;

const RUN: Duration = Duration::from_secs(10);

/// The server: one route, and the limit of each key. Layers that are added later stand around those before.
fn app() -> Router {
    let policy = TokenBucket::new(Rate::per_second(5.0), 10);
    let keys = KeyedRateLimiter::<String, _>::builder(policy).max_keys(10_000).build();
    let all = RateLimiter::new(InFlight::new(100));
    let limit = RefuseLayer::by(move |request| {
        let key = request.headers.get("x-api-key").and_then(|key| key.to_str().ok());
        keys.at(key.unwrap_or("none")).into_owned().and(&all)
    });
    // So that refusals have the fields of CORS, scripts may read the limits, and preflights cost nothing.
    let fields = ["retry-after", "ratelimit", "ratelimit-policy"].map(HeaderName::from_static);
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(fields);
    Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit)
        .layer(CompressionLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, RUN))
        .layer(cors)
        .layer(TraceLayer::new_for_http())
}

/// How a client takes an answer: the time until its next request.
type Pause = fn(&Response) -> Duration;

const CLIENTS: [(&str, Pause); 4] = [
    ("ignores all answers, 20 requests a second", |_| Duration::from_millis(50)),
    ("tries again a second after a 429", |answer| {
        if refused(answer) { Duration::from_secs(1) } else { Duration::ZERO }
    }),
    ("waits as Retry-After says", |answer| seconds(answer, "retry-after", "").unwrap_or_default()),
    ("waits as RateLimit says when none are left", |answer| {
        let left = seconds(answer, "ratelimit", ";r=");
        let time = seconds(answer, "ratelimit", ";t=");
        if left == Some(Duration::ZERO) { time.unwrap_or_default() } else { Duration::ZERO }
    }),
];

fn refused(answer: &Response) -> bool {
    answer.status() == StatusCode::TOO_MANY_REQUESTS
}

/// The whole number in a header after `label`. A real client has a parser of structured fields.
fn seconds(answer: &Response, header: &str, label: &str) -> Option<Duration> {
    let value = answer.headers().get(header)?.to_str().ok()?;
    let number = value.split_once(label)?.1.split([';', ',']).next()?;
    Some(Duration::from_secs(number.parse().ok()?))
}

/// What one client saw.
struct Seen {
    number: usize,
    sent: u32,
    refused: u32,
    first: Option<Response>,
    last: Option<Response>,
}

async fn run(number: usize, url: String, end: Instant) -> Result<Seen, Failure> {
    let (client, pause) = (Client::new(), CLIENTS[number].1);
    let mut seen = Seen { number, sent: 0, refused: 0, first: None, last: None };
    while Instant::now() < end {
        let request = client.get(&url).header("x-api-key", format!("client {number}"));
        let answer = request.send().await?;
        seen.sent += 1;
        let wait = pause(&answer);
        if refused(&answer) {
            seen.refused += 1;
            seen.last = Some(answer);
        } else if seen.first.is_none() {
            seen.first = Some(answer);
        }
        // A client that asks without a pause would measure the sockets of this machine.
        sleep(wait.max(Duration::from_millis(5))).await;
    }
    Ok(seen)
}

fn show(title: &str, answer: Option<&Response>) {
    let Some(answer) = answer else { return };
    println!("{title}: {}", answer.status());
    for name in ["ratelimit-policy", "ratelimit", "retry-after"] {
        if let Some(value) = answer.headers().get(name) {
            println!("    {name}: {}", value.to_str().unwrap_or("?"));
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, app()).await });
    println!("5 requests a second and 10 at once for each of four keys, for {RUN:?}\n");

    let end = Instant::now() + RUN;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS.len() {
        clients.spawn(run(number, url.clone(), end));
    }
    let mut all = Vec::new();
    while let Some(seen) = timeout_at(end + RUN, clients.join_next()).await? {
        all.push(seen??);
    }
    all.sort_by_key(|seen| seen.number);

    show("the first answer", all[2].first.as_ref());
    show("a refusal", all[2].last.as_ref());
    println!("\n{:<44} {:>5} {:>8} {:>5}", "client", "sent", "granted", "429");
    for seen in &all {
        let granted = seen.sent - seen.refused;
        println!(
            "{:<44} {:>5} {granted:>8} {:>5}",
            CLIENTS[seen.number].0, seen.sent, seen.refused
        );
        // What the bucket held, and what has come since.
        let most = 10 + 5 * u32::try_from((Instant::now() - (end - RUN)).as_secs() + 1)?;
        if granted > most {
            return Err(format!("{granted} granted, at most {most} are allowed").into());
        }
    }
    Ok(())
}
