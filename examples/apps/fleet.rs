//! Eight processes call one HTTP API through one limiter that they share by a Redis server, while
//! some of them are killed:
//!
//! ```text
//! cargo run --release -p examples --bin fleet             # half a minute
//! cargo run --release -p examples --bin fleet -- --quick  # eight seconds
//! ```
//!
//! The API answers `429 Too Many Requests` above its quota in any sliding second. One worker is killed,
//! and the others take over its share; then Redis is, and each goes on with an eighth of the rate by
//! itself; then Redis comes back with nothing in it. With `REDIS_URL` set that server is used, and left
//! alone.

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use tokio::runtime::Builder;

#[path = "../demo_server/mod.rs"]
mod demo_server;
#[path = "fleet/report.rs"]
mod report;
#[path = "../../tests/redis/support/mod.rs"]
mod support;
#[path = "fleet/view.rs"]
mod view;
#[path = "fleet/worker.rs"]
mod worker;
#[path = "fleet/workers.rs"]
mod workers;

use demo_server::DemoServer;
use report::{Phase, Redis, Report};
use support::server::Server;
use view::View;
use workers::Workers;

const WORKERS: u32 = 8;
/// The interval at which the workers' output is read.
const FRAME: Duration = Duration::from_millis(100);

type Failure = Box<dyn Error + Send + Sync>;

/// Eight processes share a quota through Redis; one of them, and Redis, are killed and come back.
#[derive(Parser)]
struct Options {
    /// Calls per second that all workers together may make
    #[arg(long, value_name = "PER_SECOND", default_value = "200", value_parser = value_parser!(u32).range(8..=5_000))]
    rate: u32,

    /// Eight seconds instead of half a minute
    #[arg(long)]
    quick: bool,

    /// The arguments of a worker, which is this program again
    #[arg(long, hide = true, num_args = 4)]
    worker: Option<Vec<String>>,
}

impl Options {
    /// The API's limit in any sliding second: a fifth above the rate, because a busy machine delays
    /// some calls of one second into the next.
    fn quota(&self) -> u32 {
        self.rate + self.rate / 5
    }

    fn seconds(&self, long: u32, quick: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { quick } else { f64::from(long) })
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.worker {
        Some(words) => worker::run(words).map(|()| true),
        None => run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("fleet: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all checks passed.
fn run(options: &Options) -> Result<bool, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let api = runtime.block_on(DemoServer::start(options.quota()))?;
    // Theirs is left alone.
    let theirs = std::env::var("REDIS_URL").ok();
    let redis = theirs.is_none().then(Server::start);
    let address = redis.as_ref().map(Server::url).or(theirs).unwrap_or_default();

    println!(
        "{WORKERS} workers share {} calls a second; the API accepts {} in any second",
        options.rate,
        options.quota(),
    );
    let mut workers = Workers::start(WORKERS, &api.url(), &address, options.rate)?;
    let view = View::new(WORKERS, options.rate);
    let mut phases = Vec::new();
    let share = f64::from(options.rate) / f64::from(WORKERS);
    let all = f64::from(options.rate);

    let play = |name, redis, asked, lasts: Duration, workers: &Workers| {
        view.say(name);
        let start = Instant::now();
        while start.elapsed() < lasts {
            thread::sleep(FRAME.min(lasts.saturating_sub(start.elapsed())));
            view.draw(workers);
        }
        Phase { name, start, end: Instant::now(), asked, workers: workers.alive(), redis }
    };

    workers.wait_for_all(Duration::from_secs(10))?;
    let lasts = options.seconds(6, 2.0);
    phases.push(play("all eight", Redis::Up, all, lasts, &workers));

    workers.kill(2);
    let lasts = options.seconds(6, 2.0);
    phases.push(play("worker 3 is killed", Redis::Up, all, lasts, &workers));

    if let Some(redis) = &redis {
        redis.kill();
        let lasts = options.seconds(5, 1.6);
        let alone = share * f64::from(workers.alive());
        phases.push(play("Redis is killed", Redis::Down, alone, lasts, &workers));

        redis.restart();
        let lasts = options.seconds(6, 2.5);
        phases.push(play("Redis is back, empty", Redis::Back, all, lasts, &workers));
    } else {
        println!("REDIS_URL is set: its server is not killed");
    }
    view.end();
    let calls = workers.stop();
    let fullest = runtime.block_on(api.stop())?;
    let report = Report { calls, phases, rate: all, quota: options.quota(), fullest };
    report.print();
    Ok(report.is_good())
}
