//! Guides: which policy to take, what the calls do, clients and servers, files, operations, tests, and what people who
//! know Guava, governor or Redis should know.

/// Which policy to take, with the same calls through each of them.
///
#[doc = include_str!("../docs/pictures/urls.md")]
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

/// The calls of every limiter, the grant, changes, bounds, keys and errors.
///
#[doc = include_str!("../docs/methods.md")]
pub mod methods {}

/// Which limiter can do what.
///
#[doc = include_str!("../docs/abilities.md")]
pub mod abilities {}

/// What is promised, and which test holds it.
///
#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

/// reqwest, tower, limits that are learned from headers, and unknown quotas.
///
#[cfg(all(feature = "reqwest", feature = "serde", feature = "tower"))]
#[doc = include_str!("../docs/http.md")]
pub mod http {}

/// Limits as text, by name, and from a file.
///
#[cfg(feature = "serde")]
#[doc = include_str!("../docs/config.md")]
pub mod config {}

/// What to watch, what a limiter costs, overload and shutdown.
///
#[cfg(all(feature = "metrics", feature = "redis"))]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

/// Tests that take no time.
///
#[cfg(feature = "tokio")]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

/// Which crate for which layer, and how to come from another one.
///
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}

/// Guava's `RateLimiter` and this one, side by side.
///
#[doc = include_str!("../docs/guava.md")]
pub mod guava {}

/// What is stored in Redis, and what each fault costs.
///
#[cfg(feature = "redis")]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}
