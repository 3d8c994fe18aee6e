//! Connections: one small trait between the limiter and redis-rs.

#[cfg(feature = "redis-cluster")]
pub(super) mod cluster;
mod failure;
pub(super) mod reconnecting;
mod request;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::store::StoreError;
use crate::sync::Mutex;
pub use request::Request;
pub(crate) use request::{next_number, random};

/// A connection over which a [`RedisRateLimiter`](super::RedisRateLimiter) runs its scripts.
///
/// Every asynchronous connection of redis-rs that can be cloned is one: `ConnectionManager`, `ClusterConnection`,
/// and `MultiplexedConnection`, which does not come back once it is cut. [`Reconnecting`](super::Reconnecting) is
/// this crate's own. An implementation **never resends a request** that may have reached the server: it would be
/// charged twice. redis-rs's cluster client resends unless it is built with `ClusterClientBuilder::retries(0)`.
///
/// It reads the server's reply by [`Request::reply`]. If that is an error, the connection is out of step and must
/// be closed: a pool drops it, and the server closes a connection of redis-rs, on `QUIT`.
///
/// ```
/// use tollgate::redis::Connection;
///
/// fn is_connection<C: Connection>() {}
/// is_connection::<redis::aio::MultiplexedConnection>();
/// is_connection::<tollgate::redis::Reconnecting>();
/// ```
#[diagnostic::on_unimplemented(note = "pass `Reconnecting::open(url)?`")]
pub trait Connection: Clone + Send + Sync + 'static {
    /// Runs a script, and answers within [`Request::deadline`].
    fn run(&self, request: &Request) -> impl Future<Output = Result<Vec<f64>, StoreError>> + Send;

    /// Runs a task, which calls [`run`](Self::run). By default on a thread of this crate, in a tokio runtime of
    /// its own. A test whose time is simulated runs it elsewhere: under `tokio::time::pause` by `tokio::spawn`.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        spawn(task);
    }
}

/// Where commands are sent to.
pub(crate) trait Wire: Clone + Send + Sync + 'static {
    fn send(&self, command: Cmd) -> impl Future<Output = Result<Value, RedisError>> + Send;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Wire for C {
    async fn send(&self, command: Cmd) -> Result<Value, RedisError> {
        self.clone().req_packed_command(&command).await.and_then(Value::extract_error)
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        exchange(self, request, request.idle[0], StoreError::from).await
    }
}

/// `EVALSHA`, and `EVAL` if the server did not know the script and so did not run it.
pub(crate) async fn evaluate(wire: &impl Wire, request: &Request) -> Result<Value, RedisError> {
    match wire.send(request.command(false)).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            wire.send(request.command(true)).await
        }
        outcome => outcome,
    }
}

/// Runs a request over a connection that may serve others, and that only the server can close. `is_idle`: it may
/// have been closed meanwhile.
pub(crate) async fn exchange(
    wire: &impl Wire,
    request: &Request,
    is_idle: bool,
    failure: impl Fn(RedisError) -> StoreError,
) -> Result<Vec<f64>, StoreError> {
    let end = Instant::now() + request.deadline;
    if is_idle {
        wake(wire, request).await.map_err(|error| match error {
            Some(error) => failure(error).unsent(),
            None => StoreError::late(request.deadline / 2).unsent(),
        })?;
    }
    let outcome = timeout_at(end, evaluate(wire, request)).await;
    // redis-rs may have a time-out of its own.
    if outcome.as_ref().map_or(true, |it| it.as_ref().is_err_and(RedisError::is_timeout)) {
        // Of two requests in a row the first gets the reply to the second if replies are out of step.
        for _ in 0..2 {
            tokio::spawn(check(wire.clone(), Arc::clone(&request.key)));
        }
    }
    let value = outcome.map_err(|_| StoreError::late(request.deadline))?.map_err(failure)?;
    let reply = request.reply(value);
    if reply.is_err() {
        tokio::spawn(close(wire.clone(), Arc::clone(&request.key)));
    }
    reply
}

/// How long a check may stay unanswered, and the end of a connection.
const DOUBT: Duration = Duration::from_secs(1);

/// Closes the connection if it gives the reply to another request. It stays open if there is no reply.
async fn check(wire: impl Wire, key: Arc<str>) {
    let number = next_number();
    if let Ok(Ok(value)) = timeout(DOUBT, wire.send(echo(&key, number))).await
        && !is_echo(&value, number)
    {
        close(wire, key).await;
    }
}

/// The server closes the connection: with a key, so that a client of a cluster sends it to the node of that key.
async fn close(wire: impl Wire, key: Arc<str>) {
    let mut quit = redis::cmd("QUIT");
    quit.arg(&*key);
    let _ = timeout(DOUBT, wire.send(quit)).await;
}

/// Asks for an echo until the right server sends it. A connection that was closed while idle fails the first command,
/// whatever it is, and only then makes a new one, if it can; a cluster asks another node meanwhile.
async fn wake(wire: &impl Wire, request: &Request) -> Result<(), Option<RedisError>> {
    let (mut last, mut pause) = (None, Duration::from_millis(1));
    let awake = async {
        while let Err(error) = wire.send(echo(&request.key, next_number())).await
            && (error.code().is_none() || error.redirect_node().is_some())
        {
            last = Some(error);
            sleep(pause).await;
            pause *= 2;
        }
    };
    timeout(request.deadline / 2, awake).await.map_err(|_| last)
}

// Limiters may use scripts, and perhaps no other command.
fn echo(key: &str, number: u32) -> Cmd {
    let mut echo = redis::cmd("EVAL");
    echo.arg("return ARGV[1]").arg(1).arg(key).arg(&number.to_le_bytes());
    echo
}

fn is_echo(value: &Value, number: u32) -> bool {
    matches!(value, Value::BulkString(bytes) if *bytes == number.to_le_bytes())
}

/// A connection that was idle for this long is tried before it is used: servers and proxies close idle connections,
/// some without notice, and none after less than a second.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Runs a task on the thread that sends the requests of all limiters, which starts with the first. So no request depends on a
/// runtime that is parked, busy or gone. It lives as long as the process, as a connection made on it may outlive its
/// limiter. Drops the task if there can be no thread.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);
    let handle = {
        let mut handle = HANDLE.lock();
        if handle.is_none() {
            // If there are too many threads now, the next task tries again.
            *handle = start().ok();
        }
        handle.clone()
    };
    // A panic in the task ends only that task.
    drop(handle.map(|handle| handle.spawn(task)));
}

fn start() -> io::Result<Handle> {
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
    let (handle, driven) = (runtime.handle().clone(), Arc::clone(&runtime));
    let thread = thread::Builder::new().name("tollgate-redis".to_owned());
    let started = thread.spawn(move || driven.block_on(std::future::pending::<()>()));
    if let (Err(_), Some(runtime)) = (&started, Arc::into_inner(runtime)) {
        // A runtime must not be dropped in another one.
        runtime.shutdown_background();
    }
    started.map(|_| handle)
}
