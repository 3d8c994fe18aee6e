//! The cost of a call for the Redis server, and the gain of shared requests.
//!
//! `cargo bench --features redis --bench redis`; with `policies`, `alone`, `crowd`, `attack` or `overload` at the
//! end, only that part. Starts a server of its own. Floor B is a script that does `TIME`, `GET` and `SET`, measured just before each comparison; ratios are medians of several rounds, because the machine is not ours alone.
//!
//! With one request at a time, each caller is bounded by one round trip: at most `callers` permits
//! per round trip, whatever the limiter costs. The bench prints this bound, because it is not much
//! more than one request a permit gives if round trips are long and callers are few.

#[path = "redis/callers.rs"]
mod callers;
#[path = "../tests/redis/support/mod.rs"]
mod support;

#[path = "support/median.rs"]
mod median;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use median::median;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd};
use support::server::Server;
use tokio::runtime::{Builder, Runtime};
use tollgate::redis::{
    Connection, Failure, Reconnecting, RedisRateLimiter, Reply, Request, Scripted,
};
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
    fn run(&self, request: &Request) -> impl Future<Output = Result<Reply, Failure>> + Send {
        if let Ok(mut last) = self.last.lock() {
            *last = Some(request.command(false));
        }
        self.connection.run(request)
    }
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let bench = Bench::on("threads", Runtime::new());
    println!("redis-server {}", bench.server.info("server")["redis_version"]);
    if wants("policies") {
        bench.each_policy();
    }
    let one_thread = Bench::on("one thread", Builder::new_current_thread().enable_all().build());
    if wants("alone") {
        bench.round_trip();
        one_thread.round_trip();
    }
    if wants("crowd") {
        println!("\nmany callers of one limiter; against one request for each permit");
        for callers in [1, 4, 16, 64, 256, 1_024, 4_096] {
            bench.crowd(callers, false);
        }
        for callers in [16, 256] {
            bench.crowd(callers, true);
            one_thread.crowd(callers, false);
        }
        println!("\nas many connections as processes would have, each with callers of its own");
        for callers in [1, 16, 64] {
            bench.fleet(64, callers);
        }
    }
    if wants("attack") {
        bench.attack();
    }
    if wants("overload") {
        bench.overload();
    }
}

async fn connect(server: &Server) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("an address");
    let info = client.get_connection_info().clone();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(tcp)).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

struct Bench {
    name: &'static str,
    runtime: Runtime,
    server: Server,
    connection: MultiplexedConnection,
}

fn keys() -> impl Iterator<Item = String> + Clone {
    (0..KEYS).map(|key| format!("tollgate:{key:07}")).cycle()
}

impl Bench {
    fn on(name: &'static str, runtime: io::Result<Runtime>) -> Self {
        let runtime = runtime.expect("a runtime");
        let server = Server::start();
        let connection = runtime.block_on(connect(&server));
        Self { name, runtime, server, connection }
    }

    /// Microseconds of server time for each call of a script since the last reset.
    fn usec(&self) -> f64 {
        let (calls, usec) = self.server.commandstats("evalsha");
        usec as f64 / calls as f64
    }

    /// Microseconds of processor time that the server has used.
    fn server_cpu(&self) -> f64 {
        let info = self.server.info("cpu");
        let seconds = |name: &str| info[name].parse::<f64>().expect("seconds");
        1e6 * (seconds("used_cpu_sys") + seconds("used_cpu_user"))
    }

    /// Commands of raw scripts, many at a time.
    fn replay(&self, commands: &[Cmd]) {
        self.runtime.block_on(async {
            let mut connection = self.connection.clone();
            for chunk in commands.chunks(200) {
                let mut pipe = redis::pipe();
                for command in chunk {
                    pipe.add_command(command.clone()).ignore();
                }
                let _: () = pipe.query_async(&mut connection).await.expect("answers");
            }
        });
    }

    fn floor(&self) -> f64 {
        let script = redis::Script::new(FLOOR);
        self.server.command(&["SCRIPT", "LOAD", FLOOR]);
        let commands: Vec<Cmd> = keys()
            .take(CALLS)
            .map(|key| {
                let mut command = redis::cmd("EVALSHA");
                command.arg(script.get_hash()).arg(1).arg(format!("floor:{key}"));
                command
            })
            .collect();
        self.server.reset_stats();
        self.replay(&commands);
        self.usec()
    }

    /// The commands of calls for `cost` at many keys, without the limiter.
    fn commands<P: Scripted>(&self, policy: &P, cost: P::Cost) -> Vec<Cmd> {
        let tap = Tap { connection: self.connection.clone(), last: Arc::default() };
        let limiter = RedisRateLimiter::new(policy.clone(), tap.clone(), "tollgate:0000000");
        let mut commands = Vec::new();
        self.runtime.block_on(async {
            for key in keys().take(KEYS) {
                let _ = limiter.at(key).try_acquire(cost).await;
                commands.extend(tap.last.lock().ok().and_then(|mut last| last.take()));
            }
        });
        assert_eq!(commands.len(), KEYS, "one request for each call");
        commands.into_iter().cycle_times(CALLS / KEYS)
    }

