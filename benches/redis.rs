//! What does a call cost the Redis server, and what do shared requests gain?
//!
//! `cargo bench --features redis --bench redis`; with `policies` or `crowd` at the end only that part. It starts a server of
//! its own. Floor B is a script that does `TIME`, `GET` and `SET`, measured just before each comparison; ratios are
//! medians of several rounds, because the machine is not ours alone.

#[path = "support/median.rs"]
mod median;
#[path = "../tests/redis/support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use median::median;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd};
use support::server::Server;
use tokio::runtime::Runtime;
use tollgate::redis::{Connection, Reconnecting, RedisRateLimiter, Request, Scripted, StoreError};
use tollgate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, Rate, Same, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

const FLOOR: &str = "local t = redis.call('TIME') local v = redis.call('GET', KEYS[1]) \
                     redis.call('SET', KEYS[1], '1234567812345678123456781234') return 1";

const ROUNDS: usize = 9;
const CALLS: usize = 10_000;
const KEYS: usize = 1_000;

/// A connection that keeps the last request, so that it can be sent without a limiter, too.
#[derive(Clone)]
struct Tap {
    connection: MultiplexedConnection,
    last: Arc<Mutex<Option<Cmd>>>,
}

impl Connection for Tap {
    fn run(&self, request: &Request) -> impl Future<Output = Result<Vec<f64>, StoreError>> + Send {
        *self.last.lock().expect("no panic") = Some(request.command(false));
        self.connection.run(request)
    }
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let bench = Bench::start();
    println!("redis-server {}", bench.server.info("server")["redis_version"]);
    if wants("policies") {
        bench.each_policy();
    }
    if wants("crowd") {
        println!("\nmany callers of one limiter; against one request for each permit");
        [1, 4, 16, 64, 256, 1_024, 4_096].into_iter().for_each(|callers| bench.crowd(callers));
    }
}

struct Bench {
    runtime: Runtime,
    server: Server,
    connection: MultiplexedConnection,
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|key| format!("tollgate:{key:07}"))
}

