//! Servers start, stop, return and change roles on command, and never outlive their owner.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use redis::{ErrorKind, ServerErrorKind, Value};

use crate::support::replica::{Replica, demote};
use crate::support::server::Server;
use crate::support::until;

fn get(server: &Server, key: &str) -> Option<String> {
    server.query(&["GET", key])
}

#[test]
fn a_server_has_its_options_and_counts_its_commands() {
    let server = Server::with(&["--maxmemory", "8mb"]);
    let memory: (String, u64) = server.query(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(memory.1, 8 * 1024 * 1024);
    assert_eq!(server.commandstats("incr"), (0, 0));
    assert_eq!(server.command(&["INCR", "a"]), Value::Int(1));
    assert_eq!(server.query::<u64>(&["INCR", "a"]), 2);
    assert_eq!(server.commandstats("incr").0, 2);
    server.reset_stats();
    assert_eq!(server.commandstats("incr"), (0, 0));
}

/// Off for its keys, too.
#[cfg(target_os = "linux")]
#[test]
fn a_server_has_a_clock_of_its_own() {
    let server = Server::with_clock();
    server.step_clock(0);
    for (clock, seconds, is_left) in [(0, 30, false), (30, 3630, false), (0, -3600, true)] {
        server.step_clock(clock);
        server.command(&["SET", "a", "1", "PX", "20000"]);
        server.step_clock(seconds);
        assert_eq!(get(&server, "a").is_some(), is_left, "from {clock} s to {seconds} s");
    }
    let milliseconds: i64 = server.query(&["PTTL", "a"]);
    assert!(milliseconds > 3_600_000 && milliseconds <= 3_620_000, "{milliseconds} ms");
    server.restart();
    server.step_clock(7);
}

#[test]
fn servers_do_not_know_each_other() {
    let (one, other) = (Server::start(), Server::start());
    assert_ne!((one.port(), one.pid()), (other.port(), other.pid()));
    one.command(&["SET", "a", "1"]);
    assert_eq!(get(&other, "a"), None);
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty() {
    let server = Server::start();
    let pid = server.pid();
    server.command(&["SET", "a", "1"]);
    server.kill();
    assert!(server.refuses() && !server.is_running());
    assert!(server.try_query::<Value>(&["PING"]).is_err());
    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(get(&server, "a"), None);
}

#[test]
fn a_snapshot_is_there_after_a_restart() {
    let server = Server::start();
    server.command(&["SET", "a", "1"]);
    server.save_snapshot();
    server.command(&["SET", "b", "1"]);
    server.restart();
    assert_eq!((get(&server, "a").as_deref(), get(&server, "b")), (Some("1"), None));
}

#[test]
fn a_server_that_ends_by_itself_is_noticed() {
    let server = Server::start();
    let _ = server.try_query::<Value>(&["SHUTDOWN", "NOSAVE"]);
    until("it is gone", || !server.is_running());
    assert!(server.refuses());
}

#[test]
fn a_server_that_is_killed_is_noticed() {
    let server = Server::start();
    let kill = Command::new("sh").args(["-c", &format!("kill -KILL {}", server.pid())]).status();
    assert!(kill.expect("a shell starts").success());
    until("it is gone", || !server.is_running());
    server.restart();
    assert!(server.is_serving());
}

/// A request sent while the server is stopped is answered when it continues.
#[test]
fn a_stopped_server_accepts_and_answers_later() {
    let server = Server::start();
    server.stop_process();
    assert!(server.is_running() && !server.is_serving() && !server.refuses());
    thread::scope(|scope| {
        let answer = scope.spawn(|| server.query::<u64>(&["INCR", "a"]));
        let mut probe = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("accepted");
        probe.write_all(b"PING\r\n").expect("the system takes it");
        assert!(!answer.is_finished());
        server.continue_process();
        assert_eq!(answer.join().expect("an answer"), 1);
        let mut pong = String::new();
        BufReader::new(probe).read_line(&mut pong).expect("an answer");
        assert_eq!(pong, "+PONG\r\n");
    });
}

#[test]
fn a_stopped_server_can_be_killed_and_dropped() {
    let server = Server::start();
    server.stop_process();
    server.restart();
    assert!(server.is_serving());
    server.stop_process();
    drop(server);
}

#[test]
fn a_replica_follows_and_changes_places() {
    let primary = Server::start();
    primary.command(&["SET", "a", "1"]);
    let replica = Replica::of(&primary);
    assert_eq!(get(&replica, "a").as_deref(), Some("1"));
    let error = replica.try_query::<Value>(&["SET", "a", "2"]).expect_err("it is a replica");
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
    primary.command(&["SET", "a", "2"]);
    replica.wait_synced(&primary);
    assert_eq!(get(&replica, "a").as_deref(), Some("2"));

    replica.promote();
    replica.command(&["SET", "a", "3"]);
    demote(&primary, &replica);
    assert_eq!(get(&primary, "a").as_deref(), Some("3"));
    assert!(primary.try_query::<Value>(&["SET", "a", "4"]).is_err());
}

/// Names the copy of this test that runs in a process of its own and is killed there.
const OWNER: &str = "TOLLGATE_TEST_OWNER";

#[test]
fn a_server_does_not_outlive_a_killed_owner() {
    if env::var_os(OWNER).is_some() {
        let server = Server::start();
        let (_, directory): (String, String) = server.query(&["CONFIG", "GET", "dir"]);
        println!("\n{OWNER} {} {directory}", server.port());
        loop {
            thread::park();
        }
    }
    let name = "servers::a_server_does_not_outlive_a_killed_owner";
    let mut owner = Command::new(env::current_exe().expect("it has a name"))
        .args(["--exact", name, "--nocapture"])
        .env(OWNER, "")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts once more");
    let lines = BufReader::new(owner.stdout.take().expect("piped")).lines();
    let line = lines
        .map(|line| line.expect("text"))
        .find(|line| line.starts_with(OWNER))
        .expect("the owner tells its server");
    let words: Vec<_> = line.split(' ').collect();
    let port: u16 = words[1].parse().expect("a port");
    let directory = PathBuf::from(words[2]);
    let refused = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err();
    assert!(!refused());
    owner.kill().expect("it still runs");
    owner.wait().expect("it is our child");
    until("the server is gone", refused);
    fs::remove_dir_all(directory).expect("the directory is ours");
}
