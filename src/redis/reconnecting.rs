//! A connection that comes back by itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::connection::{
    Connection, Effect, Failure, Reply, Request, evaluate, is_demoted, send, without_delay,
};
use crate::sync::Mutex;

/// A connection that is made when it is first needed and again when it is lost, or when the server
/// turns out to be a replica now. Clones share it. Nothing is sent twice.
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
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// Never locked for longer than it takes to look.
    current: Mutex<Option<Arc<MultiplexedConnection>>>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
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

    /// By a client that is set up already. Set `TCP_NODELAY` in it: redis-rs 1 leaves it off.
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
        let shared = Shared { client, current: Mutex::default(), connecting: Default::default() };
        Self { shared: Arc::new(shared) }
    }
}

impl Shared {
    async fn connection(
        &self,
        deadline: Duration,
    ) -> Result<Arc<MultiplexedConnection>, RedisError> {
        let current = || self.current.lock().clone();
        if let Some(connection) = current() {
            return Ok(connection);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connection) = current() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let connection = Arc::new(connection);
        *self.current.lock() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Others may have a new one already.
    fn forget(&self, connection: &Arc<MultiplexedConnection>) {
        self.current.lock().take_if(|current| Arc::ptr_eq(current, connection));
    }
}

impl Connection for Reconnecting {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let shared = &*self.shared;
        let start = tokio::time::Instant::now();
        let connecting =
            tokio::time::timeout(request.deadline, shared.connection(request.deadline));
        // Nothing is sent yet, however that ends.
        let connection = match connecting.await {
            Ok(connecting) => connecting.map_err(Failure::from),
            Err(_) => Err(Failure::late(request.deadline)),
        };
        let connection =
            connection.map_err(|failure| Failure { effect: Effect::None, ..failure })?;
        let outcome = evaluate(request, |command| send((*connection).clone(), command));
        let Ok(outcome) = tokio::time::timeout_at(start + request.deadline, outcome).await else {
            // Answers that come late on this connection are of no use to anybody.
            shared.forget(&connection);
            return Err(Failure::late(request.deadline));
        };
        if let Err(error) = &outcome
            && (error.is_unrecoverable_error() || error.is_io_error() || is_demoted(error))
        {
            shared.forget(&connection);
        }
        outcome?.try_into()
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").finish_non_exhaustive()
    }
}
