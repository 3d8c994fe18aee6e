//! What the file of a rule imports.

pub(super) use super::ready::Ready;
pub(super) use super::rule::{Facts, Policy, Rated, RuleEvent};
pub(super) use crate::error::ExceedsCapacity;
pub(super) use crate::part::Kind;
pub(super) use crate::units::{Nanos, Rate, saturating_nanos};
pub(super) use std::time::Duration;

/// Two ticks of a timer that fires each millisecond.
pub(crate) const TWO_TICKS: Duration = Duration::from_millis(2);

/// Checks a span of time in the parameters of a policy. It must not be zero, or the limit would be void.
#[track_caller]
pub(crate) fn check_span(span: Duration, what: &str) {
    assert!(!span.is_zero(), "{what} must not be zero");
    assert!(span <= Nanos::HORIZON, "{what} must not exceed 146 years");
}
