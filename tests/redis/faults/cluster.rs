//! A cluster: slots that move, at rest and under load, and a node that is lost.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::RedisError;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use tollgate::redis::{Connection, State};

use super::load::{Load, permits};
use super::refusals::documented_rules;
use super::report::{is_back, not_longer, not_over, not_under};
use super::{Events, HORIZON, KEY, builder, bursty, eventually, is, ms, sequence, store, timed};
use crate::support::cluster::Cluster;
use crate::support::lock;

const RATE: f64 = 200.0;
const DEADLINE: Duration = ms(500);

/// A connection that does not resend by itself.
async fn connect(cluster: &Cluster) -> ClusterConnection {
    let client = ClusterClientBuilder::new(cluster.urls())
        .retries(0)
        .connection_timeout(ms(500))
        .build()
        .expect("URLs");
    client.get_async_connection().await.expect("the cluster is well")
}

/// The client does not know yet that the slot has moved: it learns it by `MOVED`, which no caller
/// sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirection_is_followed() {
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
    not_longer(took, DEADLINE);
    is_back(took);
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
    assert_eq!((limiter.counters().lost, events.downs()), (0, events.ups()), "{events:#?}");
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
    not_longer(longest, DEADLINE);
    is_back(back);
}

/// With a connection that asks there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_migration_the_new_owner_can_be_asked() {
    let cluster = Cluster::start(2, 0);
    let connection = tollgate::redis::Cluster::new(connect(&cluster).await);
    assert_eq!(format!("{connection:?}"), "Cluster { .. }");
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
    not_longer(longest, DEADLINE);
    is_back(back);
}

/// The rules of `docs/redis.md` for a cluster are enough, in the middle of a migration too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_permissions_documented_for_a_cluster() {
    let cluster = Cluster::start(2, 0);
    for node in 0..cluster.len() {
        let user = ["ACL", "SETUSER", "limited", "on", ">secret"];
        let rules = [documented_rules("+setrange"), documented_rules("+asking")].concat();
        cluster.node(node).command(&[&user[..], &rules].concat());
    }
    let client = ClusterClientBuilder::new(cluster.urls())
        .retries(0)
        .username("limited")
        .password("secret")
        .build()
        .expect("URLs");
    let connection = client.get_async_connection().await.expect("it may ask for the slots");
    let connection = tollgate::redis::Cluster::new(connection);
    let served =
        async |limiter: &super::Limiter<_>| drop(limiter.acquire(1).await.expect("granted"));
    let (_, charges) = in_the_middle(&cluster, connection, served).await;
    assert_eq!(charges, 3);
}

