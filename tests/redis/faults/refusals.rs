//! The server is up and refuses: nothing was charged, and callers get the error within the
//! deadline.

use std::time::{Duration, Instant};

use redis::RedisError;
use tollgate::redis::{Connection, RedisRateLimiter, State};
use tollgate::{InFlight, Rate, TokenBucket};

use super::report::{is_back, not_longer};
use super::{
    Events, KEY, Limiter, builder, bursty, is, manager, ms, reconnecting, store, stored, timed,
};
use crate::support::server::Server;

const DEADLINE: Duration = ms(500);

/// Callers get `code`, the first within the deadline and the others at once, as long as the fault
/// lasts. Then `mend` repairs the server.
async fn refused<C: Connection>(
    code: &str,
    server: &Server,
    connection: C,
    mend: impl AsyncFnOnce(),
) -> Limiter<C> {
    let events = Events::default();
    let limiter =
        builder(bursty(1000.0), connection).deadline(DEADLINE).on_event(events.listener()).build();
    let before = stored(server);
    let start = Instant::now();
    let (answer, mut longest) = timed(limiter.acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert_eq!(error.key(), KEY);
    let source = std::error::Error::source(&error).expect("what the server said");
    let source = source.downcast_ref::<RedisError>().expect("what the server said");
    assert!(source.to_string().contains(code), "{source}");
    is(&limiter, State::Down).await;
    while start.elapsed() < ms(1_200) {
        let (answer, took) = timed(limiter.try_acquire(1)).await;
        assert!(!store(answer).may_have_charged());
        assert!(took < ms(100), "later callers fail at once: {took:?}");
        longest = longest.max(took);
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!((events.downs(), events.ups()), (1, 0), "it is down all the time");
    assert!(events.whys()[0].contains(code), "{:?}", events.whys());
    assert_eq!((stored(server), limiter.counters().lost), (before, 0));
    mend().await;
    let back = is(&limiter, State::Up).await;
    limiter.acquire(1).await.expect("granted again");
    assert_eq!((events.downs(), events.ups()), (1, 1));
    not_longer(longest, DEADLINE);
    is_back(back);

    limiter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let connection = reconnecting(&server.url());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let mend = async || drop(server.command(&["CONFIG", "SET", "maxmemory", "0"]));
    refused("OOM", &server, connection.clone(), mend).await;
    assert_eq!(connection.connections(), 1, "a refusal is no reason to connect anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_keeps_the_server_busy() {
    // The name that every version knows.
    let server = Server::with(&["--lua-time-limit", "20"]);
    let mut other = server.client().get_connection().expect("the server is there");
    let endless = redis::cmd("EVAL").arg("while true do end").arg(0).get_packed_command();
    other.send_packed_command(&endless).expect("it is open");
    // Before that it does not answer at all.
    crate::support::until("the server says that it is busy", || {
        let answer = server.try_query::<redis::Value>(&["GET", KEY]);
        answer.is_err_and(|error| error.code() == Some("BUSY"))
    });
    let events = Events::default();
    let limiter = builder(bursty(1000.0), reconnecting(&server.url()))
        .deadline(DEADLINE)
        .on_event(events.listener())
        .build();
    let (answer, longest) = timed(limiter.acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    is(&limiter, State::Down).await;
    let (answer, took) = timed(limiter.acquire(1)).await;
    store(answer);
    assert!(took < ms(100), "later callers fail at once: {took:?}");
    server.command(&["SCRIPT", "KILL"]);
    let back = is(&limiter, State::Up).await;
    limiter.acquire(1).await.expect("granted again");
    assert_eq!((events.downs(), events.ups(), limiter.counters().lost), (1, 1, 0));
    not_longer(longest, DEADLINE);
    is_back(back);
}

/// The address of a user with the permissions of `rules`.
fn user(server: &Server, rules: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "limited", "reset", "on", ">secret"], rules].concat();
    server.command(&words);
    format!("redis://limited:secret@127.0.0.1:{}/", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission_to_run_scripts() {
    let server = Server::start();
    let url = user(&server, &["~*", "+@all", "-evalsha"]);
    let mend = async || drop(server.command(&["ACL", "SETUSER", "limited", "+evalsha"]));
    refused("NoPerm", &server, reconnecting(&url), mend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission_for_the_key() {
    let server = Server::start();
    let url = user(&server, &["~elsewhere:*", "+@all"]);
    let mend = async || drop(server.command(&["ACL", "SETUSER", "limited", "~quota:*"]));
    refused("NoPerm", &server, reconnecting(&url), mend).await;
}

/// The rules that follow `ACL SETUSER tollgate ` in `docs/redis.md`, from the line that ends in `last`.
pub(super) fn documented_rules(last: &str) -> Vec<&'static str> {
    let documentation = include_str!("../../../docs/redis.md");
    let mut lines =
        documentation.lines().filter_map(|line| line.strip_prefix("ACL SETUSER tollgate "));
    let rules = lines.find(|rules| rules.ends_with(last)).expect("the rules");
    rules.split(' ').filter(|&rule| rule != "on" && rule != ">secret").collect()
}

/// The rule of `docs/redis.md` is enough for all calls of a limiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_documented_permissions() {
    let server = Server::start();
    let url = user(&server, &documented_rules("+setrange"));
    let policy = (TokenBucket::new(Rate::per_second(100.0), 10), InFlight::new(5));
    let limiter = RedisRateLimiter::new(policy.clone(), reconnecting(&url), KEY);
    let mut grant = limiter.acquire((3, 1)).await.expect("granted");
    grant.settle((1, 1)).await.expect("settled");
    grant.refund();
    limiter.pause_for(ms(1)).await.expect("paused");
    limiter.set_policy(policy).await.expect("set");
    limiter.quota().await.expect("answered");
    limiter.ping().await.expect("answered");
    limiter.inspect().await.expect("answered");
    limiter.at("quota:another").acquire((1, 1)).await.expect("granted");
    // A policy of which only the state is written, over what was there.
    let bucket = TokenBucket::new(Rate::per_second(100.0), 10);
    let bucket = RedisRateLimiter::new(bucket, reconnecting(&url), "quota:bucket");
    for _ in 0..2 {
        bucket.acquire(1).await.expect("granted");
    }
    store(limiter.at("another").try_acquire((1, 1)).await);

    // What is not permitted fails at once, and no other call with it.
    bucket.acquire(1).await.expect("granted");
    let (pause, reset, quota) =
        tokio::join!(bucket.pause_for(ms(1)), bucket.reset(), bucket.quota());
    let error = store(reset);
    let source = std::error::Error::source(&error).expect("what the server said").to_string();
    let is_named = ["permission", "can't run this command"].iter().any(|it| source.contains(it));
    assert!(is_named && !error.may_have_charged(), "{source}");
    pause.expect("paused");
    quota.expect("answered");
    bucket.acquire(1).await.expect("granted");
    assert_eq!(bucket.state(), State::Up);

    // Each time another limiter: the one before takes Redis to be down for a moment.
    let bucket = |url: &str| {
        let policy = TokenBucket::new(Rate::per_second(100.0), 10);
        RedisRateLimiter::new(policy, reconnecting(url), "quota:bucket")
    };
    let allow = |last| {
        let words = [&["ACL", "SETUSER", "limited"], &documented_rules(last)[..]].concat();
        server.command(&words);
    };
    store(bucket(&url).reset().await);
    allow("+del");
    bucket(&url).reset().await.expect("deleted");
    let of_another_database = format!("{url}3");
    store(bucket(&of_another_database).ping().await);
    allow("+select");
    bucket(&of_another_database).acquire(1).await.expect("granted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password() {
    let server = Server::start();
    let url = user(&server, &["~*", "+@all"]);
    server.command(&["ACL", "SETUSER", "limited", "<secret", ">another"]);
    let mend = async || drop(server.command(&["ACL", "SETUSER", "limited", ">secret"]));
    let code = "Password authentication failed";
    refused(code, &server, reconnecting(&url), mend).await;
}

/// The manager does not affect refusals of the server: the errors are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_over_a_manager() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let connection = manager(&server.url()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let mend = async || drop(server.command(&["CONFIG", "SET", "maxmemory", "0"]));
    refused("OOM", &server, connection, mend).await;
}