    fn cost_of<P: Scripted>(&self, name: &str, policy: &P, cost: P::Cost) {
        self.server.command(&["FLUSHALL"]);
        let commands = self.commands(policy, cost);
        let first = keys().next().unwrap_or_default();
        let memory: u64 = self.server.query(&["MEMORY", "USAGE", &first]);
        let value: u64 = self.server.query(&["STRLEN", &first]);
        let ratios = (0..ROUNDS).map(|_| {
            let floor = self.floor();
            self.server.reset_stats();
            self.replay(&commands);
            self.usec() / floor
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
        let two = Same((TokenBucket::new(fast, u32::MAX), FixedWindow::new(u32::MAX, hour)));
        self.cost_of("Same((TokenBucket, FixedWindow))", &two, 1);
        let three = (
            TokenBucket::new(fast, u32::MAX),
            FixedWindow::new(u32::MAX, hour),
            InFlight::new(1 << 30),
        );
        self.cost_of("(TokenBucket, FixedWindow, InFlight)", &three, (1, 1, 1));
    }

    /// A call alone, against its request alone over a connection of the caller's runtime.
    fn round_trip(&self) {
        let own = self.connection.clone();
        let theirs = Reconnecting::open(&self.server.url()).expect("an address");
        self.alone("a connection of the runtime", own);
        self.alone("`Reconnecting`", theirs);
    }

    fn alone<C: Connection>(&self, name: &str, connection: C) {
        let policy = SmoothBursty::new(Rate::per_second(1e9));
        let command = self.commands(&policy, 1).swap_remove(0);
        let limiter = RedisRateLimiter::new(policy, connection, "alone");
        let time = |raw: bool| {
            let mut times: Vec<f64> = Vec::new();
            self.runtime.block_on(async {
                let mut connection = self.connection.clone();
                for _ in 0..2_000 {
                    let start = Instant::now();
                    if raw {
                        let _: redis::Value =
                            command.query_async(&mut connection).await.expect("an answer");
                    } else {
                        limiter.acquire(1).await.expect("granted");
                    }
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            });
            median(times)
        };
        let pairs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (time(true), time(false))).collect();
        let ratio = median(pairs.iter().map(|(raw, ours)| ours / raw).collect());
        let ours = median(pairs.iter().map(|pair| pair.1).collect());
        let own = self.name;
        println!("alone, {own}, {name:<30} us={ours:.0} x_request={ratio:.2}");
    }

    /// Calls with a timeout that is too short, behind callers that wait.
    fn overload(&self) {
        println!(
            "\na call with a timeout behind 100, 1,000 and 10,000 callers: bytes, and server time"
        );
        let (rate, span) = (Rate::new(1, Duration::from_secs(10)), Duration::from_secs(10));
        self.behind("SmoothBursty", &SmoothBursty::new(rate), 1);
        self.behind("SmoothWarmingUp", &SmoothWarmingUp::new(rate, span), 1);
        self.behind("TokenBucket", &TokenBucket::new(rate, 1), 1);
        self.behind("LeakyBucket", &LeakyBucket::meter(rate, 1), 1);
        self.behind("FixedWindow", &FixedWindow::new(1, span), 1);
        self.behind("SlidingWindowLog", &SlidingWindowLog::new(1, span), 1);
        self.behind("SlidingWindowCounter", &SlidingWindowCounter::new(1, span, 10), 1);
        let two = Same((TokenBucket::new(rate, 1), FixedWindow::new(1, span)));
        self.behind("Same((TokenBucket, FixedWindow))", &two, 1);
    }

    fn behind<P: Scripted>(&self, name: &str, policy: &P, cost: P::Cost) {
        let commands = [100, 1_000, 10_000].map(|waiting| {
            let tap = Tap { connection: self.connection.clone(), last: Arc::default() };
            let key = format!("{name} {waiting}");
            let limiter = RedisRateLimiter::new(policy.clone(), tap.clone(), key);
            self.runtime.block_on(async {
                let _first = limiter.acquire(cost).await.expect("granted");
                let waiters: Vec<_> =
                    (0..waiting).map(|_| tokio::spawn(limiter.acquire(cost))).collect();
                while limiter.queue_len() < waiting {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // The first refusal comes only after all ahead have the answer that they need.
                for _ in 0..2 {
                    let _ = limiter.try_acquire_timeout(cost, Duration::from_secs(1)).await;
                }
                waiters.iter().for_each(|waiter| waiter.abort());
            });
            let last = tap.last.lock().ok().and_then(|mut last| last.take());
            last.expect("a request")
        });
        let rounds: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let floor = self.floor();
                let times = commands.each_ref().map(|command| {
                    self.server.reset_stats();
                    self.replay(&vec![command.clone(); CALLS / 10]);
                    self.usec() / floor
                });
                (times[0], times[1] / times[0], times[2] / times[0])
            })
            .collect();
        let of = |pick: fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(pick).collect());
        let bytes = commands.map(|command| command.get_packed_command().len());
        println!(
            "{name:<40} {bytes:>4?} B {:>6.1} x floor B, then {:.2} and {:.2} x that",
            of(|round| round.0),
            of(|round| round.1),
            of(|round| round.2),
        );
    }
}

trait CycleTimes {
    fn cycle_times(self, times: usize) -> Vec<Cmd>;
}

impl<I: Iterator<Item = Cmd> + Clone> CycleTimes for I {
    fn cycle_times(self, times: usize) -> Vec<Cmd> {
        (0..times).flat_map(|_| self.clone()).collect()
    }
}
