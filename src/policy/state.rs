//! The states and receipts of the policies of this crate.
//!
//! A program seldom names these types. They are the [`Policy::State`](crate::Policy::State) and
//! [`Policy::Receipt`](crate::Policy::Receipt) of the policies, for code that uses a policy without a
//! limiter, or that builds a policy from another one.

pub use super::Hooks;
pub use super::any::{AllOfReceipt, AllOfState, AnyReceipt, AnyState};
pub use super::fixed_window::{FixedWindowReceipt, FixedWindowState};
pub use super::grant_log::{Log, LogReceipt};
pub use super::lock_out::LockOutState;
pub use super::schedule::{RateReceipt, RateState};
pub use super::smooth_warming_up::{SmoothWarmingUpReceipt, SmoothWarmingUpState};
pub use super::token_bucket::TokenBucketState;
