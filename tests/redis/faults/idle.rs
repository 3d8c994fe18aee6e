//! Connections that the server closes while there are no calls: the next caller is granted, by Redis.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::cluster::ClusterClientBuilder;
use tollgate::ManualClock;
use tollgate::redis::{Connection, Reconnecting, Unavailable};

use super::{
    KEY, Limiter, builder, bursty, eventually, manager, ms, multiplexed, reconnecting, store,
};
use crate::support::cluster::Cluster;
use crate::support::server::Server;

/// Waits until no connection is left but the one that asks, which is never idle.
async fn closed_by(nodes: &[&Server]) {
    for node in nodes {
        node.command(&["CONFIG", "SET", "timeout", "1"]);
    }
    let is_alone = |node: &&Server| node.query::<String>(&["CLIENT", "LIST"]).lines().count() == 1;
    eventually("idle connections are closed", || {
        nodes.iter().filter(|it| is_alone(it)).count() == nodes.len()
    })
    .await;
}

async fn is_granted_after_idle_times<C: Connection>(nodes: &[&Server], connection: C) {
    let policy = bursty(1_000.0);
    let limiter = builder(policy, connection).unavailable(Unavailable::Allow).build();
    for _ in 0..3 {
        let grant = limiter.acquire(1).await.expect("granted");
        assert!(grant.is_shared(), "by Redis: {:?}", limiter.counters());
        closed_by(nodes).await;
    }
    let counters = limiter.counters();
    assert_eq!((counters.lost, counters.without_redis), (0, 0), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_that_reconnects() {
    let server = Server::start();
    is_granted_after_idle_times(&[&server], reconnecting(&server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_manager() {
    let server = Server::start();
    is_granted_after_idle_times(&[&server], manager(&server.url()).await).await;
}

/// Also where the connections to the other nodes, which redis-rs asks meanwhile, are closed as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_cluster() {
    let cluster = Cluster::start(3, 0);
    let client = ClusterClientBuilder::new(cluster.urls()).retries(0).build().expect("URLs");
    let connection = client.get_async_connection().await.expect("the cluster is well");
    let nodes = [0, 1, 2].map(|node| cluster.node(node));
    is_granted_after_idle_times(&nodes, tollgate::redis::Cluster::new(connection)).await;
}

/// A key of another node is used meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_of_a_cluster() {
    let cluster = Cluster::start(2, 0);
    let client = ClusterClientBuilder::new(cluster.urls()).retries(0).build().expect("URLs");
    let connection = client.get_async_connection().await.expect("the cluster is well");
    let connection = tollgate::redis::Cluster::new(connection);
    let limiter = builder(bursty(1_000.0), connection).build();
    limiter.acquire(1).await.expect("granted");
    let idle = cluster.node_of_key(KEY);
    let other = (0..).map(|n| format!("other:{n}")).find(|key| cluster.node_of_key(key) != idle);
    let other = limiter.at(other.expect("many"));
    cluster.node(idle).command(&["CONFIG", "SET", "timeout", "1"]);
    eventually("the idle connection is closed", || {
        other.blocking_acquire(1).expect("granted");
        cluster.node(idle).query::<String>(&["CLIENT", "LIST"]).lines().count() == 1
    })
    .await;
    limiter.acquire(1).await.expect("granted");
    assert_eq!(limiter.counters().lost, 0);
}

/// A limiter whose connection counts as idle from the second request on. Between two requests Redis' own clock makes room for
/// the next one, so no caller waits for the manual clock.
fn idle_by_the_clock(connection: Reconnecting) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (builder(bursty(1_000_000.0), connection).clock(&clock).build(), clock)
}

#[test]
fn a_connection_that_refuses_ping_is_alive() {
    let server = Server::start();
    server.command(&["ACL", "SETUSER", "limited", "on", ">secret", "~*"]);
    let commands = ["+evalsha", "+eval", "+time", "+get", "+set", "+setrange"];
    server.command(&[&["ACL", "SETUSER", "limited"][..], &commands].concat());
    let connection = reconnecting(&server.url().replace("//", "//limited:secret@"));
    let (limiter, clock) = idle_by_the_clock(connection.clone());
    for _ in 0..3 {
        limiter.blocking_acquire(1).expect("granted");
        clock.advance(ms(1_000));
    }
    assert_eq!(connection.connections(), 1);
}

/// It is tried for half of the deadline, which leaves time for another one.
#[test]
fn a_connection_that_does_not_answer_is_replaced_in_time() {
    let servers = [(); 2].map(|()| Server::start());
    let clients = servers.each_ref().map(Server::client);
    let made = AtomicUsize::new(0);
    let connect = move || {
        let client = clients[made.fetch_add(1, Ordering::Relaxed)].clone();
        async move { client.get_multiplexed_async_connection().await }
    };
    let (limiter, clock) = idle_by_the_clock(Reconnecting::with(connect));
    limiter.blocking_acquire(1).expect("granted");
    servers[0].stop_process();
    clock.advance(ms(1_000));
    limiter.blocking_acquire(1).expect("granted");
    assert_eq!(limiter.counters().failed, 0);
}

/// It does not come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_charged_over_an_idle_connection_that_is_lost() {
    let server = Server::start();
    let limiter =
        builder(bursty(1_000.0), multiplexed(&server.url()).await).deadline(ms(200)).build();
    limiter.acquire(1).await.expect("granted");
    closed_by(&[&server]).await;
    let error = store(limiter.acquire(1).await);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert_eq!(limiter.counters().lost, 0);
}
