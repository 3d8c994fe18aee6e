//! Permits that were charged, and how a charge can change later.

use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::units::Nanos;

/// Permits that were charged.
#[derive(Clone, Debug)]
pub(crate) struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of zero.
    pub(crate) receipt: Option<R>,
    /// Which of several rules the line waited for last.
    pub(crate) limited_by: Option<Part>,
}

impl<R> Charge<R> {
    /// Moves the charge out; without a receipt nothing is left to give back.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        Self { receipt: self.receipt.take(), ..*self }
    }
}

/// What was taken of a cost, and its charge.
pub(crate) type Taking<P> = (<P as Policy>::Cost, Charge<<P as Policy>::Receipt>);

/// How a charge can change later.
#[derive(Debug)]
pub(crate) enum Change<P: Policy> {
    /// Charges `more`, or gives back `part`, and `less` of what was charged without a receipt.
    Settle { more: P::Cost, less: P::Cost, part: P::Cost, receipt: Option<P::Receipt> },
    /// Gives back `part`, and the places in flight of what was charged: `held`.
    Refund { part: P::Cost, held: P::Cost, receipt: Option<P::Receipt> },
}

impl<P: Policy> Change<P> {
    /// What a grant that is dropped gives back.
    pub(crate) fn release(held: P::Cost) -> Self {
        Self::Refund { part: P::Cost::default(), held, receipt: None }
    }

    /// Whether the shortfall may become debt.
    pub(crate) fn check(
        &self,
        policy: &P,
        state: &P::State,
        now: Nanos,
    ) -> Result<(), ExceedsCapacity> {
        match *self {
            Self::Settle { more, .. } if !more.is_zero() => policy.check_debt(state, now, more),
            _ => Ok(()),
        }
    }

    /// Returns the receipt of the remaining charge. A refund counts from `not_before`, if that is later than
    /// now.
    pub(crate) fn apply(
        &self,
        policy: &P,
        state: &mut P::State,
        now: Nanos,
        not_before: Nanos,
    ) -> Option<P::Receipt> {
        let (less, part, mut receipt) = match *self {
            Self::Settle { more, less, part, ref receipt } => {
                if !more.is_zero() {
                    policy.charge(state, now, more);
                }
                (less, part, receipt.clone())
            }
            Self::Refund { part, held, ref receipt } => (held, part, receipt.clone()),
        };
        if !part.is_zero() {
            receipt =
                receipt.map(|receipt| policy.refund(state, not_before.max(now), part, receipt));
        }
        if P::HELD && !less.is_zero() {
            policy.release(state, now, less);
        }
        receipt
    }
}
