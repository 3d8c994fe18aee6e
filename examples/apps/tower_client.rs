//! A client of hyper in layers of tower, with and without a limit, against a server that has one.
//!
//! ```text
//! cargo run -p examples --bin tower_client
//! ```
//!
//! The server, on a free loopback port, accepts 55 requests in any sliding second. 32 tasks share one client; the
//! layer lets 50 calls a second through, evenly, and 10 at a time. The table says how each stack of layers did.

use std::error::Error;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::tower::RateLimitLayer;
use tollgate::{InFlight, Rate, RateLimiter, Same, SmoothBursty};
use tower::{Service, ServiceBuilder, ServiceExt};

#[path = "../demo_server/mod.rs"]
mod demo_server;
use demo_server::DemoServer;

type Failure = Box<dyn Error + Send + Sync>;
type Body = Empty<bytes::Bytes>;

const CALLS: u32 = 150;
const TASKS: u32 = 32;

fn layer() -> RateLimitLayer {
    let even = SmoothBursty::new(Rate::per_second(50.0)).max_burst(Duration::from_millis(20));
    RateLimitLayer::new(RateLimiter::new(Same((even, InFlight::new(10)))))
}

/// How the calls of one stack ended.
#[derive(Default)]
struct Ends {
    ok: u32,
    too_many: u32,
    not_sent: u32,
}

impl Ends {
    fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.too_many += other.too_many;
        self.not_sent += other.not_sent;
    }
}

/// One task: its share of the calls, each on a clone of the service, as axum and tonic clone it.
async fn task<S, B>(service: S, url: String, calls: u32) -> Result<Ends, Failure>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Failure> + Clone,
    B: http_body::Body<Error: Into<Failure>>,
{
    let mut ends = Ends::default();
    for _ in 0..calls {
        let request = Request::get(&url).body(Body::new())?;
        match service.clone().oneshot(request).await {
            Ok(response) => {
                match response.status() {
                    StatusCode::OK => ends.ok += 1,
                    _ => ends.too_many += 1,
                }
                // The place in flight is held until the body has been read.
                response.into_body().collect().await.map_err(Into::into)?;
            }
            Err(error) if error.is::<tower::load_shed::error::Overloaded>() => {
                ends.not_sent += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ends)
}

/// All calls through clones of `service`, and a line of the table.
async fn run<S, B>(name: &str, service: S) -> Result<(), Failure>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Failure> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data: Send, Error: Into<Failure>> + Send + 'static,
{
    let server = DemoServer::start(55).await?;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let share = CALLS / TASKS + u32::from(number < CALLS % TASKS);
        tasks.spawn(task(service.clone(), server.url(), share));
    }
    let mut ends = Ends::default();
    while let Some(ended) = timeout(Duration::from_secs(30), tasks.join_next()).await? {
        ends.add(&ended??);
    }
    let seconds = start.elapsed().as_secs_f64();
    // The client may keep connections open, which the server would wait for.
    drop(service);
    let fullest = server.stop().await?;
    let Ends { ok, too_many, not_sent } = ends;
    println!("{name:<28} {ok:>5} {too_many:>5} {not_sent:>9} {fullest:>15} {seconds:>8.1} s");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let client = || {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        ServiceBuilder::new().map_err(Failure::from).service(client)
    };
    println!("{CALLS} calls of {TASKS} tasks; the server accepts 55 in any second\n");
    println!(
        "{:<28} {:>5} {:>5} {:>9} {:>15} {:>10}",
        "layers around the client", "200", "429", "not sent", "fullest second", "time"
    );
    run("none", client()).await?;
    run("RateLimit", ServiceBuilder::new().layer(layer()).service(client())).await?;
    let buffered = ServiceBuilder::new().buffer(100).layer(layer()).service(client());
    run("Buffer, RateLimit", buffered).await?;
    let shedding = ServiceBuilder::new().load_shed().layer(layer()).service(client());
    run("LoadShed, RateLimit", shedding).await?;
    println!("\nNot sent: LoadShed refuses a call at once where RateLimit would make it wait.");
    Ok(())
}
