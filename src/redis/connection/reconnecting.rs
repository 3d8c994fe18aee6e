//! A connection that reconnects.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::ends_connection;
use super::request::Request;
use super::{Connection, Wire, echo, evaluate, is_echo, next_number, spawn};
use crate::error::store::StoreError;
use crate::sync::Mutex;

/// How long connecting may take by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many requests are under way over a connection at most. The server executes one at a time, so more would only wait there,
/// the last of them beyond their deadline.
const MAX_REQUESTS: usize = 512;

/// A connection that is made at the first use, and again when it is lost or the server has become a replica.
/// Clones share it. Nothing is sent twice.
///
/// A task of its own connects, on the thread of this crate that sends requests. So the connection depends on no
/// runtime of yours, and a request whose deadline passes meanwhile does not end the attempt. If a reply is late, or is
/// that to another request, the next request makes a new connection. After an idle second a small `EVAL` tries the
/// connection first, so that no request is lost with it.
///
/// ```no_run
/// use tollgate::redis::{Reconnecting, RedisRateLimiter};
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
    connect_timeout: Duration,
}

type Connecting = Pin<Box<dyn Future<Output = Result<MultiplexedConnection, RedisError>> + Send>>;

struct ReconnectingState {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    current: Mutex<Current>,
    made: AtomicU64,
}

#[derive(Default)]
struct Current {
    open: Option<Arc<MultiplexedConnection>>,
    /// The outcome of the task that makes the next, if there is one.
    renewal: Option<Renewal>,
}

type Renewal = watch::Receiver<Option<Result<Arc<MultiplexedConnection>, StoreError>>>;

