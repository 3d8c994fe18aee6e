//! The key is lost, or holds something else.

use std::time::Instant;

use redis::Value;
use tollgate::redis::{Connection, RedisRateLimiter, State};
use tollgate::{Rate, TokenBucket};

use super::load::{Load, permits};
use super::report::{not_longer, not_over};
use super::{
    Events, HORIZON, KEY, Limiter, builder, bursty, eventually, ms, reconnecting, slow, store,
    stored, timed,
};
use crate::support::server::Server;

const RATE: f64 = 200.0;

/// Evicted, deleted, flushed: the debt is forgotten, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_deleted_again_and_again() {
    const TIMES: u64 = 5;
    let server = Server::start();
    let limiter = builder(bursty(RATE), reconnecting(&server.url())).build();
    let load = Load::start(&limiter, 50);
    for round in 1..=TIMES {
        eventually("some are granted", || limiter.stats().granted >= 60 * round).await;
        server.command(&["DEL", KEY]);
    }
    let log = load.stop().await;
    assert_eq!((log.errors().count(), limiter.counters().lost), (0, 0));
    assert_eq!(limiter.state(), State::Up);
    let each = permits(RATE, HORIZON) + 1.0;
    #[allow(clippy::cast_precision_loss)] // five
    let bound = each * TIMES as f64;
    not_over(log.excess(RATE, log.end - log.start), bound);
}

/// A bucket that is full when new grants its capacity once more, beside what is booked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_full_bucket_is_deleted() {
    const CAPACITY: u32 = 100;
    let server = Server::start();
    let policy = TokenBucket::new(Rate::per_second(RATE), CAPACITY);
    let limiter = RedisRateLimiter::new(policy, reconnecting(&server.url()), KEY);
    let start = Instant::now();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { while limiter.acquire(1).await.is_ok() {} })
        })
        .collect();
    eventually("the bucket is empty", || limiter.stats().granted >= 200).await;
    server.command(&["DEL", KEY]);
    eventually("it is empty again", || limiter.stats().granted >= 500).await;
    #[allow(clippy::cast_precision_loss)] // a few hundred
    let granted = limiter.stats().granted as f64;
    let allowed = f64::from(CAPACITY) + permits(RATE, start.elapsed());
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    not_over(granted - allowed, permits(RATE, HORIZON) + f64::from(CAPACITY) + 1.0);
}

/// The server has to throw keys away: nothing but the debt is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_evicted() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-random"]);
    let limiter = builder(slow(), reconnecting(&server.url())).build();
    limiter.acquire(1).await.expect("the first is prepaid");
    assert!(limiter.try_acquire(1).await.is_err());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // Any write makes the server look for room.
    drop(server.try_query::<Value>(&["SET", "another", "1"]));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(stored(&server).is_none());
    limiter.acquire(1).await.expect("that of a new limiter");
    assert_eq!(stored(&server).map(|stored| stored.level), Some(1e7));
    not_over(1.0, 1.0);
}

/// Each call fails at once if the key has foreign contents, and leaves them as they are.
async fn foreign<C: Connection>(name: &'static str, server: &Server, limiter: &Limiter<C>) {
    let dump = || server.query::<Value>(&["DUMP", KEY]);
    let before = dump();
    let mut longest = ms(0);
    for _ in 0..3 {
        let (answer, took) = timed(limiter.acquire(1)).await;
        let error = store(answer);
        assert!(!error.is_unavailable() && !error.may_have_charged(), "{error}");
        assert!(error.to_string().contains(KEY) && error.key() == KEY, "{error}");
        longest = longest.max(took);
        store(limiter.try_acquire(1).await);
        store(limiter.try_acquire_timeout(1, ms(5_000)).await);
        store(limiter.reserve(1).await);
        store(limiter.quota().await);
        store(limiter.pause_for(ms(1)).await);
    }
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Up, 0));
    // Other keys are not to blame.
    limiter.at(name).acquire(1).await.expect("granted");
    assert_eq!(dump(), before, "nothing was overwritten");
    server.command(&["DEL", KEY]);
    limiter.acquire(1).await.expect("the key is free now");
    not_longer(longest, ms(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type() {
    let server = Server::start();
    let limiter = builder(slow(), reconnecting(&server.url())).build();
    server.command(&["HSET", KEY, "field", "value"]);
    foreign("WRONGTYPE: a hash in the key", &server, &limiter).await;
    server.command(&["DEL", KEY]);
    server.command(&["RPUSH", KEY, "a", "b"]);
    foreign("WRONGTYPE: a list in the key", &server, &limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_with_junk_in_it() {
    let server = Server::start();
    for (name, junk) in [
        ("junk in the key: empty", &b""[..]),
        ("junk in the key: a number", b"42"),
        ("junk in the key: 28 bytes", b"abcdefghijklmnopqrstuvwxyz12"),
        ("junk in the key: 60 bytes", &[b'x'; 60]),
        ("junk in the key: 28 bytes of ones", &[0xff; 28]),
        ("junk in the key: 200 bytes of ones", &[0xff; 200]),
    ] {
        let limiter = builder(slow(), reconnecting(&server.url())).build();
        server.command(&["DEL", KEY]);
        server.command(&[b"SET", KEY.as_bytes(), junk]);
        foreign(name, &server, &limiter).await;
    }
}

#[test]
fn a_thread_gets_the_same_error() {
    let server = Server::start();
    server.command(&["RPUSH", KEY, "a"]);
    let limiter = builder(slow(), reconnecting(&server.url())).build();
    let error = store(limiter.blocking_acquire(1));
    assert!(!error.is_unavailable() && error.to_string().contains(KEY), "{error}");
    assert_eq!(limiter.state(), State::Up);
}

/// Setting a policy takes over what another limiter has written, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_not_set_over_junk() {
    let server = Server::start();
    for junk in [&b"42"[..], &[0xff; 200], b"abcdefghijklmnopqrstuvwxyz12"] {
        server.command(&[b"SET", KEY.as_bytes(), junk]);
        let limiter = builder(slow(), reconnecting(&server.url())).build();
        let error = store(limiter.set_rate(Rate::per_second(7.0)).await);
        assert!(!error.is_unavailable() && error.to_string().contains(KEY), "{error}");
        store(limiter.acquire(1).await);
        assert_eq!(server.query::<Vec<u8>>(&["GET", KEY]), junk, "nothing was overwritten");
    }
    // A process that knows a later policy finds junk in the key.
    server.command(&["DEL", KEY]);
    let events = Events::default();
    let limiter = builder(slow(), reconnecting(&server.url())).on_event(events.listener()).build();
    limiter.set_rate(Rate::per_second(7.0)).await.expect("set");
    for junk in [&[b'x'; 28][..], &[b'x'; 60]] {
        server.command(&[b"SET", KEY.as_bytes(), junk]);
        let error = store(limiter.acquire(1).await);
        assert!(!error.is_unavailable() && error.to_string().contains(KEY), "{error}");
        assert_eq!(server.query::<Vec<u8>>(&["GET", KEY]), junk, "nothing was overwritten");
    }
    assert_eq!(events.downs(), 0);
}
