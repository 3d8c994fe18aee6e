//! Guides: which policy to take, what the calls do, clients and servers, files, operations, tests, Redis, and
//! the way over from other rate limiters.

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

/// What to write for reqwest, ureq, hyper-util, tonic, octocrab, kube, async-openai and others.
///
#[doc = include_str!("../docs/clients.md")]
pub mod clients {}

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

/// The way over from other rate limiters: names side by side, what differs, a program before and after.
pub mod from {
    /// Bucket4j, of Java.
    ///
    #[doc = include_str!("../docs/from/bucket4j.md")]
    pub mod bucket4j {}

    /// governor. The package `tests/from` compiles its code.
    ///
    #[cfg(not(doctest))]
    #[doc = include_str!("../docs/from/governor.md")]
    pub mod governor {}

    /// Guava's `RateLimiter`, of Java.
    ///
    #[doc = include_str!("../docs/from/guava.md")]
    pub mod guava {}

    /// leaky-bucket. The package `tests/from` compiles its code.
    ///
    #[cfg(not(doctest))]
    #[doc = include_str!("../docs/from/leaky-bucket.md")]
    pub mod leaky_bucket {}

    /// Resilience4j, of Java.
    ///
    #[doc = include_str!("../docs/from/resilience4j.md")]
    pub mod resilience4j {}

    /// tower's `RateLimit`. The package `tests/from` compiles its code.
    ///
    #[cfg(not(doctest))]
    #[doc = include_str!("../docs/from/tower.md")]
    pub mod tower {}

    /// `tower_governor`. The package `tests/from` compiles its code.
    ///
    #[cfg(not(doctest))]
    #[doc = include_str!("../docs/from/tower_governor.md")]
    pub mod tower_governor {}

    /// `golang.org/x/time/rate`.
    ///
    #[doc = include_str!("../docs/from/x-time-rate.md")]
    pub mod x_time_rate {}
}

/// What is stored in Redis, and what each fault costs.
///
#[cfg(feature = "redis")]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}
