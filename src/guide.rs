//! How to choose a policy, and what people who know Guava or use Redis should know.

/// Which policy to take, with the same calls through each of them.
///
#[doc = include_str!("../docs/pictures/urls.md")]
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

/// Guava's `RateLimiter` and this one, side by side.
///
#[doc = include_str!("../docs/guava.md")]
pub mod guava {}

/// What is stored in Redis, and what each fault costs.
///
#[cfg(feature = "redis")]
#[doc = include_str!("../docs/redis.md")]
pub mod redis {}
