//! The pages of `docs/from` whose code needs the other crate, as documentation tests.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/from/governor.md")]
struct Governor;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/from/leaky-bucket.md")]
struct LeakyBucket;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/from/tower.md")]
struct Tower;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/from/tower_governor.md")]
struct TowerGovernor;
