//! How a limiter decides without a lock by a policy whose state is one position.

use super::schedule::{RateReceipt, RateState, Schedule};

/// How the line keeps the state of a policy in one atomic word: a table of functions, so that a
/// policy that cannot be kept so needs none of them.
#[derive(Debug)]
pub struct LockFree<P, S, R> {
    /// `None` if these parameters need the mutex.
    pub(crate) schedule: fn(&P) -> Option<Schedule>,
    pub(crate) state: fn(&mut S) -> &mut RateState,
    pub(crate) receipt: fn(RateReceipt) -> R,
}