/// Tries a connection by an echo, which charges nothing. Any error of the server is an answer. `false`: it is out of step.
async fn answers(connection: &MultiplexedConnection, key: &str) -> Result<bool, RedisError> {
    let number = next_number();
    match connection.send(echo(key, number)).await {
        Ok(value) => Ok(is_echo(&value, number)),
        Err(error) if error.code().is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

impl Reconnecting {
    /// For a server at an address as redis-rs takes it, such as `redis://user:password@host:6379/0`. Does
    /// not connect yet.
    ///
    /// # Errors
    ///
    /// If it is not an address.
    pub fn open(address: &str) -> Result<Self, RedisError> {
        let info = Client::open(address)?.get_connection_info().clone();
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        // twemproxy closes a connection that sends `CLIENT SETINFO`.
        let redis = info.redis_settings().clone().set_skip_set_lib_name();
        Ok(Self::new(Client::open(info.set_tcp_settings(tcp).set_redis_settings(redis))?))
    }

    /// With a client of your own. Set `TCP_NODELAY` in it
    /// ([`ConnectionInfo::set_tcp_settings`](redis::ConnectionInfo::set_tcp_settings)): redis-rs 1 leaves it off. Behind
    /// twemproxy also skip the name of the library
    /// ([`RedisConnectionInfo::set_skip_set_lib_name`](redis::RedisConnectionInfo::set_skip_set_lib_name)).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with(move || {
            let client = client.clone();
            async move {
                let config = AsyncConnectionConfig::new()
                    .set_concurrency_limit(MAX_REQUESTS)
                    .set_connection_timeout(None)
                    .set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await
            }
        })
    }

    /// With a function that connects, where the server or the password changes: for a Sentinel, or for
    /// credentials that expire. It is called for each new connection.
    ///
    /// Set no response time-out in the connection
    /// ([`AsyncConnectionConfig::set_response_timeout`]): the limiter has its
    /// [deadline](crate::RateLimiterBuilder::deadline).
    ///
    /// ```no_run
    /// # // The feature `sentinel` of redis-rs has these two.
    /// # struct SentinelClient;
    /// # impl SentinelClient { async fn get_async_connection_with_config(&mut self, _: &AsyncConnectionConfig) -> redis::RedisResult<redis::aio::MultiplexedConnection> { todo!() } }
    /// use std::sync::Arc;
    ///
    /// use redis::AsyncConnectionConfig;
    /// use tokio::sync::Mutex;
    /// use tollgate::redis::Reconnecting;
    ///
    /// # fn example(client: SentinelClient) {
    /// // A `redis::sentinel::SentinelClient` for the master of the service.
    /// let sentinel = Arc::new(Mutex::new(client));
    /// let connection = Reconnecting::with(move || {
    ///     let sentinel = Arc::clone(&sentinel);
    ///     async move {
    ///         let config = AsyncConnectionConfig::new().set_response_timeout(None);
    ///         sentinel.lock().await.get_async_connection_with_config(&config).await
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn with<F, C>(connect: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = Result<MultiplexedConnection, RedisError>> + Send + 'static,
    {
        let connect = Box::new(move || Box::pin(connect()) as Connecting);
        let (current, made) = (Mutex::default(), AtomicU64::new(0));
        let state = Arc::new(ReconnectingState { connect, current, made });
        Self { state, connect_timeout: CONNECT_TIMEOUT }
    }

    /// How long connecting may take, handshakes and all; by default 5 s. Requests meanwhile wait until their own
    /// deadline.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// Returns the number of connections made so far: the first, and one after each loss.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state.made.load(Ordering::Relaxed)
    }

    async fn connection(
        &self,
        request: &Request,
    ) -> Result<Arc<MultiplexedConnection>, StoreError> {
        let mut renewal = {
            let mut current = self.state.current.lock();
            if let Some(open) = current.open.as_ref().filter(|_| !request.idle[0]) {
                return Ok(Arc::clone(open));
            }
            self.renewal(&mut current, request)
        };
        let outcome = renewal.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err(StoreError::refused("the task that connects has ended")))
    }

    /// The task that makes the next connection, or finds that the last one answers.
    fn renewal(&self, current: &mut Current, request: &Request) -> Renewal {
        // Closed if the task has ended early.
        if let Some(renewal) = current.renewal.as_ref().filter(|it| it.has_changed().is_ok()) {
            return renewal.clone();
        }
        let (done, renewal) = watch::channel(None);
        current.renewal = Some(renewal.clone());
        let (this, old) = (self.clone(), current.open.clone());
        let (key, time) = (Arc::clone(&request.key), request.deadline / 2);
        spawn(async move {
            let answer = match &old {
                Some(open) => timeout(time, answers(open, &key)).await.ok(),
                None => None,
            };
            let outcome = match (old, answer) {
                (Some(open), Some(Ok(true))) => Ok(open),
                _ => this.connect(&key).await,
            };
            *this.state.current.lock() = Current { open: outcome.clone().ok(), renewal: None };
            done.send_replace(Some(outcome));
        });
        renewal
    }

    /// It is made once the server answers, as redis-rs itself may send nothing.
    async fn connect(&self, key: &str) -> Result<Arc<MultiplexedConnection>, StoreError> {
        let connecting = async {
            let connection = (self.state.connect)().await?;
            answers(&connection, key).await.map(|_| connection)
        };
        let connected = timeout(self.connect_timeout, connecting).await;
        let connection = connected.map_err(|_| not_connected(self.connect_timeout))??;
        self.state.made.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(connection))
    }
}

fn not_connected(time: Duration) -> StoreError {
    StoreError::refused(format!("not connected within {time:?}"))
}

impl Connection for Reconnecting {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let end = Instant::now() + request.deadline;
        // Nothing is sent yet, however that ends.
        let open = timeout_at(end, self.connection(request)).await;
        let open = open.unwrap_or_else(|_| Err(not_connected(request.deadline)));
        let open = open.map_err(StoreError::unsent)?;
        let sent = Instant::now();
        let outcome = timeout_at(end, evaluate(&*open, request)).await;
        let reply = match outcome {
            Ok(Err(error)) if !ends_connection(&error) => return Err(error.into()),
            // It has mostly waited for the connection.
            Err(_) if sent.elapsed() < request.deadline / 2 => {
                return Err(StoreError::late(request.deadline));
            }
            Ok(outcome) => outcome.map_err(StoreError::from).and_then(|value| request.reply(value)),
            Err(_) => Err(StoreError::late(request.deadline)),
        };
        // If it is lost or out of step, the next request makes a new one, unless another has.
        reply.inspect_err(|_| {
            let mut current = self.state.current.lock();
            current.open.take_if(|current| Arc::ptr_eq(current, &open));
        })
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").finish_non_exhaustive()
    }
}
