//! A connection over which a real server decides by a clock that stands still.
// Not every program needs all of it.
#![allow(dead_code)]

mod support;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tollgate::ManualClock;
use tollgate::redis::{Connection, Failure, Reply, Request, Runtime, Script, Task};

use support::server::Server;

/// The line in which a script asks what time it is, and the same when it is told: behind the key, as the
/// number of arguments means something.
const TIME: [&str; 2] = ["local time = redis.call('TIME')", "local time = {KEYS[2], KEYS[3]}"];

/// Where a script sets its expiry, and the same a day later: real time goes on while the clock stands.
const EXPIRY: [&str; 2] = ["'PX', milliseconds)", "'PX', milliseconds + 86400000)"];

/// Runs each script at once, on the thread that asks, at the time that a [`ManualClock`] shows. So no
/// verb ever waits for an answer, and none needs a runtime.
///
/// The server is one for all tests that run side by side; everybody takes keys of his own, such as
/// [`new_key`] gives.
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    clock: ManualClock,
    /// How far the server's clock is behind, in microseconds.
    behind: Arc<AtomicU64>,
}

impl Manual {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), behind: Arc::default() }
    }

    /// Seconds and microseconds. What is less than a microsecond is cut off, as `TIME` does. A wait
    /// that is told is a whole number of microseconds, so by either clock it ends at the same moment.
    fn time(&self) -> (u64, u32) {
        let time = self.server_time();
        (time.as_secs(), time.subsec_micros())
    }

    pub(crate) fn server_time(&self) -> Duration {
        let behind = Duration::from_micros(self.behind.load(Ordering::Relaxed));
        self.clock.elapsed().saturating_sub(behind)
    }

    /// Sets the server's clock back, and no other: that of a process does not do that.
    pub(crate) fn set_back(&self, time: Duration) {
        let behind = self.clock.elapsed().saturating_sub(time);
        self.behind.store(u64::try_from(behind.as_micros()).expect("a time"), Ordering::Relaxed);
    }

    /// As if it had been evicted.
    pub(crate) fn lose(&self, key: &str) {
        let lost = with_link(|link| Cmd::del(key).exec(&mut link.connection));
        lost.expect("the server is well");
    }
}

impl Connection for Manual {
    fn run(&self, request: &Request) -> impl Future<Output = Result<Reply, Failure>> + Send {
        let answer = with_link(|link| link.evaluate(request, self.time()));
        ready(answer.map_err(Failure::from).and_then(Reply::try_from))
    }

    fn spawn(&self, _: &Runtime, mut task: Task) {
        // All that it waits for is ready at once, but it lets others run between two requests.
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    }
}

/// A key that nobody else uses.
pub(crate) fn new_key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("key:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What a thread has of the server.
struct Link {
    connection: redis::Connection,
    /// Text and digest of each script that is told the time, by the digest of the one that asks.
    scripts: HashMap<String, (String, String)>,
    // The last, as it may be the last that holds the server.
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
        Self { connection, scripts: HashMap::new(), _server: server }
    }

    /// Nobody else changes a script meanwhile, so it runs at most once.
    fn evaluate(&mut self, request: &Request, time: (u64, u32)) -> Result<Value, RedisError> {
        let digest = request.script.digest();
        if !self.scripts.contains_key(digest) {
            self.scripts.insert(digest.to_owned(), told_the_time(&request.script));
        }
        let mut evaluate = |name, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script).arg(3).arg(&*request.key).arg(time.0).arg(time.1);
            for argument in &request.arguments {
                command.arg(argument.as_slice());
            }
            command.query::<Value>(&mut self.connection)
        };
        let (text, digest) = &self.scripts[digest];
        match evaluate("EVALSHA", digest) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                evaluate("EVAL", text)
            }
            // A limiter would wait until the server is well again.
            Err(error) if error.code() == Some("ERR") => panic!("a mistake in a script: {error}"),
            outcome => outcome,
        }
    }
}

fn told_the_time(script: &Script) -> (String, String) {
    let mut text = script.text().to_owned();
    for [line, ours] in [TIME, EXPIRY] {
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
