//! Policies: the rules by which permits are granted, as pure arithmetic.
//!
//! A policy has no clock, no lock and no I/O. It computes two things from a small state: the time at which a
//! cost is ready, and the state after the cost is charged. Every method of a limiter is built on these two.

#[cfg(feature = "config")]
pub(crate) mod any;
mod cost;
pub(crate) mod fixed_window;
pub(crate) mod gcra;
pub(crate) mod in_flight;
pub(crate) mod leaky_bucket;
pub(crate) mod lock_out;
#[cfg(feature = "config")]
pub(crate) mod parameters;
pub(crate) mod parts;
pub(crate) mod rated;
mod ready;
mod refund_levels;
mod rule;
pub(crate) mod schedule;
pub(crate) mod sliding_window;
pub(crate) mod smooth_bursty;
pub(crate) mod smooth_warming_up;
pub mod state;
pub(crate) mod token_bucket;
pub(crate) mod unlimited;

use std::time::Duration;

use crate::units::Nanos;
#[cfg(feature = "config")]
pub use any::{AllOf, AnyPolicy};
pub use cost::Cost;
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use in_flight::InFlight;
pub use leaky_bucket::LeakyBucket;
pub use lock_out::LockOut;
pub use parts::Same;
pub use rated::Rated;
pub use ready::Ready;
pub(crate) use rule::{Asked, Limit, PolicyExt, RuleEvent};
pub use rule::{Policy, Quota};
pub use sliding_window::{SlidingWindowCounter, SlidingWindowLog};
pub use smooth_bursty::SmoothBursty;
pub use smooth_warming_up::SmoothWarmingUp;
pub use token_bucket::TokenBucket;
pub use unlimited::Unlimited;

/// What the file of a rule imports.
mod prelude {
    pub(super) use super::rule::{Facts, RuleEvent};
    pub(super) use super::{Policy, Rated, Ready, TWO_TICKS, check_span};
    pub(super) use crate::error::ExceedsCapacity;
    pub(super) use crate::part::Kind;
    pub(super) use crate::units::{Nanos, Rate, saturating_nanos};
    pub(super) use std::time::Duration;
}

/// Two ticks of a timer that fires each millisecond.
pub(crate) const TWO_TICKS: Duration = Duration::from_millis(2);

/// Checks a span of time in the parameters of a policy. It must not be zero, or the limit would be void.
#[track_caller]
pub(crate) fn check_span(span: Duration, what: &str) {
    assert!(!span.is_zero(), "{what} must not be zero");
    assert!(span <= Nanos::HORIZON, "{what} must not exceed 146 years");
}
