//! A connection over which a real server decides by a manual clock.
// Not every program needs all of it.
#![allow(dead_code)]

mod support;

use std::cell::RefCell;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tollgate::ManualClock;
use tollgate::redis::{Connection, Request, StoreError};

use support::server::Server;

/// The line in which a script reads the time, and its replacement, which takes the time from an
/// argument: after the key, because the number of arguments has a meaning.
const TIME: [&str; 2] =
    ["local time, key = call('TIME'), KEYS[1]", "local time, key = {KEYS[2], KEYS[3]}, KEYS[1]"];

/// Where a script reads the key, and the same if it has expired by the manual clock: real time goes on while
/// that stands still.
const READ: [&str; 2] = [
    "local blob, now = call('GET', key), time[1] * 1000000 + time[2]",
    "local now, dies = time[1] * 1000000 + time[2], call('GET', key .. ':dies')\n\
     if dies and now >= tonumber(dies) then call('DEL', key, key .. ':dies') end\n\
     local blob = call('GET', key)",
];

/// Where a script sets its expiry, and the same by the manual clock.
const EXPIRY: [&str; 2] = [
    "call('SET', key, value, unpack(milliseconds and {'PX', milliseconds} or {'KEEPTTL'}))",
    "call('SET', key, value)\n\
     local dies = milliseconds and string.format('%.0f', now + milliseconds * 1000)\n\
     if dies then call('SET', key .. ':dies', dies) end",
];

/// Runs each script at once, on the thread that asks, at the time that a [`ManualClock`] shows. So
/// no call ever waits for a reply, and none needs a runtime.
///
/// One server serves all tests that run in parallel; each test uses keys of its own, from
/// [`new_key`].
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    clock: ManualClock,
    /// The lag of the server's clock, in microseconds.
    behind: Arc<AtomicU64>,
}

impl Manual {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), behind: Arc::default() }
    }

    /// Seconds and microseconds. Truncated to microseconds, as `TIME` does. A wait in a reply is a
    /// whole number of microseconds, so it ends at the same moment by either clock.
    fn time(&self) -> (u64, u32) {
        let time = self.server_time();
        (time.as_secs(), time.subsec_micros())
    }

    pub(crate) fn server_time(&self) -> Duration {
        let behind = Duration::from_micros(self.behind.load(Ordering::Relaxed));
        self.clock.elapsed().saturating_sub(behind)
    }

    /// Sets back only the server's clock: those of processes do not go back.
    pub(crate) fn set_back(&self, time: Duration) {
        let behind = self.clock.elapsed().saturating_sub(time);
        self.behind.store(u64::try_from(behind.as_micros()).expect("a time"), Ordering::Relaxed);
    }

    /// What is at a key.
    pub(crate) fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        with_link(|link| Cmd::get(key).query(&mut link.connection)).expect("the server is well")
    }

    /// As if another program had written it, for good.
    pub(crate) fn set_bytes(&self, key: &str, bytes: &[u8]) {
        self.lose(&format!("{key}:dies"));
        with_link(|link| Cmd::set(key, bytes).exec(&mut link.connection))
            .expect("the server is well");
    }

    /// When a key expires, by the clock of the server.
    pub(crate) fn dies(&self, key: &str) -> Option<Duration> {
        let dies = with_link(|link| Cmd::get(format!("{key}:dies")).query(&mut link.connection));
        dies.map(|dies: Option<u64>| dies.map(Duration::from_micros)).expect("the server is well")
    }

    /// As if it had been evicted.
    pub(crate) fn lose(&self, key: &str) {
        let lost = with_link(|link| Cmd::del(key).exec(&mut link.connection));
        lost.expect("the server is well");
    }
}

impl Connection for Manual {
    fn run(&self, request: &Request) -> impl Future<Output = Result<Vec<f64>, StoreError>> + Send {
        let answer = with_link(|link| link.evaluate(request, self.time()));
        ready(answer.map_err(StoreError::from).and_then(|value| request.reply(value)))
    }

    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        // All its replies are ready at once, but it yields between two requests.
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    }
}

/// A key that no other test uses.
pub(crate) fn new_key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("key:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The state of one thread: its server and connection.
struct Link {
    connection: redis::Connection,
    /// Text and digest of the script, which takes the time as an argument.
    script: Option<(String, String)>,
    // The last field, as it may hold the last reference to the server.
    _server: Arc<Server>,
}

impl Link {
    fn new() -> Self {
        static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::start());
            *shared = Arc::downgrade(&server);
            server
        });
        drop(shared);
        let connection = server.client().get_connection().expect("a server that has come up");
        Self { connection, script: None, _server: server }
    }

    /// No other thread changes a script meanwhile, so it runs at most once.
    fn evaluate(&mut self, request: &Request, time: (u64, u32)) -> Result<Value, RedisError> {
        let (text, digest) = self.script.get_or_insert_with(|| with_the_time(request));
        let mut evaluate = |name, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script).arg(3).arg(&*request.key).arg(time.0).arg(time.1);
            command.arg(&*request.argument);
            command.query::<Value>(&mut self.connection)
        };
        match evaluate("EVALSHA", digest) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                evaluate("EVAL", text)
            }
            // That of a key which was cut short.
            Err(error) if error.to_string().contains("data string too short") => Err(error),
            // A limiter would wait until the server recovers.
            Err(error) if error.code() == Some("ERR") => panic!("a mistake in a script: {error}"),
            outcome => outcome,
        }
    }
}

fn with_the_time(request: &Request) -> (String, String) {
    let command = request.command(true);
    let Some(Arg::Simple(text)) = command.args_iter().nth(1) else { panic!("EVAL has a text") };
    let mut text = String::from_utf8(text.to_vec()).expect("Lua");
    for [line, ours] in [TIME, READ, EXPIRY] {
        assert!(text.contains(line), "{line} is not in\n{text}");
        text = text.replace(line, ours);
    }
    let digest = redis::Script::new(&text).get_hash().to_owned();
    (text, digest)
}

fn with_link<R>(act: impl FnOnce(&mut Link) -> R) -> R {
    thread_local! {
        static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
    }
    LINK.with_borrow_mut(|link| act(link.get_or_insert_with(Link::new)))
}
