//! What a policy of your own may need, and the states and receipts of the policies of this crate.
//!
//! A program seldom names these types. They are in the signatures of [`Policy`](crate::Policy), or are the
//! [`Policy::State`](crate::Policy::State) and [`Policy::Receipt`](crate::Policy::Receipt) of the policies, for code
//! that uses a policy without a limiter, or that builds a policy from another one.

#[cfg(feature = "config")]
pub use super::any::{AllOfReceipt, AllOfState, AnyReceipt, AnyState};
pub use super::fixed_window::FixedWindowState;
pub use super::lock_out::LockOutState;
pub use super::rule::{Asked, Facts, Limit, OneRate, PolicyExt, RuleEvent};
pub use super::schedule::{RateReceipt, RateState};
pub use super::sliding_window::Log;
pub use super::smooth_warming_up::{SmoothWarmingUpReceipt, SmoothWarmingUpState};
