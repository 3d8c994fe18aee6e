//! Many tasks call one HTTP API through one limiter, over real sockets.
//!
//! The API is a server on a free loopback port. It counts the requests in any sliding second and
//! answers `429 Too Many Requests` above its quota, which shows the effect of the limiter:
//!
//! ```text
//! cargo run --release --example outbound_api                    # ten seconds, not one 429
//! cargo run --release --example outbound_api -- --no-limit      # nearly all are 429
//! cargo run --release --example outbound_api -- --warm-up 3     # starts at a third of the rate
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::{Arg, ValueExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};
use tollgate::{Policy, Rate, RateLimiter, SmoothBursty, SmoothWarmingUp};

#[path = "../demo_server/mod.rs"]
mod demo_server;
use demo_server::DemoServer;

/// Unused rate is lost after this time. It is short, because an API's quota counts bursts too.
const MAX_BURST: Duration = Duration::from_millis(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

const HELP: &str = "\
Calls an HTTP API from many tasks through one rate limiter, and prints what both sides saw.
The API is a server of its own on a free loopback port. A run lasts an hour at most.

  --rate PER_SECOND   calls per second that the limiter lets through [default: 50]
  --quota REQUESTS    requests that the server accepts in any sliding second [default: 1.1 x rate]
  --calls CALLS       calls to make in all, at least 2 [default: ten seconds' worth]
  --tasks TASKS       tasks that share the limiter and the calls, at most 400 [default: 32]
  --warm-up SECONDS   start at a third of the rate and reach all of it in this time
  --no-limit          call without a limiter, to see the 429s";

struct Options {
    rate: f64,
    quota: Option<u32>,
    calls: Option<u32>,
    tasks: u32,
    warm_up: Option<Duration>,
    no_limit: bool,
}

impl Options {
    /// `None` if the help was asked for.
    fn parse() -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            rate: 50.0,
            quota: None,
            calls: None,
            tasks: 32,
            warm_up: None,
            no_limit: false,
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Long("rate") => options.rate = arguments.value()?.parse_with(parse_rate)?,
                Arg::Long("quota") => options.quota = Some(within(&mut arguments, 1, u32::MAX)?),
                Arg::Long("calls") => options.calls = Some(within(&mut arguments, 2, 1_000_000)?),
                Arg::Long("tasks") => options.tasks = within(&mut arguments, 1, 400)?,
                Arg::Long("warm-up") => {
                    options.warm_up = Some(arguments.value()?.parse_with(parse_seconds)?);
                }
                Arg::Long("no-limit") => options.no_limit = true,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                _ => return Err(argument.unexpected()),
            }
        }
        if options.no_limit && options.warm_up.is_some() {
            return Err("--warm-up needs the limiter that --no-limit leaves out".into());
        }
        Ok(Some(options))
    }

    /// Room for at least one call above the rate, which a burst or a late arrival can add.
    fn quota(&self) -> u32 {
        let default = (1.1 * self.rate).round().max(self.rate.ceil() + 1.0);
        self.quota.unwrap_or(whole(default))
    }

    fn calls(&self) -> u32 {
        let default = (10.0 * self.rate).clamp(2.0, 100_000.0);
        self.calls.unwrap_or(whole(default))
    }

    /// Twice the expected time of the run and ten seconds for the connections, but an hour at most.
    fn time_limit(&self) -> Duration {
        let warm_up = self.warm_up.unwrap_or_default().as_secs_f64();
        let expected = warm_up + f64::from(self.calls()) / self.rate;
        Duration::from_secs_f64((2.0 * expected + 10.0).min(3600.0))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse() {
        Ok(Some(options)) => run(&options).await,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(invalid) => Err(invalid.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("outbound_api: {failure}");
            let mut source = failure.source();
            while let Some(cause) = source {
                eprint!(": {cause}");
                source = cause.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Failure> {
    let server = DemoServer::start(options.quota()).await?;
    let rate = Rate::per_second(options.rate);

    let calls = if options.no_limit {
        call_from_tasks(options, server.address(), None::<RateLimiter<SmoothBursty>>).await
    } else if let Some(period) = options.warm_up {
        let limiter = RateLimiter::new(SmoothWarmingUp::new(rate, period));
        call_from_tasks(options, server.address(), Some(limiter)).await
    } else {
        let limiter = RateLimiter::new(SmoothBursty::new(rate).max_burst(MAX_BURST));
        call_from_tasks(options, server.address(), Some(limiter)).await
    };

    // Stop the server first: also when a call has failed.
    let fullest = server.stop().await;
    print_table(options, &calls?, fullest?);
    Ok(())
}

/// The record of one call.
struct Call {
    granted: Instant,
    waited: Duration,
    refused: bool,
}

/// The state that the tasks share besides the limiter.
#[derive(Clone)]
struct Work {
    left: Arc<AtomicU32>,
    server: SocketAddr,
    bar: ProgressBar,
}

async fn call_from_tasks<P: Policy<Cost = u32>>(
    options: &Options,
    server: SocketAddr,
    limiter: Option<RateLimiter<P>>,
) -> Result<Vec<Call>, Failure> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} calls, {eta} left")?;
    let work = Work {
        left: Arc::new(AtomicU32::new(options.calls())),
        server,
        bar: ProgressBar::new(options.calls().into()).with_style(style),
    };

    let mut tasks = JoinSet::new();
    for _ in 0..options.tasks {
        tasks.spawn(call_until_done(work.clone(), limiter.clone()));
    }

    let limit = options.time_limit();
    let deadline = tokio::time::Instant::now() + limit;
    let mut calls = Vec::new();
    while let Some(done) = timeout_at(deadline, tasks.join_next())
        .await
        .map_err(|_| format!("not done within {limit:.0?}, given up"))?
    {
        calls.extend(done??);
    }
    calls.sort_by_key(|call| call.granted);
    Ok(calls)
}

/// One task: makes calls until none is left.
async fn call_until_done<P: Policy<Cost = u32>>(
    work: Work,
    limiter: Option<RateLimiter<P>>,
) -> Result<Vec<Call>, Failure> {
    let take_one = |left: u32| left.checked_sub(1);
    let stream = TcpStream::connect(work.server).await?;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut calls = Vec::new();
    while work.left.fetch_update(Relaxed, Relaxed, take_one).is_ok() {
        let waited = match &limiter {
            Some(limiter) => limiter.acquire(1).await?.waited(),
            None => Duration::ZERO,
        };
        let granted = Instant::now();
        client.ready().await?;
        let request = Request::get("/").header(HOST, "localhost").body(Empty::<Bytes>::new())?;
        let response = timeout(REQUEST_TIMEOUT, client.send_request(request)).await??;
        let refused = match response.status() {
            StatusCode::OK => false,
            StatusCode::TOO_MANY_REQUESTS => true,
            other => return Err(format!("the server answered {other}").into()),
        };
        calls.push(Call { granted, waited, refused });
        work.bar.inc(1);
    }
    Ok(calls)
}

/// `calls` in the order of their grants, two at least.
fn print_table(options: &Options, calls: &[Call], fullest: usize) {
    let Options { rate, tasks, .. } = options;
    let quota = options.quota();
    let made = calls.len();
    let refused = calls.iter().filter(|call| call.refused).count();

    let since_first = |call: &Call| call.granted - calls[0].granted;
    let grants: Vec<Duration> = calls.iter().map(since_first).collect();
    let span = grants[made - 1];
    let achieved = (made - 1) as f64 / span.as_secs_f64();
    let note = match (options.no_limit, options.warm_up) {
        (true, _) => "without a limiter".to_owned(),
        (_, Some(period)) => format!("the ramp of {period:?} is in it"),
        // Plus zero, or it could say "-0.00".
        _ => format!("{:+.2} %", ((achieved / rate - 1.0) * 1e4).round() / 100.0 + 0.0),
    };

    let mut waits: Vec<Duration> = calls.iter().map(|call| call.waited).collect();
    waits.sort();
    let percentile = |p: usize| waits[(made * p).div_ceil(100) - 1];
    let (p50, p99) = (percentile(50), percentile(99));
    let (picture, scale) = picture(&grants, span);

    println!("calls            {made}");
    println!("tasks            {tasks}");
    println!("429s             {refused}");
    println!("asked rate       {rate:.2} per second");
    println!("achieved rate    {achieved:.2} per second ({note})");
    println!("fullest second   {fullest} requests arrived, the server accepts {quota}");
    println!("waits            p50 {p50:.1?}, p99 {p99:.1?}");
    println!("grants           {picture}");
    println!("                 over {span:.2?}, {scale}");
}

/// The grants in each of sixty slices of the time, and what its columns stand for.
fn picture(grants: &[Duration], span: Duration) -> (String, String) {
    const SLICES: u32 = 60;
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    // A nanosecond more: the last grant belongs to the last slice, not behind it.
    let slice = span / SLICES + Duration::from_nanos(1);
    let before = |edge: u32| grants.partition_point(|grant| *grant < slice * edge);
    let counts: Vec<usize> = (0..SLICES).map(|i| before(i + 1) - before(i)).collect();
    let most = counts.iter().copied().fold(1, usize::max);
    // Rounded up: the lowest block is a slice without any grant.
    let block = |count: &usize| BLOCKS[(count * (BLOCKS.len() - 1)).div_ceil(most)];
    let scale = format!("each column is {slice:.1?}, the highest holds {most}");
    (counts.iter().map(block).collect(), scale)
}

/// The value of the last option, a number from `least` to `most`.
fn within(arguments: &mut lexopt::Parser, least: u32, most: u32) -> Result<u32, lexopt::Error> {
    let value = arguments.value()?.parse()?;
    let error = || format!("{value} is not from {least} to {most}").into();
    (least..=most).contains(&value).then_some(value).ok_or_else(error)
}

fn parse_rate(text: &str) -> Result<f64, Failure> {
    let rate = text.parse()?;
    Rate::try_per_second(rate)?;
    Ok(rate)
}

fn parse_seconds(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse()?;
    let usable = (0.001..=3600.0).contains(&seconds);
    usable.then(|| Duration::from_secs_f64(seconds)).ok_or("not from 0.001 to 3600".into())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, as it should
fn whole(number: f64) -> u32 {
    number.round() as u32
}
