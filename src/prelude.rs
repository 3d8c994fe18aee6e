//! What programs name most, for `use tollgate::prelude::*`. It has no modules: `use tollgate::*` would bring in modules
//! with the names of crates, and `reqwest::Client` would then be looked for in `tollgate::reqwest`.
//!
//! ```
//! use tollgate::prelude::*;
//!
//! let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(10.0), 20));
//! assert!(limiter.try_acquire(20).is_ok());
//! ```

#[cfg(feature = "stream")]
pub use crate::Throttle;
#[cfg(feature = "config")]
pub use crate::{AllOf, AnyPolicy, Limits, RateLimiters};
pub use crate::{
    AnyRateLimiter, Clock, FixedWindow, Gcra, Granted, InFlight, KeyedRateLimiter, LeakyBucket,
    Limiter, LockOut, ManualClock, Policy, Rate, RateLimiter, Rated, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket, Unlimited,
};
