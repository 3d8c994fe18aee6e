//! What an operator asks of a key and does to it.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use redis::AsyncConnectionConfig;
use tollgate::redis::{Reconnecting, RedisRateLimiter, Scripted};
use tollgate::{Error, Rate, SlidingWindowCounter, SlidingWindowLog, TokenBucket};

use super::{KEY, builder, ms, reconnecting, served, slow, store};
use crate::support::server::Server;
use crate::support::{LIMIT, lock};

fn bucket(server: &Server, key: &str) -> RedisRateLimiter<TokenBucket> {
    let policy = TokenBucket::new(Rate::per_minute(1.0), 10);
    RedisRateLimiter::new(policy, reconnecting(&server.url()), key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_key_is_that_in_redis() {
    let server = Server::start();
    let limiter = bucket(&server, "tokens");
    let state = limiter.inspect().await.expect("a state");
    assert_eq!((state.quota.remaining, state.expires_in), (10, None));
    limiter.try_acquire(7).await.expect("a full bucket");
    let elsewhere = bucket(&server, "tokens");
    let state = elsewhere.inspect().await.expect("a state");
    assert_eq!((state.policy, state.quota.remaining), (elsewhere.policy(), 3));
    assert!(state.paused_for.is_zero());
    assert!(state.expires_in.is_some_and(|time| time > ms(60_000)));
    limiter.pause_for(ms(60_000)).await.expect("a pause");
    let state = elsewhere.inspect().await.expect("a state");
    assert_eq!(state.quota.remaining, 0);
    assert!(state.paused_for > ms(30_000) && state.paused_for <= ms(60_000));
}

/// The same lines of the script serve both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_and_a_counter_do_not_take_the_key_of_each_other() {
    async fn state<P: Scripted<Cost = u32>>(server: &Server, policy: P, key: &str) -> Option<P> {
        let limiter = RedisRateLimiter::new(policy, reconnecting(&server.url()), key);
        match limiter.inspect().await {
            Ok(state) => Some(state.policy),
            Err(Error::Store(error)) if !error.is_unavailable() => None,
            Err(error) => panic!("{error}"),
        }
    }
    async fn take<P: Scripted<Cost = u32>>(server: &Server, policy: &P, key: &str) {
        let limiter = RedisRateLimiter::new(policy.clone(), reconnecting(&server.url()), key);
        limiter.try_acquire(1).await.expect("granted");
    }
    let server = Server::start();
    let (log, counter) = (SlidingWindowLog::new, SlidingWindowCounter::new);
    take(&server, &log(7, ms(5_000)), "log").await;
    take(&server, &counter(7, ms(5_000), 5), "counter").await;
    assert_eq!(state(&server, log(1, ms(1)), "log").await, Some(log(1, ms(1))));
    assert_eq!(state(&server, counter(1, ms(1), 1), "log").await, None);
    assert_eq!(state(&server, log(1, ms(1)), "counter").await, None);
    let known = state(&server, counter(1, ms(1), 1), "counter").await;
    assert_eq!(known, Some(counter(1, ms(1), 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_heard_by_other_processes_within_a_second() {
    let server = Server::start();
    let (limiter, elsewhere) = (bucket(&server, "tokens"), bucket(&server, "tokens"));
    limiter.try_acquire(10).await.expect("a full bucket");
    assert!(matches!(elsewhere.try_acquire(1).await, Err(Error::Denied { .. })));
    limiter.reset().await.expect("a reset");
    assert_eq!(limiter.inspect().await.expect("a state").expires_in, None);
    let start = Instant::now();
    while elsewhere.try_acquire(1).await.is_err() {
        assert!(start.elapsed() < ms(2_000), "it still refuses by its cache");
        tokio::time::sleep(ms(10)).await;
    }
}

/// A request is in flight, so the two that follow wait together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_reset_is_not_deleted_with_the_key() {
    let server = Server::start();
    let limiter = bucket(&server, "tokens");
    limiter.try_acquire(7).await.expect("a full bucket");
    let pause = limiter.pause_for(ms(60_000));
    let (quota, reset, pause) = tokio::join!(limiter.quota(), limiter.reset(), pause);
    assert_eq!(quota.expect("a quota").remaining, 3);
    reset.expect("a reset");
    pause.expect("a pause");
    let state = limiter.inspect().await.expect("a state");
    assert!(state.paused_for > ms(30_000), "{state:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_program_is_not_reset() {
    let server = Server::start();
    server.command(&["SET", "tokens", "something else"]);
    let error = bucket(&server, "tokens").reset().await.expect_err("it is not ours");
    assert!(matches!(error, Error::Store(error) if !error.is_unavailable()));
    assert_eq!(server.query::<String>(&["GET", "tokens"]), "something else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_fails_while_the_server_is_away_and_writes_nothing() {
    let server = Server::start();
    let limiter = builder(slow(), reconnecting(&server.url())).build();
    limiter.ping().await.expect("it answers");
    assert_eq!(server.query::<u32>(&["EXISTS", KEY]), 0);
    server.kill();
    let error = limiter.ping().await.expect_err("it is away");
    assert!(matches!(error, Error::Store(error) if error.is_unavailable()));
    server.restart();
    let start = Instant::now();
    while limiter.ping().await.is_err() {
        assert!(start.elapsed() < LIMIT, "the server is back");
    }
}

/// A read-only replica, one without the replicas that it needs, one that is full, and a user who may not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_fails_where_no_permit_can_be_granted() {
    let server = Server::start();
    let limiter = builder(slow(), reconnecting(&server.url())).build();
    for (code, set, unset) in [
        (
            "READONLY",
            ["REPLICAOF", "127.0.0.1", "1"].as_slice(),
            ["REPLICAOF", "NO", "ONE"].as_slice(),
        ),
        (
            "NOREPLICAS",
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        ("OOM", &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (
            "CAN'T RUN",
            &["ACL", "SETUSER", "default", "-set", "-setrange"],
            &["ACL", "SETUSER", "default", "+@all"],
        ),
    ] {
        server.command(set);
        let error = store(limiter.ping().await.map(|()| panic!("{code}")));
        let why = error.source().expect("a cause").to_string();
        assert!(why.to_uppercase().contains(code) && !error.may_have_charged(), "{code}: {why}");
        server.command(unset);
        let start = Instant::now();
        while limiter.ping().await.is_err() {
            assert!(start.elapsed() < LIMIT, "{code} is over");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_show_what_an_operator_watches() {
    let server = Server::start();
    let connection = reconnecting(&server.url());
    let policy = TokenBucket::new(Rate::per_second(1_000.0), 1_000);
    let limiter =
        RedisRateLimiter::builder(policy, connection.clone(), "tokens").deadline(ms(300)).build();
    for _ in 0..20 {
        limiter.acquire(1).await.expect("granted");
    }
    let counters = limiter.counters();
    assert_eq!((counters.requests, counters.failed), (20, 0));
    assert_eq!((connection.connections(), limiter.len()), (1, 1));

    server.restart();
    served(&limiter).await;
    assert_eq!(connection.connections(), 2);
    assert!(limiter.counters().failed > 0);
}

/// As for a Sentinel: each new connection is to the server that the function names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_connects_is_asked_where_the_server_is_now() {
    let (first, second) = (Server::start(), Server::start());
    let client = Arc::new(Mutex::new(first.client()));
    let current = Arc::clone(&client);
    let connection = Reconnecting::with(move || {
        let client = lock(&current).clone();
        async move {
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            client.get_multiplexed_async_connection_with_config(&config).await
        }
    });
    let policy = TokenBucket::new(Rate::per_second(1_000.0), 1_000);
    let limiter = RedisRateLimiter::new(policy, connection, "tokens");
    limiter.acquire(1).await.expect("granted");
    *lock(&client) = second.client();
    first.kill();
    served(&limiter).await;
    assert_eq!(second.query::<u32>(&["EXISTS", "tokens"]), 1);
}

/// The commands in the head of the script: the first takes a permit, the second asks for the state.
#[test]
fn the_script_runs_as_its_head_says() {
    let server = Server::start();
    let script =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../src/redis/script/limit.lua"));
    let commands = script.lines().filter_map(|line| line.split_once("--eval limit.lua KEY , '"));
    let replies: Vec<Vec<i64>> = commands
        .map(|(_, arguments)| {
            let (format, words) = arguments.split_once('\'').expect("a format");
            let command = ["EVAL", script, "1", KEY, format].into_iter();
            server.query(&command.chain(words.split_whitespace()).collect::<Vec<_>>())
        })
        .collect();
    // A new bucket stores nothing and owes nothing: the first permit is there.
    let [taken, state] = replies.try_into().expect("two commands");
    assert_eq!((taken[0], &taken[2..]), (1, &[0][..]));
    // Nothing is left of a store of five, nothing is paused, and the key is there.
    assert_eq!((&state[2..4], state[5]), (&[0, 5][..], 0));
    assert!(state[4] > 1_000_000 && state[6] > 0, "{state:?}");
}
