//! The decision about a call at a key without waiters.

use std::time::Duration;

use crate::error::Error;
use crate::line::Charge;
use crate::policy::{Cost, Policy, PolicyExt};
use crate::units::Nanos;

/// The decision about a call at a key without waiters.
pub(super) enum Decision<R> {
    Granted(Charge<R>),
    /// The call has to wait, or its grant is held. Both need a line.
    NeedsLine,
}

/// Also returns whether the state of the policy may have changed.
#[inline(always)]
pub(super) fn decide<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> (Result<Decision<P::Receipt>, Error>, bool) {
    if !cost.is_zero() && policy.is_ready(state, now, cost) {
        if P::HELD {
            return (Ok(Decision::NeedsLine), true);
        }
        let receipt = Some(policy.charge(state, now, cost));
        return (Ok(Decision::Granted(Charge { waited: 0, receipt, limited_by: None })), true);
    }
    not_ready(policy, state, now, cost, max_wait)
}

#[inline(never)]
fn not_ready<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> (Result<Decision<P::Receipt>, Error>, bool) {
    if cost.is_zero() {
        let nothing = Charge { waited: 0, receipt: None, limited_by: None };
        let decision = if P::HELD { Decision::NeedsLine } else { Decision::Granted(nothing) };
        return (Ok(decision), true);
    }
    let ready = match policy.ready_at(state, now, cost) {
        Ok(ready) => ready,
        Err(error) => return (Err(error.into()), false),
    };
    let cannot_wait =
        |wait: Duration| wait.is_zero() || now.saturating_add(wait) < ready.earliest();
    if !max_wait.is_some_and(cannot_wait) {
        return (Ok(Decision::NeedsLine), true);
    }
    let changed = policy.refused(state, now, cost);
    let ready = policy.ready_at(state, now, cost).unwrap_or(ready);
    let part = policy.limited_by(state, now, cost);
    (Err(Error::Denied { retry_after: ready.wait(now), part }), changed)
}
