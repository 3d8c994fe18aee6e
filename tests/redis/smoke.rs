use crate::support::server::Server;
use std::time::{Duration, Instant};
use tollgate::redis::{Blocking, Reconnecting, RedisRateLimiter};
use tollgate::{Rate, SmoothBursty};

#[test]
fn blocking() {
    let server = Server::start();
    let policy = SmoothBursty::new(Rate::per_second(100.0));
    let limiter = RedisRateLimiter::new(policy, Blocking::open(&server.url()).expect("c"), "k");
    let start = Instant::now();
    for _ in 0..50 {
        limiter.blocking_acquire(1).expect("granted");
    }
    println!("{:?} {:?}", start.elapsed(), limiter.counters());
    println!("{:?}", limiter.blocking_try_acquire(1));
    println!("{:?}", limiter.blocking_quota());
    limiter.blocking_set_rate(Rate::per_second(10.0)).expect("set");
    println!("{:?}", limiter.blocking_try_acquire(1));
    println!("{:?}", limiter);
    limiter.blocking_pause_for(Duration::from_millis(300)).expect("set");
    println!("{:?}", limiter.blocking_acquire(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn async_crowd() {
    let server = Server::start();
    let policy = SmoothBursty::new(Rate::per_second(1000.0));
    let limiter = RedisRateLimiter::new(policy, Reconnecting::open(&server.url()).expect("c"), "k");
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..40 {
                limiter.acquire(1).await.expect("granted");
            }
        }));
    }
    for task in tasks {
        task.await.expect("ok");
    }
    println!("{:?} {:?} {:?}", start.elapsed(), limiter.counters(), limiter.stats());
}
