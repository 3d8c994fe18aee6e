//! Permits that were charged, and how a charge changes later.

use crate::part::Part;
use crate::policy::Policy;

/// Permits that were charged.
#[derive(Clone, Debug)]
pub struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of zero.
    pub(crate) receipt: Option<R>,
    /// Which of several rules the line waited for last.
    pub(crate) limited_by: Option<Part>,
}

impl<R> Charge<R> {
    /// Of a caller that did not wait.
    #[inline(always)]
    pub(crate) fn at_once(receipt: Option<R>) -> Self {
        Self { waited: 0, receipt, limited_by: None }
    }

    /// Moves the charge out; without a receipt nothing is left to give back.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        Self { receipt: self.receipt.take(), ..*self }
    }
}

/// How a charge changes later.
#[derive(Debug)]
pub(crate) struct Change<P: Policy> {
    /// Is charged.
    pub(crate) more: P::Cost,
    /// Is given back at the price that was paid.
    pub(crate) part: P::Cost,
    /// The places in flight that are given back.
    pub(crate) less: P::Cost,
    pub(crate) receipt: Option<P::Receipt>,
}

impl<P: Policy> Change<P> {
    /// Gives back `part`, and the places of `held`.
    pub(crate) fn back(part: P::Cost, held: P::Cost, receipt: Option<P::Receipt>) -> Self {
        Self { more: P::Cost::default(), part, less: held, receipt }
    }
}
