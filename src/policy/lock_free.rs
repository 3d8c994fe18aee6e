//! Decisions without a lock, for policies whose state is one position.

use super::schedule::{RateReceipt, RateState, Schedule};
use crate::units::Nanos;

/// The functions that keep the state of a policy in one atomic word. They are a table, so that a policy whose
/// state does not fit in a word needs none of them.
#[derive(Debug)]
pub(crate) struct LockFree<P, S, R, C> {
    /// `None` if these parameters need the mutex.
    pub(crate) schedule: fn(&P) -> Option<Schedule>,
    pub(crate) state: fn(&mut S) -> &mut RateState,
    pub(crate) receipt: fn(RateReceipt) -> R,
    /// The time at which a caller is ready behind `ahead` permits of several callers, each charged as soon as it is
    /// ready, from `now` on. `None` if that depends on each of their costs.
    pub(crate) ready_behind: fn(&P, &S, Nanos, u64, C) -> Option<Nanos>,
}
