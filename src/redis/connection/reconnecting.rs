//! A connection that reconnects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::failure::{Effect, Failure, is_demoted};
use super::request::{Reply, Request};
use super::{Connection, IDLE, evaluate, is_answer, send, without_delay};
use crate::sync::Mutex;

/// A connection that is made at the first use, and again when it is lost or the server has become a replica.
/// Clones share it. Nothing is sent twice.
///
/// After ten idle seconds it is tried by a `PING` first, and if its tokio runtime has ended it is made anew,
/// so that no request is lost with it.
///
/// ```no_run
/// use tollgate::redis::{RedisRateLimiter, Reconnecting};
/// use tollgate::{Rate, SmoothBursty};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = Reconnecting::open("redis://127.0.0.1/")?;
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Reconnecting {
    state: Arc<ReconnectingState>,
}

struct ReconnectingState {
    client: Client,
    /// Locked only for a look.
    current: Mutex<Option<Arc<Open>>>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<()>,
    idle: Duration,
}

struct Open {
    connection: MultiplexedConnection,
    /// A task that lives as long as the runtime that reads and writes for this connection.
    runtime: AbortHandle,
    answered: Mutex<Instant>,
}

impl Open {
    fn new(connection: MultiplexedConnection) -> Self {
        let runtime = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Self { connection, runtime, answered: Mutex::new(Instant::now()) }
    }

    /// Whether there is no reason to doubt that it is alive.
    fn is_fresh(&self, idle: Duration) -> bool {
        !self.runtime.is_finished() && self.answered.lock().elapsed() < idle
    }

    /// Tries it by a `PING`.
    async fn answers(&self, time: Duration) -> bool {
        if self.runtime.is_finished() {
            return false;
        }
        let ping = send(self.connection.clone(), redis::cmd("PING"));
        let said = tokio::time::timeout(time, ping).await.is_ok_and(|outcome| is_answer(&outcome));
        if said {
            *self.answered.lock() = Instant::now();
        }
        said
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.runtime.abort();
    }
}

impl Reconnecting {
    /// For a server at an address as redis-rs takes it, such as `redis://user:password@host:6379/0`. Does
    /// not connect yet.
    ///
    /// # Errors
    ///
    /// If the address is none.
    ///
    /// ```
    /// use tollgate::redis::Reconnecting;
    ///
    /// assert!(Reconnecting::open("redis://127.0.0.1:6379/").is_ok());
    /// assert!(Reconnecting::open("127.0.0.1").is_err());
    /// ```
    pub fn open(address: &str) -> Result<Self, RedisError> {
        Ok(Self::new(without_delay(Client::open(address)?)?))
    }

    /// By a client that is set up already. Set `TCP_NODELAY` in it
    /// ([`ConnectionInfo::set_tcp_settings`](redis::ConnectionInfo::set_tcp_settings)): redis-rs 1 leaves it off.
    ///
    /// ```
    /// use tollgate::redis::Reconnecting;
    ///
    /// let client = redis::Client::open("redis://127.0.0.1:6379/")?;
    /// let connection = Reconnecting::new(client);
    /// # Ok::<(), redis::RedisError>(())
    /// ```
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::asking_after(client, IDLE)
    }

    pub(crate) fn asking_after(client: Client, idle: Duration) -> Self {
        let (current, connecting) = Default::default();
        Self { state: Arc::new(ReconnectingState { client, current, connecting, idle }) }
    }
}

impl ReconnectingState {
    async fn connection(&self, deadline: Duration) -> Result<Arc<Open>, RedisError> {
        let current = || self.current.lock().clone();
        if let Some(open) = current().filter(|open| open.is_fresh(self.idle)) {
            return Ok(open);
        }
        // Not without a limit: the runtime of the task that connects may be blocked.
        let _turn = tokio::time::timeout(deadline / 4 * 3, self.connecting.lock()).await.ok();
        if let Some(open) = current() {
            if open.is_fresh(self.idle) || open.answers(deadline / 2).await {
                return Ok(open);
            }
            self.forget(&open);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let open = Arc::new(Open::new(connection));
        *self.current.lock() = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Others may have a new one already.
    fn forget(&self, open: &Arc<Open>) {
        self.current.lock().take_if(|current| Arc::ptr_eq(current, open));
    }
}

impl Connection for Reconnecting {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let state = &*self.state;
        let start = Instant::now();
        let connecting = tokio::time::timeout(request.deadline, state.connection(request.deadline));
        // Nothing is sent yet, however that ends.
        let open = match connecting.await {
            Ok(connecting) => connecting.map_err(Failure::from),
            Err(_) => Err(Failure::late(request.deadline)),
        };
        let open = open.map_err(|failure| Failure { effect: Effect::None, ..failure })?;
        let outcome = evaluate(request, |command| send(open.connection.clone(), command));
        let Ok(outcome) = tokio::time::timeout_at(start + request.deadline, outcome).await else {
            // A late reply on this connection is of no use.
            state.forget(&open);
            return Err(Failure::late(request.deadline));
        };
        *open.answered.lock() = Instant::now();
        if let Err(error) = &outcome
            && (error.is_unrecoverable_error() || error.is_io_error() || is_demoted(error))
        {
            state.forget(&open);
        }
        outcome?.try_into()
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").finish_non_exhaustive()
    }
}
