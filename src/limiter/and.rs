//! Two limiters, one decision: a caller takes its permits of the first, then those of the second, and gives the first back
//! unless it gets both. A caller of a `Feedback` passes its gate and its limiter in the same way.

pub(crate) mod pass;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

/// See [`Limiter::and`](crate::Limiter::and).
#[derive(Clone, Debug)]
pub(super) struct And<A, B> {
    pub(super) first: A,
    pub(super) second: B,
}
