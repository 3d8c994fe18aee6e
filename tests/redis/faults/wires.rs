//! Connections of the tests' own, around a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Semaphore;
use tollgate::redis::{Connection, Failure, Reconnecting, Reply, Request};

use super::{LIMIT, multiplexed, reconnecting};

/// Lets a request through in two steps, each when it is told to: to the server, and back.
#[derive(Clone)]
pub(super) struct Gate {
    inner: Reconnecting,
    there: Arc<Semaphore>,
    back: Arc<Semaphore>,
    arrived: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
}

impl Gate {
    pub(super) fn to(url: &str) -> Self {
        Self {
            inner: reconnecting(url),
            there: Arc::new(Semaphore::new(0)),
            back: Arc::new(Semaphore::new(0)),
            arrived: Arc::default(),
            answered: Arc::default(),
        }
    }

    /// The next request may reach the server.
    pub(super) fn let_there(&self) {
        self.there.add_permits(1);
    }

    /// The next answer may come back.
    pub(super) fn let_back(&self) {
        self.back.add_permits(1);
    }

    /// Nothing is held up any more.
    pub(super) fn open(&self) {
        self.there.add_permits(1_000_000);
        self.back.add_permits(1_000_000);
    }

    /// Requests that have come as far as the gate.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Requests that the server has answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

async fn pass(semaphore: &Semaphore) {
    let passes = tokio::time::timeout(LIMIT, semaphore.acquire()).await;
    passes.expect("the test lets it pass").expect("it is never closed").forget();
}

impl Connection for Gate {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        pass(&self.there).await;
        let reply = self.inner.run(request).await;
        self.answered.fetch_add(1, Ordering::SeqCst);
        pass(&self.back).await;
        reply
    }
}

/// A server whose clock is off by as much as is said.
#[derive(Clone)]
pub(super) struct Shifted {
    inner: MultiplexedConnection,
    seconds: Arc<AtomicI64>,
}

impl Shifted {
    pub(super) async fn to(url: &str) -> Self {
        Self { inner: multiplexed(url).await, seconds: Arc::default() }
    }

    /// From now on.
    pub(super) fn shift(&self, seconds: i64) {
        self.seconds.store(seconds, Ordering::SeqCst);
    }
}

impl Connection for Shifted {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        const LINE: &str = "local time = redis.call('TIME')\n";
        let text = request.script.text();
        assert!(text.contains(LINE), "the script asks for the time by one line");
        let seconds = self.seconds.load(Ordering::SeqCst);
        let shifted = format!("{LINE}time[1] = time[1] + {seconds}\n");
        let mut command = redis::cmd("EVAL");
        command.arg(text.replace(LINE, &shifted)).arg(1).arg(&*request.key);
        for argument in &request.arguments {
            command.arg(argument.as_slice());
        }
        let mut connection = self.inner.clone();
        command.query_async::<Value>(&mut connection).await?.try_into()
    }
}
