//! One Redis server.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::SystemTime;

use redis::{Client, Connection, FromRedisValue, RedisResult, ToRedisArgs, Value};

use super::clock::Clock;
use super::process::{Process, signal, stop};
use super::{LIMIT, lock, ports, until, until_some};

/// The number of ports to try.
const ATTEMPTS: usize = 10;

/// A server on a port of its own, in a directory of its own, that keeps nothing on disk by default.
/// It is killed when this is dropped and when this process ends, even by a signal.
pub(crate) struct Server {
    port: u16,
    options: Vec<String>,
    clock: Option<Clock>,
    process: Mutex<Process>,
    stopped: AtomicBool,
    connection: Mutex<Option<Connection>>,
    // The last, as the server is to be gone first.
    directory: Directory,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With command-line options, such as `["--maxmemory", "8mb"]`.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::launch(options, ports::free, false)
    }

    /// A node that has not met any other yet.
    pub(super) fn in_cluster(options: &[&str]) -> Self {
        let all = [&["--cluster-enabled", "yes"], options].concat();
        Self::launch(&all, ports::free_with_bus, false)
    }

    /// On a clock of its own, which is right until it is [stepped](Self::step_clock). Linux only.
    pub(crate) fn with_clock() -> Self {
        // That thread computes its sleep with this clock, and the system wakes it by the real one.
        Self::launch(&["--jemalloc-bg-thread", "no"], ports::free, true)
    }

    fn launch(options: &[&str], free_port: fn() -> u16, has_clock: bool) -> Self {
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let directory = Directory::new();
            let options: Vec<_> = options.iter().map(ToString::to_string).collect();
            let clock = has_clock.then(|| Clock::within(&directory.0));
            let process = run(port, &directory.0, clock.as_ref(), &options);
            let server = Self {
                port,
                options,
                clock,
                process: Mutex::new(process),
                stopped: AtomicBool::new(false),
                connection: Mutex::new(None),
                directory,
            };
            if server.came_up() {
                return server;
            }
        }
        panic!("{ATTEMPTS} free ports were taken meanwhile");
    }

    /// Whether it answers now; false if another process was quicker to take its port.
    fn came_up(&self) -> bool {
        until_some("a new server answers", || {
            let (pid, status) = {
                let mut process = lock(&self.process);
                (process.pid(), process.status())
            };
            if let Some(status) = status {
                let log = fs::read_to_string(log_in(&self.directory.0)).unwrap_or_default();
                assert!(
                    !matches!(status.code(), Some(126 | 127)),
                    "there is no {}: ./tests/run installs it, and REDIS_SERVER names another one",
                    program().display(),
                );
                assert!(log.contains("Address already in use"), "redis-server: {status}\n{log}");
                return Some(false);
            }
            // Another server may have the port.
            let info = self.try_info("server").ok()?;
            (info.get("process_id") == Some(&pid.to_string())).then_some(true)
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("the URL is one")
    }

    /// Of the server itself; another one after [`restart`](Self::restart).
    pub(crate) fn pid(&self) -> u32 {
        lock(&self.process).pid()
    }

    /// Whether the process is there, stopped or not.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.process).status().is_none()
    }

    /// Whether it is there and not stopped.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_running() && !self.stopped.load(Ordering::SeqCst)
    }

    /// Whether a connection to its port is refused.
    pub(crate) fn refuses(&self) -> bool {
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// SIGKILL. It is gone on return.
    pub(crate) fn kill(&self) {
        lock(&self.process).kill();
        *lock(&self.connection) = None;
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// SIGSTOP: connections are still accepted, by the system, and nothing is answered.
    pub(crate) fn stop_process(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        stop(lock(&self.process).pid());
    }

    /// SIGCONT.
    pub(crate) fn continue_process(&self) {
        signal(lock(&self.process).pid(), "CONT");
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// Killed if it still runs, then started on the same port with the same options: empty, or with what
    /// [`save_snapshot`](Self::save_snapshot) saved.
    pub(crate) fn restart(&self) {
        self.kill();
        until("a restarted server gets its port again", || {
            let (directory, clock) = (&self.directory.0, self.clock.as_ref());
            *lock(&self.process) = run(self.port, directory, clock, &self.options);
            self.came_up()
        });
    }

    /// Sets the clock of a server [with one](Self::with_clock): from now on it is off by `seconds`.
    #[track_caller]
    pub(crate) fn step_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("it has a clock").set(seconds);
        let ours = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // of a few hours
        let off = seconds as f64;
        let program = program();
        let what = format!(
            "the server's clock is {seconds} s off: does {} ignore LD_PRELOAD?",
            program.display()
        );
        // Valkey 9 looks at it ten times a second, and counts by itself between.
        until(&what, || {
            let before = ours();
            let (theirs, microseconds): (f64, f64) = self.query(&["TIME"]);
            let theirs = theirs + microseconds / 1e6 - off;
            // A millisecond for rounding.
            (before - 0.001..=ours() + 0.001).contains(&theirs)
        });
    }

    pub(crate) fn save_snapshot(&self) {
        self.command(&["SAVE"]);
    }

    /// The answer to a command, from a connection that this keeps for itself. An error is a panic.
    #[track_caller]
    pub(crate) fn command(&self, words: &[impl ToRedisArgs]) -> Value {
        self.query(words)
    }

    /// The same as a type of one's choice.
    #[track_caller]
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> T {
        match self.try_query(words) {
            Ok(answer) => answer,
            Err(error) => panic!("{} of {}: {error}", name_of(words), self.url()),
        }
    }

    /// The same for commands that may fail. Nothing is sent a second time.
    pub(crate) fn try_query<T: FromRedisValue>(
        &self,
        words: &[impl ToRedisArgs],
    ) -> RedisResult<T> {
        let mut kept = lock(&self.connection);
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = redis::Cmd::new().arg(words).query::<Value>(&mut connection);
        // After any other error an answer may still be on its way, and would be taken for the next.
        if answer.as_ref().err().is_none_or(|error| error.code().is_some()) {
            *kept = Some(connection);
        }
        Ok(redis::from_redis_value(answer?)?)
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client().get_connection_with_timeout(LIMIT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        connection.set_write_timeout(Some(LIMIT))?;
        Ok(connection)
    }

    /// A section of `INFO`.
    #[track_caller]
    pub(crate) fn info(&self, section: &str) -> HashMap<String, String> {
        match self.try_info(section) {
            Ok(info) => info,
            Err(error) => panic!("INFO {section} of {}: {error}", self.url()),
        }
    }

    pub(super) fn try_info(&self, section: &str) -> RedisResult<HashMap<String, String>> {
        let text: String = self.try_query(&["INFO", section])?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The number of runs of a command, such as `evalsha`, and the microseconds they took.
    pub(crate) fn commandstats(&self, command: &str) -> (u64, u64) {
        let info = self.info("commandstats");
        let Some(line) = info.get(&format!("cmdstat_{command}")) else { return (0, 0) };
        let field = |name| {
            let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|&(key, _)| key == name).expect("Redis reports it");
            value.parse().expect("a number")
        };
        (field("calls"), field("usec"))
    }

    /// From here on [`commandstats`](Self::commandstats) counts from zero.
    pub(crate) fn reset_stats(&self) {
        self.command(&["CONFIG", "RESETSTAT"]);
    }
}

fn run(port: u16, directory: &Path, clock: Option<&Clock>, options: &[String]) -> Process {
    let directory_name = directory.to_str().expect("a temporary directory has a plain name");
    let mut arguments: Vec<String> = [
        ["--bind", "127.0.0.1"],
        ["--port", &port.to_string()],
        ["--dir", directory_name],
        ["--save", ""],
        ["--appendonly", "no"],
        // A replica gets its data at once, and does not keep them for a restart.
        ["--repl-diskless-sync-delay", "0"],
        ["--rdb-del-sync-files", "yes"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect();
    arguments.extend_from_slice(options);
    let Some(clock) = clock else {
        return Process::start(&program(), &arguments, &log_in(directory));
    };
    let program = program().into_string().expect("a plain name");
    let arguments = [&clock.environment()[..], &[program], &arguments].concat();
    Process::start("env".as_ref(), &arguments, &log_in(directory))
}

fn program() -> OsString {
    env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn log_in(directory: &Path) -> PathBuf {
    directory.join("log")
}

fn name_of(words: &[impl ToRedisArgs]) -> String {
    let first = words.iter().flat_map(ToRedisArgs::to_redis_args).next();
    String::from_utf8_lossy(&first.unwrap_or_default()).into_owned()
}

/// Where files are in memory, if there is such a place: a node of a cluster writes down each slot that moves
/// and stands still until a busy disk has it, for longer than a caller waits.
fn temporary() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { env::temp_dir() }
}

/// A temporary directory, removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tollgate-redis-{}-{number}", process::id());
            let path = temporary().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a process of the same number that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The rest is empty but for a log, which is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}
