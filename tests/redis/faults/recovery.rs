//! After an outage every key is back within a second of the first reply. In simulated time, but for one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::redis::{Connection, RedisRateLimiter, Request, State, StoreError};
use tollgate::{Clock, Error, SmoothBursty};

use super::report::is_back;
use super::{bursty, eventually, is, ms, reconnecting, store};
use crate::faults::wires::{is_take, lone, told};
use crate::support::lock;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;

/// After the first reply.
const BACK: Duration = ms(1_000);

/// How long the outage lasts.
const AWAY: Duration = ms(1_500);

/// Two nodes behind one connection, the second for keys that begin with `second:`. Keys that begin with
/// `forbidden:` are refused.
#[derive(Clone)]
struct Nodes(Arc<State_>);

struct State_ {
    start: Instant,
    trip: Duration,
    /// What a request to a node that is away gets.
    away: StoreError,
    /// When the nodes are back, in milliseconds from the start; 0 while they are there.
    back: [AtomicU64; 2],
    /// When the first request of each was answered after that.
    answered: Mutex<[Option<Instant>; 2]>,
    forbidden: AtomicUsize,
    requests: AtomicUsize,
}

impl Nodes {
    fn new(trip: Duration, away: StoreError) -> Self {
        Self(Arc::new(State_ {
            start: Instant::now(),
            trip,
            away,
            back: Default::default(),
            answered: Mutex::default(),
            forbidden: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
        }))
    }

    /// The node goes away now.
    fn leave(&self, node: usize) {
        let back = (self.0.start.elapsed() + AWAY).as_millis();
        self.0.back[node].store(u64::try_from(back).expect("seconds"), Ordering::SeqCst);
        lock(&self.0.answered)[node] = None;
    }

    fn is_away(&self, node: usize) -> bool {
        self.0.start.elapsed() < ms(self.0.back[node].load(Ordering::SeqCst))
    }

    /// When the first request was answered after the node was back.
    async fn first_reply(&self, node: usize) -> Instant {
        loop {
            if let Some(at) = lock(&self.0.answered)[node] {
                return at;
            }
            tokio::time::sleep(ms(1)).await;
        }
    }
}

impl Connection for Nodes {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let state = &self.0;
        state.requests.fetch_add(1, Ordering::SeqCst);
        let node = usize::from(request.key.starts_with("second:"));
        if self.is_away(node) {
            // A network that drops packets, or a system that refuses.
            let silent = state.away.may_have_charged();
            tokio::time::sleep(if silent { request.deadline } else { ms(1) }).await;
            return Err(state.away.clone());
        }
        tokio::time::sleep(state.trip).await;
        if self.is_away(node) {
            tokio::time::sleep(request.deadline.saturating_sub(state.trip)).await;
            return Err(StoreError::lost("cut"));
        }
        if request.key.starts_with("forbidden:") {
            state.forbidden.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::refused("NOPERM"));
        }
        if state.back[node].load(Ordering::SeqCst) > 0 {
            lock(&state.answered)[node].get_or_insert_with(Instant::now);
        }
        let is_probe = !is_take(request);
        Ok(if is_probe { told(&[0]) } else { lone(0) })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

type Limiter = RedisRateLimiter<SmoothBursty, Nodes>;

fn limiter(nodes: &Nodes) -> Limiter {
    let limiter = RedisRateLimiter::builder(bursty(1e9), nodes.clone(), "any");
    limiter.deadline(ms(500)).clock(Clock::tokio()).build()
}

struct Call {
    start: Instant,
    answer: Result<(), Error>,
}

/// Calls each key again and again, and returns all calls.
fn callers(limiter: &Limiter, keys: &str, count: usize, end: Instant) -> JoinHandle<Vec<Call>> {
    let callers: Vec<_> = (0..count)
        .map(|key| {
            let limiter = limiter.at(format!("{keys}:{key}"));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                // Not all at the same moment.
                tokio::time::sleep(Duration::from_micros(key as u64 * 997 % 300_000)).await;
                while Instant::now() < end {
                    let start = Instant::now();
                    let answer = limiter.acquire(1).await.map(drop);
                    calls.push(Call { start, answer });
                    tokio::time::sleep(ms(300)).await;
                }
                calls
            })
        })
        .collect();
    tokio::spawn(async move {
        let mut calls = Vec::new();
        for caller in callers {
            calls.extend(caller.await.expect("no panic"));
        }
        calls
    })
}

