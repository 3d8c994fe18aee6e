//! A cluster forms, moves a slot step by step, and survives a master.

use redis::cluster::ClusterClient;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::support::cluster::Cluster;
use crate::support::server::Server;

fn kind(answer: RedisResult<Value>) -> ErrorKind {
    answer.as_ref().map_err(RedisError::kind).expect_err("the key is not here")
}

fn get(server: &Server, key: &str) -> RedisResult<Value> {
    server.try_query(&["GET", key])
}

#[test]
fn a_slot_moves_and_asks_in_the_middle() {
    let (ask, moved) = (ServerErrorKind::Ask.into(), ServerErrorKind::Moved.into());
    let cluster = Cluster::start(2, 0);
    let key = "{tag}key";
    let (slot, from) = (cluster.slot_of(key), cluster.node_of_key(key));
    assert_eq!((cluster.slot_of("{tag}other"), cluster.node_of_slot(slot)), (slot, from));
    let to = 1 - from;
    let (old, new) = (cluster.node(from), cluster.node(to));
    old.command(&["SET", key, "1"]);
    assert_eq!(kind(get(new, key)), moved);

    let migration = cluster.migrate_slot(slot, to);
    assert_eq!((migration.from(), migration.to()), (from, to));
    assert_eq!(old.query::<u64>(&["GET", key]), 1);
    assert_eq!(kind(get(old, "{tag}other")), ask);

    migration.move_keys();
    assert_eq!(cluster.node_of_slot(slot), from);
    assert_eq!(kind(get(old, key)), ask);
    assert_eq!(kind(get(new, key)), moved);
    new.command(&["ASKING"]);
    assert_eq!(new.query::<u64>(&["GET", key]), 1);
    // A client follows.
    let client = ClusterClient::new(cluster.urls()).expect("URLs");
    let mut connection = client.get_connection().expect("the cluster is well");
    let answer: u64 = redis::cmd("INCR").arg(key).query(&mut connection).expect("an answer");
    assert_eq!(answer, 2);

    migration.finish();
    assert_eq!(cluster.node_of_key(key), to);
    assert_eq!(kind(get(old, key)), moved);
    assert_eq!(new.query::<u64>(&["GET", key]), 2);
    cluster.wait_ok();
}

#[test]
fn a_replica_takes_over_from_a_killed_master() {
    let cluster = Cluster::start(3, 1);
    assert_eq!(cluster.len(), 6);
    let master = cluster.node_of_key("key");
    assert!(master < 3);
    let node = cluster.node(master);
    node.command(&["SET", "key", "1"]);
    assert_eq!(node.query::<u64>(&["WAIT", "1", "5000"]), 1);
    cluster.kill_node(master);
    cluster.wait_ok();
    assert_eq!(cluster.node_of_key("key"), master + 3);
    assert_eq!(cluster.node(master + 3).query::<u64>(&["GET", "key"]), 1);
    // Back again it follows its successor.
    node.restart();
    cluster.wait_ok();
    assert_eq!(cluster.node_of_key("key"), master + 3);
}
