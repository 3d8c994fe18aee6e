//! One quota for a whole fleet: limiters that share their state through a Redis server.
//!
//! ```no_run
//! use tollgate::redis::{Reconnecting, RedisRateLimiter};
//! use tollgate::{Rate, SmoothBursty};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Reconnecting::open("redis://127.0.0.1/")?;
//! let policy = SmoothBursty::new(Rate::per_second(50.0));
//! let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
//! limiter.acquire(1).await?; // as from a limiter in process
//! # Ok(()) }
//! ```
//!
//! A [`RedisRateLimiter`] has the methods of a [`RateLimiter`](crate::RateLimiter). Its futures and grants
//! borrow nothing, and methods that need a reply from Redis are async. Its decisions are the same to a
//! microsecond, by the server's clock. A lone call costs a round trip; under load all calls that come while
//! a request is in flight share the next. A refusal is cached until its call can be granted, for a second at most.
//!
//! **Only near turns are booked.** Redis charges a caller when its turn comes within the *horizon*, by
//! default 250 ms; until then the caller waits in a queue of this process and costs nothing. So giving up is
//! free, and a pause or another rate takes effect for the fleet within the horizon and a round trip.
//!
//! **Nothing hangs.** A thread of this crate sends the requests and depends on no runtime of the callers. Each
//! request has a deadline, which the queue of the key watches itself, and [`Unavailable`] decides at construction
//! what callers get while Redis is away. A request that may have been charged is never repeated, so a lost reply can
//! waste permits and never exceeds the limit.
//!
//! Guide: [one quota for a whole fleet](crate::guide::redis), on keys, expiry, a change of the limit, clusters, and what each
//! fault costs.

mod acquire;
mod builder;
mod connection;
mod context;
mod grant;
mod health;
mod limiter;
mod line;
mod script;
mod shared;

pub use crate::error::store::StoreError;
#[cfg(feature = "redis-cluster")]
pub use connection::cluster::Cluster;
pub use connection::reconnecting::Reconnecting;
pub use connection::{Connection, Request};
pub use context::{Counters, Unavailable};
pub use grant::RedisGrant;
pub use health::State;
pub use limiter::{KeyState, RedisRateLimiter};
pub use script::Scripted;
