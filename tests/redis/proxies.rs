//! A proxy does what its mode says to its connections, and affects no others.

use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};

use crate::support::proxy::{Mode, Proxy};
use crate::support::replica::Replica;
use crate::support::server::Server;
use crate::support::until;

/// Short, where nothing is expected to come.
const SOON: Duration = Duration::from_millis(100);

fn connect(proxy: &Proxy) -> Connection {
    let connection = proxy.client().get_connection().expect("the proxy accepts");
    connection.set_read_timeout(Some(SOON)).expect("it is not zero");
    connection
}

fn increment(connection: &mut Connection) -> RedisResult<u64> {
    redis::cmd("INCR").arg("a").query(connection)
}

fn value(server: &Server) -> u64 {
    server.query::<Option<u64>>(&["GET", "a"]).unwrap_or(0)
}

#[test]
fn it_passes_by_default() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    assert_eq!(increment(&mut connection).expect("an answer"), 1);
    assert_eq!((value(&server), proxy.accepted()), (1, 1));
    drop(proxy);
    assert!(increment(&mut connection).is_err());
    assert_eq!(value(&server), 1);
}

/// The delay of each reply starts when it arrives, also while an earlier one is held back.
#[test]
fn answers_are_late_by_the_delay_however_many_are_on_their_way() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    connection.set_read_timeout(Some(SOON * 100)).expect("it is not zero");
    proxy.set(Mode::DelayAnswers(SOON * 10));
    let start = Instant::now();
    for asked in 1..=10 {
        connection.send_packed_command(b"INCR a\r\n").expect("it is open");
        until("the server is asked", || value(&server) == asked);
    }
    for asked in 1..=10 {
        assert_eq!(connection.recv_response().expect("an answer"), Value::Int(asked));
    }
    let elapsed = start.elapsed();
    assert!((SOON * 10..SOON * 20).contains(&elapsed), "{elapsed:?}");
    proxy.set(Mode::Pass);
    assert_eq!(increment(&mut connection).expect("an answer"), 11);
}

/// Dropped while an answer is held back for a minute.
#[test]
fn a_long_delay_does_not_hold_up_its_end() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    proxy.set(Mode::DelayAnswers(Duration::from_secs(60)));
    assert!(increment(&mut connection).expect_err("no answer").is_timeout());
    let start = Instant::now();
    drop(proxy);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(value(&server), 1);
}

#[test]
fn swallowed_answers_are_those_of_requests_that_were_served() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    proxy.set(Mode::SwallowAnswers);
    assert!(increment(&mut connection).expect_err("no answer").is_timeout());
    assert_eq!(value(&server), 1);
}

#[test]
fn swallowed_requests_are_not_served() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    proxy.set(Mode::SwallowRequests);
    assert!(increment(&mut connection).expect_err("no answer").is_timeout());
    assert_eq!(value(&server), 0);
}

/// Bytes after the gap would be read as the missing reply.
#[test]
fn a_connection_that_lost_bytes_stays_mute() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    proxy.set_once(Mode::SwallowAnswers);
    one.send_packed_command(b"INCR a\r\n").expect("it is open");
    until("the answer is lost", || proxy.mode() == Mode::Pass);
    assert_eq!(increment(&mut other).expect("an answer"), 2);
    one.send_packed_command(b"INCR a\r\n").expect("it is open");
    until("the server is asked", || value(&server) == 3);
    assert!(one.recv_response().expect_err("no answer").is_timeout());
    proxy.cut();
    assert_eq!(increment(&mut connect(&proxy)).expect("an answer"), 4);
}

#[test]
fn a_cut_before_the_request_leaves_it_undone_and_one_before_the_answer_leaves_it_done() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    for (mode, done) in [(Mode::CutBeforeRequest, 0), (Mode::CutBeforeAnswer, 1)] {
        let (mut one, mut other) = (connect(&proxy), connect(&proxy));
        proxy.set(mode);
        for _ in 0..2 {
            let error = increment(&mut one).expect_err("cut");
            assert!(!error.is_timeout(), "{error}");
        }
        assert_eq!(value(&server), done);
        assert!(increment(&mut other).is_err());
        assert_eq!(value(&server), 2 * done);
        proxy.set(Mode::Pass);
    }
}

#[test]
fn a_single_cut_leaves_the_next_connection_alone() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    proxy.set_once(Mode::CutBeforeAnswer);
    assert!(increment(&mut one).is_err());
    assert_eq!(increment(&mut other).expect("an answer"), 2);
}

#[test]
fn all_are_cut_and_new_ones_refused() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    proxy.set(Mode::Refuse);
    assert_eq!(increment(&mut connection).expect("an answer"), 1);
    let refusal = proxy.client().get_connection().err().expect("refused");
    assert!(refusal.is_connection_refusal(), "{refusal}");
    proxy.cut();
    assert!(increment(&mut connection).is_err());
    proxy.set(Mode::Pass);
    assert_eq!(increment(&mut connect(&proxy)).expect("an answer"), 2);
    assert_eq!(value(&server), 2);
}

#[test]
fn it_turns_to_another_server() {
    let primary = Server::start();
    let replica = Replica::of(&primary);
    let proxy = Proxy::to(&primary);
    let mut connection = connect(&proxy);
    increment(&mut connection).expect("an answer");
    replica.wait_synced(&primary);
    primary.kill();
    replica.promote();
    proxy.retarget(&replica);
    assert!(increment(&mut connection).is_err());
    assert_eq!(increment(&mut connect(&proxy)).expect("an answer"), 2);
}
