//! A process is killed while it works: its bookings and places are lost, and the others go on.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::InFlight;
use tollgate::redis::RedisRateLimiter;

use super::load::{Load, permits};
use super::report::{is_back, not_over, not_under};
use super::{KEY, Limiter, SLACK, builder, bursty, ms, reconnecting, stored};
use crate::support::server::Server;

const RATE: f64 = 100.0;
const AHEAD: Duration = ms(500);
const LEASE: Duration = ms(900);
const URL: &str = "TOLLGATE_FAULTS_URL";

fn limiter(url: &str) -> Limiter {
    builder(bursty(RATE), reconnecting(url)).horizon(AHEAD).build()
}

fn places(url: &str) -> RedisRateLimiter<InFlight, super::Reconnecting> {
    RedisRateLimiter::builder(InFlight::new(5), reconnecting(url), KEY).lease(LEASE).build()
}

/// This program once more, as a process that runs one of the tests below. Killed when this is dropped.
struct Other(Child);

impl Other {
    /// Returns when it says that it is ready.
    fn run(test: &str, server: &Server) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([&format!("faults::processes::{test}"), "--exact", "--ignored", "--nocapture"])
            .env(URL, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let is_ready = |line: &str| line.ends_with("ready");
        let ready = output.lines().map_while(Result::ok).any(|line| is_ready(&line));
        let other = Self(child);
        assert!(ready, "it has ended");
        other
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is our child");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Killed already, most often.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process: says that it is ready, and stays until it is killed or its parent has gone.
fn stay() {
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by `a_process_killed_with_tickets`, as another process"]
async fn holds_tickets() {
    let Ok(url) = env::var(URL) else { return };
    let limiter = limiter(&url);
    let load = Load::start(&limiter, 300);
    super::eventually("some are granted", || limiter.stats().granted >= 20).await;
    tokio::task::spawn_blocking(stay).await.expect("no panic");
    load.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_with_tickets() {
    let server = Server::start();
    let other = Other::run("holds_tickets", &server);
    let limiter = limiter(&server.url());
    let start = Instant::now();
    limiter.acquire(1).await.expect("granted beside the other");
    assert!(start.elapsed() < AHEAD * 2 + SLACK, "{:?}", start.elapsed());
    other.kill();
    let killed = Instant::now();
    let wasted = stored(&server).expect("the key is there").level * RATE / 1e6;
    limiter.acquire(1).await.expect("granted");
    let first = killed.elapsed();
    assert!(first <= AHEAD + SLACK, "{first:?}");
    for _ in 0..30 {
        limiter.acquire(1).await.expect("granted");
    }
    let all = killed.elapsed();
    assert!(all <= AHEAD + Duration::from_secs_f64(31.0 / RATE) + SLACK, "{all:?}");
    not_over(super::load::excess(31, RATE, all), 0.0);
    not_under(wasted, permits(RATE, AHEAD) + 1.0);
    is_back(first.saturating_sub(AHEAD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by `a_process_killed_with_places`, as another process"]
async fn holds_places() {
    let Ok(url) = env::var(URL) else { return };
    let limiter = places(&url);
    let mut grants = Vec::new();
    for _ in 0..5 {
        grants.push(limiter.acquire(1).await.expect("a place"));
    }
    tokio::task::spawn_blocking(stay).await.expect("no panic");
    drop(grants);
}

/// Its places are free when its lease has ended, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_with_places() {
    let server = Server::start();
    let other = Other::run("holds_places", &server);
    let limiter = places(&server.url());
    // Longer than a lease: it is renewed while the process lives.
    let full = limiter.try_acquire_timeout(1, LEASE * 2).await;
    assert!(matches!(full, Err(tollgate::Error::Denied { .. })), "{full:?}");
    other.kill();
    let killed = Instant::now();
    let mut grants = vec![limiter.acquire(1).await.expect("a place")];
    let first = killed.elapsed();
    // Renewed each third of it, so that much is left of it at least.
    assert!(first >= LEASE / 2, "{first:?}");
    assert!(first <= LEASE + SLACK, "{first:?}");
    for _ in 0..4 {
        grants.push(limiter.acquire(1).await.expect("a place"));
    }
    assert!(limiter.try_acquire(1).await.is_err(), "five, and no more");
    drop(grants);
    not_under(5.0, 5.0);
    is_back(first.saturating_sub(LEASE));
}
