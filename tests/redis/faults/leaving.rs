//! Callers that leave at any point: no permit is lost for good, and none is minted.

use std::time::Duration;

use futures::future::{FutureExt, poll_immediate};
use tollgate::redis::RedisGrant;
use tollgate::{Rate, Rated};

use super::wires::Gate;
use super::{Limiter, builder, bursty, denied, eventually, ms, slow, stored};
use crate::support::server::Server;

fn gated(server: &Server, horizon: Duration) -> (Gate, Limiter<Gate>) {
    let gate = Gate::to(&server.url());
    (gate.clone(), builder(slow(), gate).horizon(horizon).build())
}

/// All requests have been answered, and the rest has been given back.
async fn settled(gate: &Gate) {
    gate.open();
    eventually("all is answered", || gate.arrived() == gate.answered()).await;
    // A refund may follow the reply that causes it.
    let mut seen = gate.answered();
    loop {
        tokio::time::sleep(ms(20)).await;
        let now = gate.answered();
        if now == seen && gate.arrived() == now {
            return;
        }
        seen = now;
    }
}

/// A change is made from the first poll on, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_not_awaited_are_made() {
    let server = Server::start();
    let (gate, limiter) = gated(&server, ms(250));
    drop(limiter.pause_for(Duration::from_secs(60)));
    drop(limiter.set_rate(Rate::per_second(1.0)));
    settled(&gate).await;
    assert_eq!(gate.arrived(), 0);
    let mut grant = limiter.acquire(1).await.expect("the first is prepaid");
    // Whether the reply is there at once does not matter.
    drop(poll_immediate(Box::pin(grant.settle(3))).await);
    eventually("it is settled", || stored(&server).is_some_and(|s| s.level > 2.5e6)).await;
    drop(poll_immediate(Box::pin(limiter.set_rate(Rate::per_second(0.2)))).await);
    drop(poll_immediate(Box::pin(limiter.pause_for(Duration::from_secs(60)))).await);
    settled(&gate).await;
    assert_eq!(limiter.policy(), slow().with_rate(Rate::per_second(0.2)));
    assert!(denied(limiter.try_acquire(1).await) > Duration::from_secs(50));
}

/// A script blocks all other clients of the server, so thousands of refunds are sent in batches.
#[tokio::test]
async fn thousands_of_refunds_are_more_than_one_request() {
    const GRANTS: usize = 2_500;
    let server = Server::start();
    let gate = Gate::to(&server.url());
    let limiter = builder(bursty(1e9), gate.clone()).build();
    let mut grants = Vec::new();
    for _ in 0..GRANTS {
        gate.let_there();
        gate.let_back();
        grants.push(limiter.acquire(1).await.expect("granted"));
    }
    grants.into_iter().for_each(RedisGrant::refund);
    eventually("the first is on its way", || gate.arrived() == GRANTS + 1).await;
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    gate.open();
    // The first takes as many as there are by then, the others 1024, and the last the rest.
    quota.await.expect("the server is there");
    assert!((GRANTS + 3..=GRANTS + 4).contains(&gate.answered()), "{}", gate.answered());
}
