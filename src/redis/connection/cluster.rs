//! A connection to a cluster.

use std::fmt;

use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::request::Request;
use super::{Connection, Wire, exchange};
use crate::error::store::StoreError;

/// A [`ClusterConnection`] that follows `ASK`. While a slot migrates, a key of it may be on either node, and the
/// old node redirects requests to the new one without charging them.
///
/// Build the client with `retries(0)`, so that nothing is sent twice; without its retries redis-rs follows
/// `MOVED` but not `ASK`.
///
/// It also reports "connection refused" as a request that may have been charged: when redis-rs refreshes the
/// topology and finds no node, it ends all requests in flight with that error.
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
pub struct Cluster(ClusterConnection);

impl Cluster {
    /// Over a connection without retries.
    #[must_use]
    pub fn new(connection: ClusterConnection) -> Self {
        Self(connection)
    }

    /// `ASKING` in one pipeline with the command, so that no other command comes in between.
    async fn send_asking(
        &self,
        route: SingleNodeRoutingInfo,
        command: Cmd,
    ) -> Result<Value, RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").ignore().add_command(command);
        let mut connection = self.0.clone();
        let answers = connection.route_pipeline(pipeline, 0, 2, route).await?;
        answers.into_iter().nth(1).unwrap_or(Value::Nil).extract_error()
    }
}

/// Where `ASK` sends us.
fn other_node(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}

/// When redis-rs refreshes the topology and finds no node, it ends all requests in flight with the error of the
/// last node that it tried. A request itself never connects, so "connection refused" is such an error.
fn failure(error: RedisError) -> StoreError {
    if error.is_connection_refusal() { StoreError::lost(error) } else { error.into() }
}

impl Wire for Cluster {
    async fn send(&self, command: Cmd) -> Result<Value, RedisError> {
        let sent = self.0.clone().req_packed_command(&command).await;
        match sent.and_then(Value::extract_error) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                match other_node(&error) {
                    Some(route) => self.send_asking(route, command).await,
                    None => Err(error),
                }
            }
            outcome => outcome,
        }
    }
}

impl Connection for Cluster {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        // Other keys may be on other nodes.
        exchange(self, request, request.idle[1], failure).await
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
