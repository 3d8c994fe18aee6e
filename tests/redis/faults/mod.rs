//! The cost of each fault: the answer that callers get, the permits granted too much or too little,
//! and the time until service is back.

mod bounds;
mod by_hand;
#[cfg(target_os = "linux")]
mod clock_steps;
mod cluster;
mod crowds;
mod denials;
mod failover;
mod idle;
mod keys;
mod leaving;
mod load;
mod long_logs;
mod mute_node;
mod network;
mod operators;
mod policies;
mod processes;
mod recovery;
mod refusals;
mod report;
mod restart;
mod said;
mod sender;
mod settling;
mod waiting;
mod wakers;
mod watchdog;
mod wires;
mod without;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use tollgate::redis::{Connection, Reconnecting, RedisRateLimiter, Scripted, State, StoreError};
use tollgate::{Error, Event, Rate, RateLimiterBuilder, SmoothBursty};

use crate::support::server::Server;
use crate::support::{LIMIT, lock};

type Limiter<C = Reconnecting> = RedisRateLimiter<SmoothBursty, C>;

const KEY: &str = "quota:faults";

/// The slack for late requests and wake-ups on a busy machine.
const SLACK: Duration = Duration::from_millis(1000);

/// The largest store, as time at the rate.
const BURST: Duration = Duration::from_millis(50);

/// The default horizon.
const HORIZON: Duration = Duration::from_millis(250);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn bursty(per_second: f64) -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(per_second)).max_burst(BURST)
}

/// One permit each ten seconds: too little time passes to hide a charge or a refund.
fn slow() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(0.1)).max_burst(Duration::ZERO)
}

fn reconnecting(url: &str) -> Reconnecting {
    Reconnecting::open(url).expect("the URL is one")
}

/// Its own waits between two attempts are seconds unless they are chosen.
async fn manager(url: &str) -> ConnectionManager {
    let client = redis::Client::open(url).expect("the URL is one");
    let config = ConnectionManagerConfig::new()
        .set_min_delay(ms(10))
        .set_max_delay(ms(50))
        .set_response_timeout(None);
    client.get_connection_manager_with_config(config).await.expect("the server is there")
}

async fn multiplexed(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("the URL is one");
    client.get_multiplexed_async_connection().await.expect("the server is there")
}

fn builder<C: Connection>(policy: SmoothBursty, connection: C) -> RateLimiterBuilder<Limiter<C>> {
    Limiter::builder(policy, connection, KEY)
}

/// The events of a limiter.
#[derive(Clone, Debug, Default)]
struct Events(Arc<Mutex<Vec<(Instant, Event)>>>);

impl Events {
    fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let events = self.clone();
        move |event| lock(&events.0).push((Instant::now(), event.clone()))
    }

    fn downs(&self) -> usize {
        self.when(|event| matches!(event, Event::Down { .. })).len()
    }

    /// What the events that Redis is down say.
    fn whys(&self) -> Vec<String> {
        let events = lock(&self.0);
        let downs = events.iter().filter(|(_, event)| matches!(event, Event::Down { .. }));
        downs.map(|(_, event)| event.to_string()).collect()
    }

    fn ups(&self) -> usize {
        self.when(|event| matches!(event, Event::Up { .. })).len()
    }

    /// Clears the log of events.
    fn clear(&self) {
        lock(&self.0).clear();
    }

    /// When another's policy was adopted, and its generation.
    fn adopted(&self) -> Vec<(Instant, u32)> {
        let events = lock(&self.0);
        let adopted = events.iter().filter_map(|(at, event)| match event {
            Event::PolicyAdopted { generation, .. } => Some((*at, *generation)),
            _ => None,
        });
        adopted.collect()
    }

    fn when(&self, is: impl Fn(&Event) -> bool) -> Vec<Instant> {
        lock(&self.0).iter().filter(|(_, event)| is(event)).map(|&(at, _)| at).collect()
    }
}

/// The state in the key, of [`SmoothBursty`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    /// The lower bits of a number that is one more with each charge.
    sequence: u32,
    /// For how long the permits last that were taken beyond the time of the last charge, in microseconds.
    level: f64,
}

fn stored(server: &Server) -> Option<Stored> {
    let bytes: Vec<u8> = server.query::<Option<Vec<u8>>>(&["GET", KEY])?;
    let number = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the lower bits
    let sequence = number(12) as u64 as u32;
    Some(Stored { sequence, level: number(28) })
}

#[track_caller]
fn sequence(server: &Server) -> u32 {
    stored(server).expect("the key is there").sequence
}

/// The error of a store.
#[track_caller]
fn store<T>(answer: Result<T, Error>) -> StoreError {
    match answer {
        Err(Error::Store(error)) => *error,
        Err(error) => panic!("not the store's: {error}"),
        Ok(_) => panic!("granted"),
    }
}

#[track_caller]
fn denied<T>(answer: Result<T, Error>) -> Duration {
    match answer {
        Err(error @ Error::Denied { .. }) => error.retry_after().expect("time tells"),
        Err(error) => panic!("not denied: {error}"),
        Ok(_) => panic!("granted"),
    }
}

/// Polls until `done`, and panics rather than wait for more than [`LIMIT`].
async fn eventually(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
    start.elapsed()
}

async fn is<C: Connection>(limiter: &Limiter<C>, state: State) -> Duration {
    eventually(&format!("the state is {state:?}"), || limiter.state() == state).await
}

/// Retries until Redis grants a permit, and returns the time that took.
async fn served<P, C>(limiter: &RedisRateLimiter<P, C>) -> Duration
where
    P: Scripted<Cost = u32>,
    C: Connection,
{
    let start = Instant::now();
    loop {
        let answer = limiter.acquire(1).await;
        if answer.is_ok_and(|grant| grant.is_shared()) {
            return start.elapsed();
        }
        assert!(start.elapsed() < LIMIT, "not served within {LIMIT:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

/// The connection is made and the script known, however long that takes on a busy machine.
async fn warm<C: Connection>(limiter: &Limiter<C>, events: &Events) {
    served(limiter).await;
    is(limiter, State::Up).await;
    events.clear();
}

/// The answer, and how long it took.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let answer = call.await;
    (answer, start.elapsed())
}
