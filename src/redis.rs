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
//! A [`RedisRateLimiter`] has the verbs of a [`RateLimiter`](crate::RateLimiter), but that its futures and
//! grants borrow nothing and what needs an answer of Redis is awaited, and it gives the same answers to a
//! microsecond, by the server's clock. Each call costs a round trip when it is alone; under
//! load all that come while a request is under way share the next. What is refused is refused here
//! until it can be granted.
//!
//! **Only near tickets are booked.** Redis charges a caller when its turn comes within the *horizon*,
//! 250 ms unless chosen otherwise; until then it stands in a line of this process and costs nothing. So
//! leaving the line gives up nothing, and a pause or another rate holds for the fleet within the horizon
//! and a round trip.
//!
//! **Nothing hangs.** Each request has a deadline, and what callers get when Redis is away is asked for
//! at construction: see [`Unavailable`]. What may have been charged is never asked for again, so a lost
//! answer can waste permits and never exceeds the limit.
//!
//! More, about keys, expiry, clusters and what each fault costs, is in `docs/redis.md`.

mod acquire;
mod blocking;
mod builder;
mod connection;
mod driver;
mod events;
mod grant;
mod health;
mod limiter;
mod line;
mod options;
mod reservation;
mod rules;
mod script;
mod shared;
#[cfg(test)]
mod traces;

pub use crate::error::store::StoreError;
pub use acquire::RedisAcquire;
pub use builder::Builder;
pub use connection::blocking::Blocking;
#[cfg(feature = "redis-cluster")]
pub use connection::cluster::Cluster;
pub use connection::reconnecting::Reconnecting;
pub use connection::{Connection, Effect, Failure, Reply, Request, Runtime, Script, Task};
pub use events::{Counters, Event};
pub use grant::RedisGrant;
pub use health::State;
pub use limiter::RedisRateLimiter;
pub use options::Unavailable;
pub use reservation::RedisReservation;
pub use script::{Lua, Scripted};