/// Asserts that there was an outage, and that no call fails later than a second after the first reply.
fn is_over(what: &str, calls: &[Call], first: Instant) {
    let failed = |call: &&Call| call.answer.is_err();
    assert!(calls.iter().filter(failed).count() > 500, "{what}: there was an outage");
    let later: Vec<_> = calls.iter().filter(|call| call.start > first + BACK).collect();
    let after = later.iter().filter(|call| call.answer.is_err()).count();
    assert!(later.len() > 500, "{what}: only {} calls", later.len());
    assert_eq!(after, 0, "{what}: failed of {}", later.len());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_are_back_within_a_second() {
    for (away, trip) in [(StoreError::lost("away"), 100), (StoreError::refused("away"), 1)] {
        let what = format!("{away:?}, {trip} ms");
        let nodes = Nodes::new(ms(trip), away);
        let limiter = limiter(&nodes);
        let calls = callers(&limiter, "first", 1_000, Instant::now() + ms(4_500));
        tokio::time::sleep(ms(500)).await;
        nodes.leave(0);
        let first = nodes.first_reply(0).await;
        let calls = calls.await.expect("no panic");
        is_over(&what, &calls, first);
        // Most of them at once.
        let soon = calls.iter().filter(|call| {
            call.start > first + ms(trip) && call.start < first + BACK && call.answer.is_err()
        });
        assert!(soon.count() < 300, "{what}");
    }
}

/// No key asks that no caller needs, however many have failed.
#[tokio::test(start_paused = true)]
async fn keys_that_no_caller_needs_do_not_ask_when_redis_is_back() {
    const KEYS: usize = 5_000;
    let nodes = Nodes::new(ms(1), StoreError::refused("away"));
    let limiter = limiter(&nodes);
    let calls = callers(&limiter, "first", KEYS, Instant::now() + ms(700));
    tokio::time::sleep(ms(500)).await;
    nodes.leave(0);
    drop(calls.await.expect("no panic"));
    assert_eq!(limiter.state(), State::Down);
    nodes.first_reply(0).await;
    let before = nodes.0.requests.load(Ordering::SeqCst);
    tokio::time::sleep(BACK).await;
    let after = nodes.0.requests.load(Ordering::SeqCst) - before;
    assert!(after < 600, "{after} requests for nothing");
    // Each of them is well at the next call.
    for key in [0, KEYS / 2, KEYS - 1] {
        limiter.at(format!("first:{key}")).acquire(1).await.expect("granted");
    }
}

/// Which keys are on the node is not known: each answer lets two more try.
#[tokio::test(start_paused = true)]
async fn the_keys_of_one_node_are_back_within_a_second() {
    for (away, trip) in [(StoreError::lost("away"), 100), (StoreError::refused("away"), 20)] {
        let what = format!("{away:?}, {trip} ms");
        let nodes = Nodes::new(ms(trip), away);
        let limiter = limiter(&nodes);
        let end = Instant::now() + ms(5_000);
        let others = callers(&limiter, "first", 100, end);
        let calls = callers(&limiter, "second", 1_000, end);
        tokio::time::sleep(ms(500)).await;
        nodes.leave(1);
        let first = nodes.first_reply(1).await;
        for call in others.await.expect("no panic") {
            call.answer.expect("its node was there");
        }
        is_over(&what, &calls.await.expect("no panic"), first);
        assert_eq!(limiter.state(), State::Up);
    }
}

/// Keys that fail for a reason of their own keep their pauses, and their 30 probes.
#[tokio::test(start_paused = true)]
async fn forbidden_keys_are_not_tried_more_often_because_others_are_answered() {
    let nodes = Nodes::new(ms(1), StoreError::refused("away"));
    let limiter = limiter(&nodes);
    let others = callers(&limiter, "first", 500, Instant::now() + ms(6_000));
    for key in 0..200 {
        let limiter = limiter.at(format!("forbidden:{key}"));
        tokio::spawn(async move { store(limiter.acquire(1).await) });
    }
    tokio::time::sleep(ms(1_000)).await;
    nodes.leave(0);
    nodes.first_reply(0).await;
    tokio::time::sleep(ms(100)).await;
    let (before, since) = (nodes.0.forbidden.load(Ordering::SeqCst), Instant::now());
    drop(others.await.expect("no panic"));
    let tried = nodes.0.forbidden.load(Ordering::SeqCst) - before;
    // A quarter of a second between two probes of a key, on average.
    let quarters = usize::try_from(since.elapsed().as_millis() / 250).expect("some");
    assert!(tried <= 200 * (quarters + 3), "{tried}");
    let before = nodes.0.forbidden.load(Ordering::SeqCst);
    let calls = callers(&limiter, "forbidden", 200, Instant::now() + ms(3_000));
    let others = callers(&limiter, "first", 100, Instant::now() + ms(3_000));
    drop((calls.await, others.await));
    let tried = nodes.0.forbidden.load(Ordering::SeqCst) - before;
    // Pauses of 1, 2, 4 .. 250 ms, and of a quarter of a second from then on.
    assert!(tried < 200 * (10 + 24), "{tried}");
}

/// The same over a real connection, by a way of 100 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_keys_are_back_on_a_real_server() {
    const KEYS: usize = 2_000;
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let limiter = super::builder(bursty(1e6), reconnecting(&proxy.url())).deadline(ms(2_000));
    let limiter = limiter.build();
    let keys: Vec<_> = (0..KEYS).map(|key| limiter.at(format!("{}:{key}", super::KEY))).collect();
    let each = async || {
        let calls = keys.iter().map(|key| key.acquire(1));
        let answers = futures::future::join_all(calls).await;
        answers.into_iter().filter(Result::is_err).count()
    };
    assert_eq!(each().await, 0);
    proxy.set(Mode::Refuse);
    proxy.cut();
    assert_eq!(each().await, KEYS);
    is(&limiter, State::Down).await;
    tokio::time::sleep(AWAY).await;
    assert_eq!(each().await, KEYS);
    proxy.set(Mode::DelayAnswers(ms(100)));
    let back = std::time::Instant::now();
    eventually("a key is back", || limiter.state() == State::Up).await;
    let first = back.elapsed();
    tokio::time::sleep(ms(200)).await;
    let failed = each().await;
    assert_eq!(failed, 0, "of {KEYS}");
    is_back(first);
}
