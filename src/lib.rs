//! A rate limiter for programs that call other people's APIs.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // In a program: `RateLimiter::new(policy)`. This clock does not make the example wait.
//! let policy = SmoothBursty::evenly_spaced(Rate::per_second(50.0));
//! let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
//! limiter.acquire(1).await?;
//! let grant = limiter.acquire(1).await?;
//! assert_eq!(grant.waited(), Duration::from_millis(20));
//! # Ok::<(), tollgate::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`RateLimiter`] grants permits by a [policy](Policy). Callers that must wait queue in **FIFO
//! order, and are charged when they are granted**. Giving up is free: a dropped future leaves the
//! queue, and the waiters behind it move up. A new rate or a pause also applies to callers that are
//! already waiting. No waiter depends on another future being polled.
//!
//! # Policies
//!
//! | policy | rule |
//! |---|---|
//! | [`SmoothBursty`] | a steady rate; unused time is stored up to a bound |
//! | [`SmoothWarmingUp`] | a steady rate, approached slowly after a pause |
//! | [`TokenBucket`] | a burst, then a steady rate; continuous or in steps |
//! | [`Gcra`] | the same limit with redis-cell's arguments and answers |
//! | [`LeakyBucket`] | evenly spaced grants and a bounded queue; or a meter |
//! | [`FixedWindow`] | N per window; up to 2N across a boundary |
//! | [`SlidingWindowLog`] | at most N in *any* window; exact |
//! | [`SlidingWindowCounter`] | approximately that, in little memory |
//! | [`InFlight`] | at most N at a time; a dropped grant gives its place back |
//! | [`LockOut`] | another rule, with a cooldown after each refusal |
//! | [`Unlimited`] | no limit of one's own |
//! | [`AnyPolicy`], [`AllOf`] | one rule, or up to eight with one cost, chosen at run time |
//! | `(A, B, ..)` | all of them or none, with a cost for each |
//! | [`Same`]`((A, B, ..))` | all of them or none, with one cost |
//!
//! The first two are Guava's, with **prepaid waiting**: a request waits for the permits taken before
//! it, never for its own; the next caller waits for those. A policy of your own is one
//! [`impl Policy`](Policy).
//!
//! # Limiters
//!
//! [`RateLimiter`] is one limit, [`KeyedRateLimiter`] one for each key, and, with the feature `redis`,
//! `redis::RedisRateLimiter` one for a fleet. [`Limiter`] is the trait of all limiters, and [`AnyRateLimiter`] one type for
//! all. [`Limits`] have a limit for each host, route or name, as text or from a file, and [`RateLimiters`] enforce them.
//! [`a.and(&b)`](Limiter::and) is one limiter of two.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{InFlight, ManualClock, RateLimiter, SlidingWindowLog};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // 60 requests and 90,000 tokens in any minute, 10 at a time: one place in the queue, all or none.
//! let minute = Duration::from_secs(60);
//! let requests = SlidingWindowLog::new(60, minute);
//! let tokens = SlidingWindowLog::new(90_000, minute);
//! let policy = (requests, tokens, InFlight::new(10));
//! let limiter = RateLimiter::with_clock(policy, ManualClock::new());
//! let mut grant = limiter.acquire((1, 800, 1)).await?;
//! grant.settle((1, 1_100, 1))?; // what the answer says it cost
//! drop(grant); // no longer in flight
//! assert_eq!(limiter.available(), (59, 88_900, 10));
//! # Ok::<(), tollgate::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Methods
//!
//! [`acquire`](RateLimiter::acquire) waits; [`try_acquire`](RateLimiter::try_acquire) does not;
//! [`try_acquire_timeout`](RateLimiter::try_acquire_timeout) fails at once if the timeout is too short;
//! [`reserve`](RateLimiter::reserve) takes a place in the queue; `blocking_*` do the same on threads.
//! [`ahead_by`](Acquire::ahead_by) puts interactive callers ahead of a batch, without starvation.
//! [`acquire_for`](RateLimiter::acquire_for) shares one quota among many tenants: one customer's burst delays only
//! that customer. [`run`](Limiter::run) acquires, runs a future, and returns its place. All errors have one type, [`Error`].
//!
//! # Unknown quotas
//!
//! With the feature `feedback` a limiter learns from the limits in a server's response headers, and from the calls that
//! the server refuses. `feedback::Feedback::starting_at` finds the rate of a server whose quota is unknown or changes.
//!
//! # Clocks
//!
//! [`Clock::system()`] works with every executor and with none; `Clock::tokio()` honours paused time;
//! a [`ManualClock`] stands still until a test advances it, or skips waits.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what for |
//! |---|---|
//! | `config` | limits as text, by name, and chosen at run time: [`AnyPolicy`], [`AllOf`], [`Limits`] |
//! | `tokio` | `Clock::tokio()`, for tests in tokio's paused time |
//! | `feedback` | `tollgate::feedback`: a limiter learns from the headers of responses |
//! | `reqwest` | `RateLimit`: middleware of a reqwest client, for [`Limits`] or any limiter; with `feedback` |
//! | `redis` | `redis::RedisRateLimiter`: one quota for a whole fleet |
//! | `metrics` | `metrics::Publisher`: counts and waits for a recorder of the `metrics` facade |
//! | `stream` | `Limiter::throttle`: a `futures::Stream` whose items wait for permits |
//! | `tracing` | an event for each long wait, pause and change of rate |
//! | `tower` | `tower::RateLimitLayer`, which waits, and `tower::RefuseLayer`, which answers 429 |
//! | `redis-cluster` | `redis::Cluster`, a connection that follows slot migration |
//! | `ureq` | `RateLimit`: any limiter as middleware of a ureq agent; with `feedback` |
//! | `serde` | policies and [`Limits`] from TOML, JSON or YAML, and back |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "reqwest", feature = "tower"))]
mod body;
#[cfg(any(feature = "reqwest", feature = "tower", feature = "ureq"))]
mod choose;
mod clock;
#[cfg(feature = "config")]
mod config;
mod error;
#[cfg(feature = "feedback")]
pub mod feedback;
mod keyed;
mod limiter;
mod line;
#[cfg(feature = "metrics")]
pub mod metrics;
mod observe;
mod park;
mod part;
mod policy;
mod rate_limiter;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod stats;
mod sync;
#[cfg(feature = "tower")]
pub mod tower;
mod units;
mod unwinding;
#[cfg(feature = "ureq")]
pub mod ureq;
mod wait_queue;

#[cfg(any(feature = "reqwest", feature = "tower", feature = "ureq"))]
pub use choose::RateLimit;
pub use clock::{Clock, ManualClock};
#[cfg(feature = "config")]
pub use config::{limiters::RateLimiters, limits::Limits};
pub use error::{Error, ExceedsCapacity};
pub use keyed::{KeyedRateLimiter, at_key::AtKey};
pub use limiter::any::{AnyGrant, AnyRateLimiter};
pub use limiter::{Acquire, Granted, Limiter, Metered, Queue, Reservation};
pub use observe::Event;
pub use park::block_on;
pub use part::Part;
pub use policy::*;
pub use rate_limiter::builder::RateLimiterBuilder;
pub use rate_limiter::{Grant, RateLimiter};
pub use stats::Stats;
pub use units::{InvalidLimit, Nanos, Rate};

#[cfg(all(doc, not(doctest)))]
pub mod guide;
