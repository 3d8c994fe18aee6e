//! The states and receipts of the policies of this crate.
//!
//! A program seldom names these types. They are the [`Policy::State`](crate::Policy::State) and
//! [`Policy::Receipt`](crate::Policy::Receipt) of the policies, for code that uses a policy without a
//! limiter, or that builds a policy from another one.
//!
//! ```
//! use tollgate::state::{RateReceipt, RateState};
//! use tollgate::{Nanos, Policy, Rate, Ready, SmoothBursty};
//!
//! let policy = SmoothBursty::new(Rate::per_second(5.0));
//! let mut state: RateState = policy.start(Nanos::ZERO);
//! let receipt: RateReceipt = policy.charge(&mut state, Nanos::ZERO, 10);
//! policy.refund(&mut state, Nanos::ZERO, 10, receipt);
//! assert_eq!(policy.ready_at(&state, Nanos::ZERO, 1)?, Ready::At(Nanos::ZERO));
//! # Ok::<(), tollgate::ExceedsCapacity>(())
//! ```

pub use super::any::{AllOfReceipt, AllOfState, AnyReceipt, AnyState};
pub use super::fixed_window::{FixedWindowReceipt, FixedWindowState};
pub use super::grant_log::{Log, LogReceipt};
pub use super::lock_out::LockOutState;
pub use super::schedule::{RateReceipt, RateState};
pub use super::smooth_warming_up::{SmoothWarmingUpReceipt, SmoothWarmingUpState};
pub use super::token_bucket::TokenBucketState;
