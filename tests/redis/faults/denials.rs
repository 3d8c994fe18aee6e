//! Refusals are cached until the call could be granted, at most for the refresh time, or until a change by this
//! process.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisGrant, Unavailable};
use tollgate::{Error, ManualClock, Rate, SmoothBursty};

use super::by_hand::refused_for;
use super::wires::{Gate, Hand};
use super::{Limiter, builder, bursty, denied, eventually, ms, reconnecting, slow};
use crate::support::server::Server;

type Grant = RedisGrant<SmoothBursty, tollgate::redis::Reconnecting>;

fn runs(server: &Server) -> u64 {
    server.commandstats("evalsha").0 + server.commandstats("eval").0
}

/// A limiter with a cached denial.
async fn knows(server: &Server) -> (Limiter, Grant) {
    let builder = builder(slow(), reconnecting(&server.url()));
    let limiter = builder.refresh(Duration::from_secs(60)).build();
    let grant = limiter.try_acquire(1).await.expect("the first is prepaid");
    denied(limiter.try_acquire(1).await);
    server.reset_stats();
    (limiter, grant)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_refusals_cost_no_request() {
    let server = Server::start();
    let (limiter, _grant) = knows(&server).await;
    let mut last = Duration::MAX;
    for _ in 0..1000 {
        let retry_after = denied(limiter.try_acquire(1).await);
        assert!(retry_after <= last, "it comes nearer");
        last = retry_after;
    }
    for _ in 0..100 {
        denied(limiter.try_acquire_timeout(1, ms(100)).await);
    }
    assert_eq!((runs(&server), limiter.counters().denied_locally), (0, 1100));
    assert!(last > ms(5_000) && last <= ms(10_000), "{last:?}");
}

/// Other calls make requests of their own: with a larger or a smaller cost, or with more time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_calls_make_requests() {
    let server = Server::start();
    let (limiter, _grant) = knows(&server).await;
    denied(limiter.try_acquire(2).await);
    assert_eq!(runs(&server), 1);
    limiter.at("another").try_acquire(1).await.expect("the first is prepaid there");
    assert!(runs(&server) > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_of_our_own_lifts_it() {
    let server = Server::start();
    let (limiter, grant) = knows(&server).await;
    grant.refund();
    limiter.try_acquire(1).await.expect("what was given back");
    denied(limiter.try_acquire(1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_of_our_own_lifts_it() {
    let server = Server::start();
    let (limiter, mut grant) = knows(&server).await;
    grant.settle(0).await.expect("settled");
    limiter.try_acquire(1).await.expect("what was given back");
    denied(limiter.try_acquire(1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_our_own_lifts_it() {
    let server = Server::start();
    let (limiter, _grant) = knows(&server).await;
    limiter.pause_for(Duration::from_secs(60)).await.expect("paused");
    let retry_after = denied(limiter.try_acquire(1).await);
    assert!(retry_after > Duration::from_secs(50), "{retry_after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_of_our_own_lifts_it() {
    let server = Server::start();
    let (limiter, _grant) = knows(&server).await;
    // The debt keeps its price: the next grant is due as before.
    limiter.set_rate(Rate::per_second(0.2)).await.expect("set");
    let before = runs(&server);
    denied(limiter.try_acquire(1).await);
    assert_eq!(runs(&server), before + 1, "Redis was asked");
}

/// The reply in flight at a change is from before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_from_before_a_change_is_not_kept_after_it() {
    let server = Server::start();
    let gate = Gate::to(&server.url());
    let limiter = builder(slow(), gate.clone()).build();
    gate.let_there();
    gate.let_back();
    let grant = limiter.try_acquire(1).await.expect("the first is prepaid");
    let under_way = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire(1).await }
    });
    eventually("the second is asked for", || gate.arrived() == 2).await;
    gate.let_there();
    eventually("and refused", || gate.answered() == 2).await;
    // Only now permits come back.
    grant.refund();
    gate.open();
    denied(under_way.await.expect("no panic"));
    eventually("the refund is sent", || gate.answered() == 3).await;
    limiter.try_acquire(1).await.expect("what was given back");
}

/// Longer than a reply can encode.
#[tokio::test]
async fn a_wait_of_decades_is_not_taken_for_none() {
    let server = Server::start();
    let policy = SmoothBursty::new(Rate::new(1, Duration::from_secs(86_400)));
    let limiter = builder(policy, reconnecting(&server.url())).horizon(Duration::MAX).build();
    limiter.acquire(10_000).await.expect("the first is prepaid");
    let decades = Duration::from_secs(17 * 365 * 86_400);
    for _ in 0..3 {
        assert!(denied(limiter.try_acquire(1).await) > decades);
        assert!(limiter.reserve(1).await.expect("a place").delay() > decades);
    }
}

/// A caller that is served without Redis counts as others do.
#[test]
fn a_refusal_by_the_local_share_is_counted() {
    let (limiter, caller) = refused_for(500, Unavailable::Local(bursty(1.0)));
    let grant = caller.now_or_never().expect("answered").expect("the first is prepaid");
    assert!(!grant.is_shared());
    for _ in 0..2 {
        denied(limiter.try_acquire(1).now_or_never().expect("answered"));
    }
    assert_eq!((limiter.stats().granted, limiter.stats().refused), (1, 2));
}

/// Behind a request that is not answered. What its caller gets is no error of the store, which has not failed.
#[test]
fn a_timeout_before_a_call_is_asked_for_is_a_denial_at_once() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock).build();
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none());
    clock.advance(ms(100));
    let answer = caller.now_or_never().expect("answered");
    assert!(matches!(answer, Err(Error::Denied { retry_after: None, .. })), "{answer:?}");
}