impl Bench {
    fn start() -> Self {
        let (runtime, server) = (Runtime::new().expect("a runtime"), Server::start());
        let info = Client::open(server.url()).expect("an address").get_connection_info().clone();
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).expect("an address");
        let connection = runtime.block_on(client.get_multiplexed_async_connection());
        Self { runtime, server, connection: connection.expect("a connection") }
    }

    /// Microseconds of server time for each call of a script, many commands at a time.
    fn usec(&self, commands: &[Cmd]) -> f64 {
        let commands: Vec<_> = commands.iter().cycle().take(CALLS).collect();
        self.server.reset_stats();
        self.runtime.block_on(async {
            let mut connection = self.connection.clone();
            for chunk in commands.chunks(200) {
                let mut pipe = redis::pipe();
                for command in chunk {
                    pipe.add_command((*command).clone()).ignore();
                }
                let _: () = pipe.query_async(&mut connection).await.expect("answers");
            }
        });
        let (calls, usec) = self.server.commandstats("evalsha");
        usec as f64 / calls as f64
    }

    fn floor(&self) -> f64 {
        let script = redis::Script::new(FLOOR);
        self.server.command(&["SCRIPT", "LOAD", FLOOR]);
        let commands = keys().map(|key| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(script.get_hash()).arg(1).arg(format!("floor:{key}"));
            command
        });
        self.usec(&commands.collect::<Vec<_>>())
    }

    /// The command of a call for `cost` at each key, without the limiter.
    fn commands<P: Scripted>(&self, policy: &P, cost: P::Cost) -> Vec<Cmd> {
        let tap = Tap { connection: self.connection.clone(), last: Arc::default() };
        let limiter = RedisRateLimiter::new(policy.clone(), tap.clone(), "tollgate");
        let command = |key| {
            // It may be refused.
            let _ = self.runtime.block_on(limiter.at(key).try_acquire(cost));
            tap.last.lock().expect("no panic").take().expect("one request for each call")
        };
        keys().map(command).collect()
    }

    fn cost_of<P: Scripted>(&self, name: &str, policy: &P, cost: P::Cost) {
        self.server.command(&["FLUSHALL"]);
        let commands = self.commands(policy, cost);
        let first = keys().next().unwrap_or_default();
        let memory: u64 = self.server.query(&["MEMORY", "USAGE", &first]);
        let value: u64 = self.server.query(&["STRLEN", &first]);
        let ratios = (0..ROUNDS).map(|_| {
            let floor = self.floor();
            self.usec(&commands) / floor
        });
        let ratio = median(ratios.collect());
        println!("{name:<40} x_floor={ratio:.2} value_bytes={value} key_bytes={memory}");
    }

    fn each_policy(&self) {
        let (fast, slow) = (Rate::per_second(1e9), Rate::per_hour(1.0));
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        println!("\nserver time of one call (floor B: {:.2} us)", self.floor());
        self.cost_of("SmoothBursty, granted", &SmoothBursty::new(fast), 1);
        let strict = SmoothBursty::new(slow).max_burst(Duration::ZERO);
        self.cost_of("SmoothBursty, refused", &strict, 1);
        self.cost_of("SmoothWarmingUp, granted", &SmoothWarmingUp::new(fast, minute), 1);
        self.cost_of("TokenBucket, granted", &TokenBucket::new(fast, u32::MAX), 1);
        // Never full, so that it keeps how much of each charge may come back.
        self.cost_of("TokenBucket under load, granted", &TokenBucket::new(slow, u32::MAX), 1);
        let steps = TokenBucket::new(fast, u32::MAX).refill_every(Duration::from_secs(1));
        self.cost_of("TokenBucket in steps, granted", &steps, 1);
        self.cost_of("Gcra, granted", &Gcra::new(1_000_000, 1_000_000, minute), 1);
        self.cost_of("LeakyBucket, granted", &LeakyBucket::meter(fast, u32::MAX), 1);
        self.cost_of("FixedWindow, granted", &FixedWindow::new(u32::MAX, hour), 1);
        self.cost_of("SlidingWindowLog of 100, granted", &SlidingWindowLog::new(100, hour), 1);
        let counter = SlidingWindowCounter::new(u32::MAX, minute, 10);
        self.cost_of("SlidingWindowCounter of 10, granted", &counter, 1);
        self.cost_of("InFlight, granted", &InFlight::new(u32::MAX), 1);
        let (bucket, window) = (TokenBucket::new(fast, u32::MAX), FixedWindow::new(u32::MAX, hour));
        let two = Same((bucket.clone(), window.clone()));
        self.cost_of("Same((TokenBucket, FixedWindow))", &two, 1);
        let three = (bucket, window, InFlight::new(1 << 30));
        self.cost_of("(TokenBucket, FixedWindow, InFlight)", &three, (1, 1, 1));
    }

    /// Many callers of one limiter, against one request for each permit on one connection.
    fn crowd(&self, callers: u32) {
        let policy = SmoothBursty::new(Rate::per_second(1e9));
        let command = self.commands(&policy, 1).swap_remove(0);
        let connection = Reconnecting::open(&self.server.url()).expect("an address");
        let limiter = RedisRateLimiter::new(policy, connection, "crowd");
        // Permits a second, and permits a request.
        let run = |shared: bool| {
            self.server.reset_stats();
            let start = Instant::now();
            let call = || {
                let (limiter, command) = (limiter.clone(), command.clone());
                let mut connection = self.connection.clone();
                tokio::spawn(async move {
                    let mut permits = 0.0;
                    while start.elapsed() < Duration::from_millis(250) {
                        if shared {
                            limiter.acquire(1).await.expect("granted");
                        } else {
                            let _: redis::Value =
                                command.query_async(&mut connection).await.expect("an answer");
                        }
                        permits += 1.0;
                    }
                    permits
                })
            };
            let permits: f64 = self.runtime.block_on(async {
                let tasks: Vec<_> = (0..callers).map(|_| call()).collect();
                futures::future::join_all(tasks)
                    .await
                    .into_iter()
                    .map(|it| it.expect("no panic"))
                    .sum()
            });
            let rate = permits / start.elapsed().as_secs_f64();
            let (requests, _) = self.server.commandstats("evalsha");
            (rate, permits / requests as f64)
        };
        let rounds: Vec<_> = (0..ROUNDS).map(|_| (run(false), run(true))).collect();
        let shared = median(rounds.iter().map(|(_, shared)| shared.0).collect());
        let x_single = median(rounds.iter().map(|(single, shared)| shared.0 / single.0).collect());
        let in_one = median(rounds.iter().map(|(_, shared)| shared.1).collect());
        println!(
            "callers/{callers:<5} permits_a_second={shared:.0} x_single={x_single:.1} permits_a_request={in_one:.1}"
        );
    }
}
