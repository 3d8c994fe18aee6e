//! Connections that have been idle for a time; here the time is zero.

use super::server::Server;
use crate::redis::{Reconnecting, RedisRateLimiter};
use crate::{Rate, TokenBucket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn limiter(connection: Reconnecting) -> RedisRateLimiter<TokenBucket> {
    let idle = connection.idle(Duration::ZERO);
    RedisRateLimiter::new(TokenBucket::new(Rate::per_second(1.0), 100), idle, "key")
}

/// The next caller gets no error that its permits may have been charged.
#[tokio::test]
async fn a_closed_connection_is_not_used() {
    let server = Server::start();
    let connection = &mut server.connection();
    let limiter = limiter(Reconnecting::new(server.client()));
    for _ in 0..3 {
        limiter.acquire(1).await.expect("granted");
        limiter.acquire(1).await.expect("granted");
        Server::close_the_others(connection);
    }
    limiter.acquire(1).await.expect("granted");
    assert_eq!((limiter.counters().lost, limiter.stats().granted), (0, 7));
}

#[tokio::test]
async fn a_connection_that_refuses_ping_is_alive() {
    let server = Server::start();
    let connection = &mut server.connection();
    let client = server.limited_client(connection);
    let limiter = limiter(Reconnecting::new(client));
    limiter.acquire(1).await.expect("granted");
    let before = Server::connections(connection);
    limiter.acquire(1).await.expect("granted");
    assert_eq!(Server::connections(connection), before);
}

/// It is tried for half of the deadline, which leaves time for another one.
#[tokio::test]
async fn a_connection_that_does_not_answer_is_replaced_in_time() {
    let servers = [(); 2].map(|()| Server::start());
    let clients = servers.each_ref().map(|server| {
        server.connection();
        server.client()
    });
    let made = AtomicUsize::new(0);
    let connect = move || {
        let client = clients[made.fetch_add(1, Ordering::Relaxed)].clone();
        async move { client.get_multiplexed_async_connection().await }
    };
    let limiter = limiter(Reconnecting::with(connect));
    limiter.acquire(1).await.expect("granted");
    servers[0].stop();
    limiter.acquire(1).await.expect("granted");
    assert_eq!(limiter.counters().failed, 0);
}
