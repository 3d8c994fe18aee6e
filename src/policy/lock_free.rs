//! Decisions without a lock, for policies whose state is one position.

use super::schedule::{RateReceipt, RateState, Schedule};

/// The functions that keep the state of a policy in one atomic word. They are a table, so that a policy whose
/// state does not fit in a word needs none of them.
#[derive(Debug)]
pub(crate) struct LockFree<P, S, R> {
    /// `None` if these parameters need the mutex.
    pub(crate) schedule: fn(&P) -> Option<Schedule>,
    pub(crate) state: fn(&mut S) -> &mut RateState,
    pub(crate) receipt: fn(RateReceipt) -> R,
}
