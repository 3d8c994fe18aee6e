//! Calls without Redis: an error, a grant without limit, or a share.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tollgate::redis::{Connection, RedisRateLimiter, Request, State, StoreError, Unavailable};
use tollgate::{Clock, Rate, SmoothBursty};

use super::load::{Load, excess};
use super::report::{is_back, not_longer, not_over};
use super::{
    Events, Limiter, builder, bursty, denied, eventually, is, ms, reconnecting, store, stored,
    timed, warm,
};
use crate::support::server::Server;

const DEADLINE: Duration = ms(500);

async fn without<C: Connection>(
    server: &Server,
    connection: C,
    unavailable: Unavailable<SmoothBursty>,
) -> (Limiter<C>, Events) {
    let events = Events::default();
    let limiter = builder(bursty(1000.0), connection)
        .deadline(DEADLINE)
        .unavailable(unavailable)
        .on_event(events.listener())
        .build();
    warm(&limiter, &events).await;
    server.kill();
    (limiter, events)
}

async fn again<C: Connection>(server: &Server, limiter: &Limiter<C>, events: &Events) -> Duration {
    server.restart();
    let back = is(limiter, State::Up).await;
    let grant = limiter.acquire(1).await.expect("granted");
    assert!(grant.is_shared() && stored(server).is_some());
    assert_eq!((events.downs(), events.ups()), (1, 1));
    back
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error() {
    let server = Server::start();
    let (limiter, events) = without(&server, reconnecting(&server.url()), Unavailable::Fail).await;
    let (answer, longest) = timed(limiter.acquire(1)).await;
    assert!(store(answer).is_unavailable());
    is(&limiter, State::Down).await;
    let (stats, counters) = (limiter.stats(), limiter.counters());
    for _ in 0..100 {
        let (answer, took) = timed(limiter.acquire(1)).await;
        store(answer);
        assert!(took < ms(100), "{took:?}");
    }
    let later = limiter.counters();
    assert_eq!(later.without_redis, counters.without_redis + 100);
    assert!(later.requests - counters.requests < 20, "only to find out whether it is there");
    assert_eq!(limiter.stats().refused, stats.refused + 100);
    // Calls that do not need Redis work as usual.
    limiter.acquire(0).await.expect("nothing");
    store(limiter.pause_for(ms(1)).await);
    store(limiter.quota().await);
    store(limiter.reserve(1).await);
    assert_eq!(limiter.queue_len(), 0);
    let back = again(&server, &limiter, &events).await;
    not_longer(longest, DEADLINE);
    is_back(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything() {
    let server = Server::start();
    let (limiter, events) = without(&server, reconnecting(&server.url()), Unavailable::Allow).await;
    let warmed = limiter.stats().granted;
    let (answer, longest) = timed(limiter.acquire(1)).await;
    assert!(!answer.expect("allowed").is_shared());
    is(&limiter, State::Down).await;
    for _ in 0..1000 {
        let mut grant = limiter.try_acquire(1).await.expect("allowed");
        assert!(!grant.is_shared() && grant.waited().is_zero());
        grant.settle(2).await.expect("nothing to settle");
        grant.refund();
    }
    assert_eq!(limiter.stats().granted, 1001 + warmed, "they count");
    let back = again(&server, &limiter, &events).await;
    not_longer(longest, DEADLINE);
    is_back(back);
}

/// Each process takes its share, by its own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share() {
    let server = Server::start();
    let connection = reconnecting(&server.url());
    const SHARE: f64 = 100.0;
    let (limiter, events) = without(&server, connection, Unavailable::Local(bursty(SHARE))).await;
    let start = Instant::now();
    let load = Load::start(&limiter, 10);
    is(&limiter, State::Down).await;
    let granted = || limiter.counters().without_redis;
    eventually("some are granted without Redis", || granted() >= 60).await;
    let first = start.elapsed();
    assert!(first < Duration::from_secs(3), "{first:?}");
    let log = load.stop().await;
    assert_eq!(limiter.stats().granted, log.grants() as u64 + 1, "they count");
    let over = log.excess(SHARE, log.end - log.start);
    assert_eq!(log.errors().count(), 0);
    let back = again(&server, &limiter, &events).await;
    not_over(over, 0.0);
    not_longer(log.first_grant_after(log.start), DEADLINE);
    is_back(back);
}

/// Threads without a runtime get theirs, too.
#[test]
fn a_share_for_threads() {
    let server = Server::start();
    let limiter = builder(bursty(1000.0), reconnecting(&server.url()))
        .deadline(DEADLINE)
        .unavailable(Unavailable::Local(bursty(200.0)))
        .build();
    assert!(limiter.blocking_acquire(1).expect("granted").is_shared());
    server.kill();
    let start = Instant::now();
    for _ in 0..40 {
        assert!(!limiter.blocking_acquire(1).expect("granted").is_shared());
    }
    assert!(excess(40, 200.0, start.elapsed()) <= 0.0, "{:?}", start.elapsed());
}

/// A pause that a remote service asked for still holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_for_the_share() {
    let server = Server::start();
    let share = Unavailable::Local(bursty(1000.0));
    let (limiter, _) = without(&server, reconnecting(&server.url()), share).await;
    store(limiter.pause_for(Duration::from_secs(60)).await);
    is(&limiter, State::Down).await;
    let retry_after = denied(limiter.try_acquire(1).await);
    assert!(retry_after > Duration::from_secs(50), "{retry_after:?}");
    // It was for this key only.
    assert!(!limiter.at("another").try_acquire(1).await.expect("granted").is_shared());
}

/// Each key has a share of its own, as it has a quota of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_has_a_share() {
    let server = Server::start();
    let share = Unavailable::Local(bursty(0.1));
    let (limiter, _) = without(&server, reconnecting(&server.url()), share).await;
    assert!(!limiter.acquire(1).await.expect("the first is prepaid").is_shared());
    is(&limiter, State::Down).await;
    denied(limiter.try_acquire(1).await);
    assert!(!limiter.at("another").try_acquire(1).await.expect("granted").is_shared());
}