/// Each grant was charged once and each charge was granted, on either node. `in_the_middle`: how many are granted
/// while the key has moved and the slot has not.
async fn moves_under_load<C: Connection>(cluster: &Cluster, connection: C, in_the_middle: u64) {
    let limiter = builder(bursty(RATE), connection).deadline(DEADLINE * 4).build();
    limiter.acquire(1).await.expect("granted");
    let from = cluster.node_of_key(KEY);
    let before = sequence(cluster.node(from));
    let load = Load::start(&limiter, 50);
    eventually("some are granted", || limiter.stats().granted >= 60).await;
    let mut back = Duration::ZERO;
    for to in [1 - from, from] {
        let migration = cluster.migrate_slot(cluster.slot_of(KEY), to);
        let mut moved = limiter.stats().granted;
        if in_the_middle > 0 {
            migration.move_keys();
            eventually("some are granted", || limiter.stats().granted >= moved + in_the_middle)
                .await;
            moved = limiter.stats().granted;
        }
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
    not_over(log.excess(RATE, log.end - log.start), 0.0);
    not_under(f64::from(charges) - f64::from(grants), 0.0);
    is_back(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load() {
    let cluster = Cluster::start(2, 0);
    let connection = connect(&cluster).await;
    moves_under_load(&cluster, connection, 0).await;
}

/// `MOVED` and `ASK`, there and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_slowly_under_load() {
    let cluster = Cluster::start(2, 0);
    let connection = tollgate::redis::Cluster::new(connect(&cluster).await);
    moves_under_load(&cluster, connection, 60).await;
}

/// It is not taken for dead yet. A deadline that all of them, asked at once, do not reach on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_keys_of_a_stopped_node_do_not_hold_up_the_others() {
    const KEYS: usize = 1_000;
    const DEADLINE: Duration = Duration::from_secs(2);
    let cluster = Cluster::with(2, 0, &["--cluster-node-timeout", "60000"]);
    let connection = tollgate::redis::Cluster::new(connect(&cluster).await);
    let limiter = builder(bursty(1e6), connection).deadline(DEADLINE).build();
    let tag = |node| {
        let tags = (0..100).map(|tag| format!("{{{tag}}}"));
        tags.into_iter().find(|tag| cluster.node_of_key(tag) == node).expect("a tag")
    };
    let [well, mute] = [0, 1].map(tag);
    let keys: Vec<_> = (0..KEYS).map(|key| limiter.at(format!("{mute}:{key}"))).collect();
    let failed = async || {
        let answers = futures::future::join_all(keys.iter().map(|key| key.acquire(1))).await;
        answers.into_iter().filter(Result::is_err).count()
    };
    let others: Vec<_> = (0..20).map(|key| limiter.at(format!("{well}:{key}"))).collect();
    assert_eq!(failed().await, 0);
    cluster.node(1).stop_process();
    let (before, known) = (limiter.counters(), limiter.len());
    let beside = async {
        let (start, mut longest) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < DEADLINE * 2 {
            for other in &others {
                let (answer, took) = timed(other.acquire(1)).await;
                answer.expect("its node is well");
                longest = longest.max(took);
            }
            tokio::time::sleep(ms(5)).await;
        }
        longest
    };
    let (longest, of_the_mute) = tokio::join!(beside, failed());
    assert_eq!((of_the_mute, limiter.state()), (KEYS, State::Up));
    assert!(longest < DEADLINE, "{longest:?}");
    let requests = limiter.counters().requests - before.requests;
    println!("{requests} requests, {} keys, longest {longest:?}", limiter.len());
    assert!(limiter.len() <= known + others.len());
    cluster.node(1).continue_process();
    let start = Instant::now();
    while keys[0].acquire(1).await.is_err() {
        assert!(start.elapsed() < crate::support::LIMIT);
        tokio::time::sleep(ms(5)).await;
    }
    let back = start.elapsed();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(failed().await, 0, "a second later");
    is_back(back);
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
    not_over(log.excess(RATE, open), permits(RATE, HORIZON + ms(500)) + 1.0);
    not_under(log.lost(RATE), permits(RATE, HORIZON) + 1.0);
    not_longer(log.longest_error(), DEADLINE + ms(250));
    is_back(log.first_grant_after(back));
}

/// Two nodes that pretend to be a cluster. One takes a request for `a` and owes the answer, the other says
/// of `b` that it has moved; and when they are asked where to, both are gone.
struct Pretended {
    ports: [u16; 2],
    took: AtomicBool,
    is_leaving: AtomicBool,
    listening: Mutex<Vec<JoinHandle<()>>>,
    streams: Mutex<Vec<TcpStream>>,
}

impl Pretended {
    fn start() -> Arc<Self> {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let this = Arc::new(Self {
            ports: listeners.each_ref().map(|node| node.local_addr().expect("it is bound").port()),
            took: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            listening: Mutex::default(),
            streams: Mutex::default(),
        });
        let listening = listeners.map(|listener| {
            let this = Arc::clone(&this);
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    if this.is_leaving.load(Ordering::SeqCst) {
                        return;
                    }
                    let this = Arc::clone(&this);
                    lock(&this.streams).push(stream.try_clone().expect("a copy"));
                    thread::spawn(move || this.serve(stream));
                }
            })
        });
        lock(&this.listening).extend(listening);
        this
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut requests = BufReader::new(stream.try_clone().expect("a copy"));
        while let Some(words) = read_command(&mut requests) {
            let answer = match (words[0].as_str(), words.get(3).map(String::as_str)) {
                ("CLUSTER", _) if self.is_leaving.load(Ordering::SeqCst) => return self.leave(),
                ("CLUSTER", _) => {
                    let [first, second] = self.ports;
                    let slots = |from, to, port| {
                        format!("*3\r\n:{from}\r\n:{to}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
                    };
                    format!("*2\r\n{}{}", slots(0, 8191, first), slots(8192, 16_383, second))
                }
                ("EVALSHA", Some("a")) => {
                    self.took.store(true, Ordering::SeqCst);
                    continue;
                }
                ("EVALSHA", _) => {
                    self.is_leaving.store(true, Ordering::SeqCst);
                    format!("-MOVED 3300 127.0.0.1:{}\r\n", self.ports[1])
                }
                _ => "+OK\r\n".to_owned(),
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Stops accepting, then closes all connections.
    fn leave(&self) {
        for port in self.ports {
            drop(TcpStream::connect(("127.0.0.1", port)));
        }
        for node in lock(&self.listening).drain(..) {
            node.join().expect("no panic");
        }
        for stream in lock(&self.streams).drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn read_command(requests: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |requests: &mut dyn BufRead| {
        let mut line = String::new();
        requests.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let words = number(requests)?;
    let mut command = Vec::new();
    for _ in 0..words {
        let mut word = vec![0; number(requests)? + 2];
        requests.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        command.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(command)
}

/// redis-rs ends requests in flight with the error of its search for the nodes, which says nothing about the
/// request: here "connection refused", for a request that was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sent_request_may_be_charged_although_the_nodes_are_not_found_again() {
    let nodes = Pretended::start();
    let urls = nodes.ports.map(|port| format!("redis://127.0.0.1:{port}/"));
    let client = ClusterClientBuilder::new(urls).retries(0).build().expect("URLs");
    let connection = client.get_async_connection().await.expect("they answer");
    let connection = tollgate::redis::Cluster::new(connection);
    let limiter = builder(bursty(RATE), connection).deadline(DEADLINE * 4).build();
    let [first, other] = ["a", "b"].map(|key| limiter.at(key));
    let under_way = tokio::spawn(async move { first.acquire(1).await });
    eventually("it was sent", || nodes.took.load(Ordering::SeqCst)).await;
    let other = tokio::spawn(async move { other.acquire(1).await });
    let error = store(under_way.await.expect("no panic"));
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    assert!(source.is_some_and(RedisError::is_connection_refusal), "{error}");
    assert!(error.may_have_charged(), "{error}");
    other.abort();
}
