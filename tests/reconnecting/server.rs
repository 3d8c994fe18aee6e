//! A `redis-server` for one test.

use std::env;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server on a free port, without persistence; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(super) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", "/"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self { process, port }
    }

    /// It accepts requests, and does not answer.
    pub(super) fn stop(&self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &id]).status().expect("a program").success());
    }

    pub(super) fn client(&self) -> redis::Client {
        self.client_of("")
    }

    fn client_of(&self, user: &str) -> redis::Client {
        let url = format!("redis://{user}127.0.0.1:{}/", self.port);
        redis::Client::open(url).expect("a valid address")
    }

    pub(super) fn connection(&self) -> redis::Connection {
        let client = self.client();
        let start = Instant::now();
        loop {
            match client.get_connection() {
                Ok(connection) => return connection,
                Err(error) => {
                    assert!(start.elapsed() < Duration::from_secs(10), "no server: {error}");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// A client with permission for the commands of a limiter, but not for `PING`.
    pub(super) fn limited_client(&self, connection: &mut redis::Connection) -> redis::Client {
        let rules = "SETUSER limited on >secret ~* +evalsha +eval +time +get +set +setrange";
        redis::cmd("ACL").arg(rules.split(' ').collect::<Vec<_>>()).exec(connection).expect("set");
        self.client_of("limited:secret@")
    }

    /// The number of connections accepted so far.
    pub(super) fn connections(connection: &mut redis::Connection) -> u64 {
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("stats").query(connection).expect("statistics");
        info.get("total_connections_received").expect("a number")
    }

    /// Closes all connections except this one, as a server does with connections that are idle for too long.
    pub(super) fn close_the_others(connection: &mut redis::Connection) {
        let mut close = redis::cmd("CLIENT");
        let closed: u32 =
            close.arg("KILL").arg("TYPE").arg("normal").query(connection).expect("closed");
        assert!(closed > 0, "no other connections");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
