//! Hundreds of callers wait in two processes while one pauses the fleet, sets another rate, or
//! makes other requests all the time.

use std::time::{Duration, Instant};

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{FixedWindow, Rate, SmoothBursty, TokenBucket};

use super::load::{Load, permits};
use super::report::not_over;
use super::wires::Gate;
use super::{
    Events, KEY, Limiter, SLACK, builder, bursty, denied, eventually, ms, reconnecting, served,
    timed,
};
use crate::support::server::Server;

const AHEAD: Duration = ms(100);
const EACH: usize = 200;

/// A round trip on a busy machine, and the time until a granted task runs.
const LATE: Duration = ms(150);

fn process(server: &Server, policy: SmoothBursty) -> (Limiter, Events) {
    let events = Events::default();
    let limiter = builder(policy, reconnecting(&server.url()))
        .horizon(AHEAD)
        .on_event(events.listener())
        .build();
    (limiter, events)
}

async fn both_are_served(one: &Limiter, other: &Limiter, grants: u64) {
    let (before, before_other) = (one.stats().granted, other.stats().granted);
    eventually("both are served", || {
        one.stats().granted >= before + grants && other.stats().granted >= before_other + grants
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_holds_for_all_processes() {
    let server = Server::start();
    let window = FixedWindow::new(100, Duration::from_secs(3600));
    let limiter = || RedisRateLimiter::new(window.clone(), reconnecting(&server.url()), KEY);
    let (one, other) = (limiter(), limiter());
    one.pause_for(Duration::from_secs(3600)).await.expect("paused");
    let waiter = tokio::spawn(other.acquire(1));
    eventually("it waits", || other.queue_len() == 1).await;
    one.resume().await.expect("resumed");
    waiter.await.expect("no panic").expect("granted");
    assert_eq!(other.quota().await.expect("a quota").remaining, 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_rate_holds_within_the_horizon() {
    const FAST: f64 = 500.0;
    const SLOW: f64 = 100.0;
    let server = Server::start();
    let (one, _) = process(&server, bursty(FAST));
    let (other, events) = process(&server, bursty(FAST));
    let loads = [Load::start(&one, EACH), Load::start(&other, EACH)];
    both_are_served(&one, &other, 200).await;
    one.set_rate(Rate::per_second(SLOW)).await.expect("set");
    let set = Instant::now();
    both_are_served(&one, &other, 40).await;
    let heard = events.adopted();
    assert_eq!(heard.len(), 1);
    assert!(heard[0].1 > 0, "it was set");
    assert!(heard[0].0.saturating_duration_since(set) <= AHEAD + LATE, "the other has heard");
    assert_eq!(other.policy(), bursty(SLOW));
    let end = Instant::now();
    let mut grants = 0;
    for load in loads {
        load_rest(&one, &other).await;
        grants += load.stop().await.grants_in(set, end);
    }
    let count = f64::from(u32::try_from(grants).expect("few"));
    let over = count - permits(SLOW, end - set) - 1.0;
    not_over(over, permits(FAST, AHEAD + LATE) + 2.0);
}

/// So that the test need not wait for the rest at the lower rate.
async fn load_rest(one: &Limiter, other: &Limiter) {
    if one.policy() != bursty(5_000.0) {
        one.set_rate(Rate::per_second(5_000.0)).await.expect("set");
    }
    let _ = other;
}

/// However long a process has requested its head: no ticket is for later than the horizon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_near_tickets_are_booked() {
    const RATE: f64 = 100.0;
    let server = Server::start();
    let (limiter, _) = process(&server, bursty(RATE));
    let load = Load::start(&limiter, EACH);
    let mut most: f64 = 0.0;
    eventually("two seconds' worth is granted", || {
        most = most.max(super::stored(&server).map_or(0.0, |stored| stored.level * RATE / 1e6));
        limiter.stats().granted >= 200
    })
    .await;
    load.abort();
    not_over(most, permits(RATE, AHEAD) + 1.0);
}

/// A stream of other requests does not keep waiters from being requested.
#[tokio::test]
async fn changes_and_callers_take_turns() {
    let server = Server::start();
    let limiter = builder(bursty(1_000.0), reconnecting(&server.url())).build();
    served(&limiter).await;
    let other = limiter.clone();
    let asks = tokio::spawn(async move {
        loop {
            other.quota().await.expect("the server is there");
        }
    });
    eventually("it has asked often", || limiter.counters().requests > 100).await;
    let call = tokio::time::timeout(SLACK, limiter.try_acquire(1)).await;
    call.expect("it has its turn").expect("granted");
    asks.abort();
}

/// But no waiter is requested before earlier changes.
#[tokio::test]
async fn a_pause_holds_later_callers_though_another_change_is_in_flight() {
    let server = Server::start();
    let gate = Gate::to(&server.url());
    let limiter = builder(bursty(1_000.0), gate.clone()).build();
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    let mut pause = Box::pin(limiter.pause_for(Duration::from_secs(60)));
    assert!((&mut pause).now_or_never().is_none());
    let mut call = limiter.try_acquire(1);
    assert!((&mut call).now_or_never().is_none());
    gate.open();
    assert!(denied(call.await) > Duration::from_secs(50));
}

/// Another process gives permits back, raises the limit, or deletes the key, while a caller waits here for hours. The
/// next call that does not wait is answered by its own request, and what it learns serves the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_does_not_wait_is_answered_in_a_round_trip() {
    const REFRESH: Duration = Duration::from_secs(20);
    let server = Server::start();
    let hourly =
        |permits: u64| TokenBucket::new(Rate::new(permits, Duration::from_secs(36_000)), 10);
    let limiter = |key: &str| {
        let connection = reconnecting(&server.url());
        RedisRateLimiter::builder(hourly(10), connection, key).refresh(REFRESH).build()
    };
    for what in ["refund", "rate", "delete"] {
        let (one, other) = (limiter(what), limiter(what));
        let grant = other.acquire(10).await.expect("it is full");
        let waiter = tokio::spawn({
            let one = one.clone();
            async move { one.acquire(1).await.map(drop) }
        });
        eventually("it waits", || one.queue_len() == 1).await;
        denied(one.try_acquire(1).await);
        match what {
            "refund" => grant.refund(),
            "rate" => {
                let set = other.set_policy(hourly(36_000_000)).await;
                set.expect("the server is there");
            }
            _ => other.reset().await.expect("the server is there"),
        }
        other.flush().await.expect("the server is there");
        let (first, took) = timed(one.try_acquire(1)).await;
        assert!(took < SLACK, "{what}: {took:?}");
        let (served, later) = timed(waiter).await;
        served.expect("no panic").expect("it is granted");
        assert!(later < SLACK, "{what}: {later:?}");
        if first.is_err() {
            let (again, took) = timed(one.acquire(1)).await;
            assert!(again.is_ok() && took < SLACK, "{what}: {took:?}");
        }
    }
}