/// As `docs/redis.md` says of tests: without a server, and in no time.
#[tokio::test(start_paused = true)]
async fn a_connection_that_leads_nowhere() {
    #[derive(Clone)]
    struct Nowhere;

    impl Connection for Nowhere {
        async fn run(&self, _: &Request) -> Result<Vec<f64>, StoreError> {
            Err(StoreError::refused("there is no Redis"))
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) {
            tokio::spawn(task);
        }
    }

    let policy = SmoothBursty::new(Rate::per_second(5.0));
    let limiter = RedisRateLimiter::builder(policy.clone(), Nowhere, "quota:search")
        .unavailable(Unavailable::Local(policy))
        .clock(Clock::tokio())
        .build();
    limiter.acquire(1).await.expect("the first is prepaid");
    let start = tokio::time::Instant::now();
    for _ in 0..10 {
        limiter.acquire(1).await.expect("granted");
    }
    assert!(start.elapsed().abs_diff(Duration::from_secs(2)) <= ms(10), "{:?}", start.elapsed());
}

/// Time spent on Redis counts towards the timeout: no caller waits longer than it asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_does_not_start_again_for_the_share() {
    let server = Server::start();
    let share = bursty(0.5);
    let (limiter, _) =
        without(&server, reconnecting(&server.url()), Unavailable::Local(share)).await;
    assert!(!limiter.acquire(1).await.expect("the first is prepaid").is_shared());
    is(&limiter, State::Down).await;
    // The next comes in two seconds.
    let (answer, took) = timed(limiter.try_acquire_timeout(1, ms(300))).await;
    denied(answer);
    assert!(took < ms(300) + super::SLACK, "{took:?}");
}
