//! More timed callers than can be served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{
    Connection, Failure, Reconnecting, RedisRateLimiter, Reply, Request, Scripted,
};
use tollgate::{FixedWindow, InFlight, Rate, SlidingWindowLog, SmoothBursty, TokenBucket};

use super::{denied, eventually, ms, reconnecting};
use crate::support::server::Server;

/// Keeps the number of bytes in the arguments of the largest request.
#[derive(Clone)]
struct Scale {
    inner: Reconnecting,
    largest: Arc<AtomicUsize>,
}

impl Connection for Scale {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let bytes = request.arguments.iter().map(Vec::len).sum();
        self.largest.fetch_max(bytes, Ordering::SeqCst);
        self.inner.run(request).await
    }
}

/// What a newcomer costs behind `waiting` callers, half of them with a timeout: bytes of its request, and
/// microseconds of the server's time.
async fn behind<P: Scripted>(
    server: &Server,
    policy: P,
    cost: impl Fn(u32) -> P::Cost,
    waiting: u32,
) -> (usize, u64) {
    const CALLS: u64 = 200;
    // A key of its own: what the last limiter leaves behind may reach the server only now.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let key = format!("overload:{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let scale = Scale { inner: reconnecting(&server.url()), largest: Arc::default() };
    let builder = RedisRateLimiter::builder(policy, scale.clone(), key);
    let limiter = builder.refresh(Duration::from_secs(600)).deadline(ms(10_000)).build();
    limiter.acquire(cost(0)).await.expect("all are there");
    let asked = limiter.counters().asked;
    // All timeouts are different, and long enough.
    let patience = |waiter| Duration::from_secs(1_000_000 + u64::from(waiter));
    let timed = (0..waiting / 2).map(|i| limiter.try_acquire_timeout(cost(i), patience(i)));
    let mut timed: Vec<_> = timed.collect();
    assert!(timed.iter_mut().all(|waiter| waiter.now_or_never().is_none()));
    let answered = || limiter.counters().asked == asked + u64::from(waiting / 2);
    eventually("all with a timeout have their answer", answered).await;
    let mut others: Vec<_> = (0..waiting / 2).map(|i| limiter.acquire(cost(i))).collect();
    assert!(others.iter_mut().all(|waiter| waiter.now_or_never().is_none()));
    server.reset_stats();
    scale.largest.store(0, Ordering::SeqCst);
    for _ in 0..CALLS {
        let retry_after = denied(limiter.try_acquire_timeout(cost(0), ms(5_000)).await);
        assert!(retry_after > Duration::from_secs(8) * waiting, "{retry_after:?}");
    }
    let (requests, micros) = server.commandstats("evalsha");
    assert_eq!(requests, CALLS);
    (scale.largest.load(Ordering::SeqCst), micros / CALLS)
}

/// In the request of a newcomer all those ahead are counted, and not asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_caller_costs_the_same_behind_ten_thousand_waiters() {
    let server = Server::start();
    let rate = Rate::new(10, Duration::from_secs(100));
    let span = Duration::from_secs(100);
    macro_rules! costs {
        ($name:literal, $policy:expr, $cost:expr) => {
            let few = behind(&server, $policy, $cost, 100).await;
            let many = behind(&server, $policy, $cost, 10_000).await;
            println!("{:<35} {few:>12?} {many:>12?}", $name);
            assert!(many.0 == few.0 && many.0 < 250, "{few:?} {many:?}");
            assert!(many.1 < 4 * few.1 + 200, "{few:?} {many:?}");
        };
    }
    println!("(bytes, microseconds) of a request behind 100 and 10,000 waiters");
    costs!("SmoothBursty", SmoothBursty::new(rate), |_| 1);
    costs!("SmoothBursty, costs from 1 to 3", SmoothBursty::new(rate), |i| 1 + i % 3);
    costs!("TokenBucket", TokenBucket::new(rate, 10), |_| 10);
    costs!("FixedWindow", FixedWindow::new(10, span), |_| 10);
    costs!("SlidingWindowLog", SlidingWindowLog::new(10, span), |_| 10);
    let two = || (TokenBucket::new(rate, 10), FixedWindow::new(10, span));
    costs!("(TokenBucket, FixedWindow)", two(), |_| (10, 10));
    let places = || (TokenBucket::new(rate, 10), InFlight::new(100_000));
    costs!("(TokenBucket, InFlight)", places(), |_| (10, 1));
}

/// Nor are they asked for when the head is due and newcomers come all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_do_not_make_a_due_head_bring_all_behind_it() {
    let server = Server::start();
    let scale = Scale { inner: reconnecting(&server.url()), largest: Arc::default() };
    let policy = SmoothBursty::new(Rate::per_second(200.0));
    let limiter = RedisRateLimiter::new(policy, scale.clone(), "overload");
    let patience = |waiter| Duration::from_secs(1_000 + u64::from(waiter));
    let mut waiters: Vec<_> =
        (0..900_u32).map(|i| limiter.try_acquire_timeout(1, patience(i))).collect();
    // The first may be served before this thread looks.
    waiters.iter_mut().for_each(|waiter| drop(waiter.now_or_never()));
    eventually("all have their answer", || limiter.counters().asked >= 900).await;
    scale.largest.store(0, Ordering::SeqCst);
    let before = limiter.stats().granted;
    let served = || limiter.stats().granted >= before + 50;
    while !served() {
        denied(limiter.try_acquire_timeout(1, ms(2_000)).await);
    }
    let largest = scale.largest.load(Ordering::SeqCst);
    assert!(largest < 4_000, "{largest} bytes");
}
