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
pub(crate) mod prelude;
pub(crate) mod rated;
mod ready;
mod refund_levels;
mod rule;
pub(crate) mod schedule;
pub(crate) mod sliding_window;
pub(crate) mod smooth_bursty;
pub(crate) mod smooth_warming_up;
pub(crate) mod token_bucket;
pub(crate) mod unlimited;

#[cfg(feature = "config")]
pub use any::{AllOf, AnyPolicy};
pub use cost::Cost;
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use in_flight::InFlight;
pub use leaky_bucket::LeakyBucket;
pub use lock_out::LockOut;
pub use parts::Same;
pub use ready::Ready;
pub(crate) use rule::{Asked, Limit, PolicyExt, RuleEvent};
pub use rule::{Policy, Quota, Rated};
pub use sliding_window::{SlidingWindowCounter, SlidingWindowLog};
pub use smooth_bursty::SmoothBursty;
pub use smooth_warming_up::SmoothWarmingUp;
pub use token_bucket::TokenBucket;
pub use unlimited::Unlimited;

/// What a policy of your own may need: the types in the signatures of [`Policy`]. States and receipts of the
/// policies of this crate are `<P as Policy>::State` and `<P as Policy>::Receipt`.
pub mod state {
    pub use super::rule::{Asked, Facts, Limit, PolicyExt, RuleEvent};
}
