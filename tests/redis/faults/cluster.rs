//! A cluster: slots that move, at rest and under load, and a node that is lost.

use std::time::{Duration, Instant};

use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use tollgate::redis::{Connection, State};

use super::load::{Load, permits};
use super::report::fault;
use super::{Events, HORIZON, KEY, builder, bursty, eventually, is, ms, sequence, store, timed};
use crate::support::cluster::Cluster;

const RATE: f64 = 200.0;
const DEADLINE: Duration = ms(500);

/// It sends nothing again by itself.
async fn connect(cluster: &Cluster) -> ClusterConnection {
    let client = ClusterClientBuilder::new(cluster.urls())
        .retries(0)
        .connection_timeout(ms(500))
        .build()
        .expect("URLs");
    client.get_async_connection().await.expect("the cluster is well")
}

/// The client does not know yet that the slot has moved: it learns it by `MOVED`, and so does nobody
/// else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_sent_elsewhere_goes_there() {
    let cluster = Cluster::start(2, 0);
    let limiter = builder(bursty(RATE), connect(&cluster).await).deadline(DEADLINE).build();
    limiter.acquire(1).await.expect("granted");
    let from = cluster.node_of_key(KEY);
    let before = sequence(cluster.node(from));
    cluster.migrate_slot(cluster.slot_of(KEY), 1 - from).finish();
    let (answer, took) = timed(limiter.acquire(1)).await;
    answer.expect("granted by the new owner");
    let charges = sequence(cluster.node(1 - from)).wrapping_sub(before);
    assert_eq!((charges, limiter.counters().lost, limiter.state()), (1, 0, State::Up));
    fault("cluster: MOVED", "ClusterConnection, no retries")
        .answer("granted, asked again")
        .longest(took, DEADLINE)
        .back(took)
        .done();
}

/// The key has moved, the slot has not.
async fn in_the_middle<C: Connection>(
    cluster: &Cluster,
    connection: C,
    middle: impl AsyncFnOnce(&super::Limiter<C>),
) -> (Duration, u32) {
    let events = Events::default();
    let limiter =
        builder(bursty(RATE), connection).deadline(DEADLINE).on_event(events.listener()).build();
    limiter.acquire(1).await.expect("granted");
    let from = cluster.node_of_key(KEY);
    let before = sequence(cluster.node(from));
    let migration = cluster.migrate_slot(cluster.slot_of(KEY), 1 - from);
    limiter.acquire(1).await.expect("the key is still there");
    migration.move_keys();
    middle(&limiter).await;
    migration.finish();
    let back = is(&limiter, State::Up).await;
    limiter.acquire(1).await.expect("granted");
    assert_eq!((limiter.counters().lost, events.downs()), (0, events.ups()));
    (back, sequence(cluster.node(1 - from)).wrapping_sub(before))
}

/// redis-rs without retries does not follow `ASK`: nothing is charged, and callers wait until the slot
/// has moved, or their deadline has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_migration_callers_are_refused_at_the_deadline() {
    let cluster = Cluster::start(2, 0);
    let connection = connect(&cluster).await;
    let mut longest = Duration::ZERO;
    let refused = async |limiter: &super::Limiter<_>| {
        let (answer, took) = timed(limiter.acquire(1)).await;
        let error = store(answer);
        assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
        longest = took;
    };
    let (back, charges) = in_the_middle(&cluster, connection, refused).await;
    assert_eq!(charges, 2);
    fault("cluster: ASK, in the middle of a migration", "ClusterConnection, no retries")
        .answer("Store: unavailable")
        .longest(longest, DEADLINE)
        .back(back)
        .done();
}

/// With a connection that asks there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_migration_the_new_owner_can_be_asked() {
    let cluster = Cluster::start(2, 0);
    let connection = tollgate::redis::Cluster::new(connect(&cluster).await);
    let mut longest = Duration::ZERO;
    let served = async |limiter: &super::Limiter<_>| {
        let start = Instant::now();
        for _ in 0..20 {
            let (answer, took) = timed(limiter.acquire(1)).await;
            answer.expect("granted by the new owner");
            longest = longest.max(took);
        }
        assert!(start.elapsed() < Duration::from_secs(2));
    };
    let (back, charges) = in_the_middle(&cluster, connection, served).await;
    assert_eq!(charges, 22, "each once");
    fault("cluster: ASK, in the middle of a migration", "over `Cluster`")
        .answer("granted")
        .longest(longest, DEADLINE)
        .back(back)
        .done();
}

/// Each grant was charged once and each charge was granted, wherever the key was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load() {
    let cluster = Cluster::start(2, 0);
    let limiter = builder(bursty(RATE), connect(&cluster).await).deadline(DEADLINE * 4).build();
    limiter.acquire(1).await.expect("granted");
    let from = cluster.node_of_key(KEY);
    let before = sequence(cluster.node(from));
    let load = Load::start(&limiter, 50);
    eventually("some are granted", || limiter.stats().granted >= 60).await;
    let mut back = Duration::ZERO;
    for to in [1 - from, from] {
        let migration = cluster.migrate_slot(cluster.slot_of(KEY), to);
        let moved = limiter.stats().granted;
        migration.finish();
        let start = Instant::now();
        eventually("more are granted", || limiter.stats().granted >= moved + 100).await;
        back = back.max(start.elapsed().saturating_sub(Duration::from_secs_f64(100.0 / RATE)));
    }
    let log = load.stop().await;
    assert_eq!((log.errors().count(), limiter.counters().lost), (0, 0));
    let charges = sequence(cluster.node(from)).wrapping_sub(before);
    let grants = u32::try_from(log.grants()).expect("few");
    assert_eq!(charges, grants, "each once");
    fault("cluster: a slot moves there and back under load", "ClusterConnection, no retries")
        .answer("granted")
        .over(log.excess(RATE, log.end - log.start), 0.0)
        .under(f64::from(charges) - f64::from(grants), 0.0)
        .back(back)
        .done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_lost_and_its_replica_takes_over() {
    let cluster = Cluster::start(3, 1);
    let events = Events::default();
    let limiter = builder(bursty(RATE), connect(&cluster).await)
        .deadline(DEADLINE)
        .on_event(events.listener())
        .build();
    let load = Load::start(&limiter, 50);
    eventually("some are granted", || limiter.stats().granted >= 60).await;
    let master = cluster.node_of_key(KEY);
    cluster.kill_node(master);
    let killed = Instant::now();
    is(&limiter, State::Down).await;
    cluster.wait_ok();
    let back = Instant::now();
    let granted = limiter.stats().granted;
    eventually("some are granted again", || limiter.stats().granted >= granted + 40).await;
    let log = load.stop().await;
    assert_eq!(limiter.state(), State::Up);
    assert_eq!(events.downs(), events.ups());
    assert_eq!(cluster.node_of_key(KEY), master + 3);
    let open = killed.duration_since(log.start) + log.end.duration_since(back);
    // As long as nothing is lost on the way to the replica: booked before, and what was granted between
    // the fail-over and our knowing of it.
    fault("cluster: a node is lost, its replica takes over", "ClusterConnection, no retries")
        .answer("Store: unavailable")
        .over(log.excess(RATE, open), permits(RATE, HORIZON + ms(500)) + 1.0)
        .under(log.lost(RATE), permits(RATE, HORIZON) + 1.0)
        .longest(log.longest_error(), DEADLINE + ms(250))
        .back(log.first_grant_after(back))
        .done();
}
