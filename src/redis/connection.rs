//! Connections: one small trait between the limiter and redis-rs.

#[cfg(feature = "redis-cluster")]
pub(super) mod cluster;
mod failure;
pub(super) mod reconnecting;
mod request;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::sender;
pub use failure::{Effect, Failure};
pub use request::{Reply, Request, Script};

/// A task that sends requests.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection over which a [`RedisRateLimiter`](super::RedisRateLimiter) runs its scripts.
///
/// Every asynchronous connection of redis-rs that can be cloned is one: `ConnectionManager`,
/// `ClusterConnection`, and `MultiplexedConnection`, which does not come back once it is cut.
/// [`Reconnecting`](super::Reconnecting) is this crate's own. An implementation **never resends a request** that may
/// have reached the server: it would be charged twice. redis-rs's cluster client resends unless it is built with
/// `ClusterClientBuilder::retries(0)`.
///
/// ```
/// use tollgate::redis::Connection;
///
/// fn is_connection<C: Connection>() {}
/// is_connection::<redis::aio::MultiplexedConnection>();
/// is_connection::<tollgate::redis::Reconnecting>();
/// ```
pub trait Connection: Clone + Send + Sync + 'static {
    /// Runs a script, and answers within [`Request::deadline`].
    fn run(&self, request: &Request) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Runs a task, which calls [`run`](Self::run). By default on a thread of this crate, in a tokio runtime of
    /// its own. A test whose time is simulated runs it elsewhere: under `tokio::time::pause` by `tokio::spawn`.
    fn spawn(&self, task: Task) {
        sender::spawn(task);
    }
}

/// `EVALSHA`, and `EVAL` if the server did not know the script and so did not run it.
pub(crate) async fn evaluate<F: Future<Output = Result<Value, RedisError>>>(
    request: &Request,
    mut send: impl FnMut(Cmd) -> F,
) -> Result<Value, RedisError> {
    match send(request.command(false)).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            send(request.command(true)).await
        }
        outcome => outcome,
    }
}

pub(crate) async fn send(
    mut connection: impl ConnectionLike,
    command: Cmd,
) -> Result<Value, RedisError> {
    connection.req_packed_command(&command).await.and_then(Value::extract_error)
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let outcome = evaluate(request, |command| send(self.clone(), command));
        match tokio::time::timeout(request.deadline, outcome).await {
            Ok(outcome) => outcome?.try_into(),
            Err(_) => Err(Failure::late(request.deadline)),
        }
    }
}

/// A connection that was idle for this long is tried by a `PING` before it is used: servers and proxies close
/// idle connections, some without notice.
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// Whether the server replied, even with an error: `PING` may not be permitted.
pub(crate) fn is_answer<T>(outcome: &Result<T, RedisError>) -> bool {
    outcome.as_ref().map_or_else(|error| error.code().is_some(), |_| true)
}

pub(crate) fn without_delay(client: Client) -> Result<Client, RedisError> {
    let info = client.get_connection_info().clone();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp))
}
