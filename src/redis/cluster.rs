//! A connection to a cluster.

use std::fmt;

use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::connection::{Connection, Failure, Reply, Request};

/// A [`ClusterConnection`] that follows `ASK`: while a slot is moved, a key of it may be on either node,
/// and the old one sends callers to the new one. Nothing was charged where they came from.
///
/// Build the client with `retries(0)`, so that nothing is sent twice; without its retries redis-rs follows
/// `MOVED` but not `ASK`.
///
/// ```no_run
/// use redis::cluster::ClusterClientBuilder;
/// use tollgate::redis::{Cluster, RedisRateLimiter};
/// use tollgate::{Rate, SmoothBursty};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClusterClientBuilder::new(["redis://10.0.0.1/", "redis://10.0.0.2/"]).retries(0).build()?;
/// let connection = Cluster::new(client.get_async_connection().await?);
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cluster {
    connection: ClusterConnection,
}

impl Cluster {
    /// Over a connection without retries.
    ///
    /// ```no_run
    /// # use redis::cluster_async::ClusterConnection;
    /// use tollgate::redis::Cluster;
    ///
    /// # fn example(connection: ClusterConnection) {
    /// let connection = Cluster::new(connection);
    /// # }
    /// ```
    #[must_use]
    pub fn new(connection: ClusterConnection) -> Self {
        Self { connection }
    }

    async fn send(&self, command: Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        match connection.req_packed_command(&command).await.and_then(Value::extract_error) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                match error.redirect_node() {
                    Some((node, _)) => self.send_asking(node, command).await,
                    None => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    /// `ASKING` in one piece with the command, or somebody else's may come in between.
    async fn send_asking(&self, node: &str, command: Cmd) -> Result<Value, RedisError> {
        let address =
            node.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = address else {
            let error = (ErrorKind::Client, "a cluster has sent us to a strange address");
            return Err(error.into());
        };
        let route = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").ignore().add_command(command);
        let mut connection = self.connection.clone();
        let answers = connection.route_pipeline(pipeline, 0, 2, route).await?;
        answers.into_iter().nth(1).unwrap_or(Value::Nil).extract_error()
    }

    async fn evaluate(&self, request: &Request) -> Result<Value, RedisError> {
        match self.send(request.command(false)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(request.command(true)).await
            }
            outcome => outcome,
        }
    }
}

impl Connection for Cluster {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        match tokio::time::timeout(request.deadline, self.evaluate(request)).await {
            Ok(outcome) => outcome?.try_into(),
            Err(_) => Err(Failure::late(request.deadline)),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
