//! Law 7: a state that has reached its `idle_at` answers as `idle` does, so that a key can be
//! forgotten.

use proptest::prelude::*;
use tollgate::state::PolicyExt;
use tollgate::{Nanos, Policy};

use crate::oracle::{CASES, Conforms, prove, setups, time};

pub(crate) fn a_forgotten_state_is_an_idle_one<P: Conforms>() {
    let past = prop::collection::vec((0u32..200, 1u32..20), 0..12);
    let future = prop::collection::vec((0u32..100, 0u32..20), 1..12);
    let values = (setups::<P>(), 0u32..100, past, 0u32..3, future);
    prove(4 * CASES, &values, |(setup, begin, past, later, future)| {
        let policy = setup.policy(0);
        // A store may be fuller than full by less than a nanosecond, or rounding grants up would cost throughput. Then
        // a permit comes a nanosecond earlier; where permits come in steps, that can be the step before.
        let may_be_apart = P::step(&setup.versions[0]);
        let moment = |eighths| setup.scale.rate.eighths(eighths);
        let mut now = moment(begin);
        let nanos = |time| Nanos::new(u64::try_from(time).expect("a time on the clock"));
        let mut state = policy.idle(nanos(now));
        let mut held = Vec::new();
        for (eighths, n) in past {
            now += moment(eighths);
            let cost = P::cost(n);
            if policy.ready_at(&state, nanos(now), cost).is_err() {
                continue;
            }
            // Not all have waited until it was ready.
            policy.charge(&mut state, nanos(now), cost);
            held.push(cost);
            if eighths % 2 == 0 {
                policy.refused(&mut state, nanos(now), cost);
            }
        }
        for cost in held {
            policy.release(&mut state, nanos(now), cost);
        }
        let Some(idle_at) = policy.idle_at(&state) else {
            return Err(TestCaseError::fail(format!("never forgotten: {state:?}")));
        };
        now = now.max(i128::from(idle_at.get())) + moment(later);
        let mut idle = policy.idle(nanos(now));
        let (ours, theirs) =
            (policy.available(&state, nanos(now)), policy.available(&idle, nanos(now)));
        prop_assert!(ours == theirs, "{ours:?}, idle {theirs:?} at {now}, {setup:?}");
        for (eighths, n) in future {
            now += moment(eighths);
            let cost = P::cost(n);
            let ready = |state| policy.ready_at(state, nanos(now), cost);
            let (ours, theirs) = match (ready(&state), ready(&idle)) {
                (Ok(ours), Ok(theirs)) => (ours.earliest(), theirs.earliest()),
                (ours, theirs) => {
                    prop_assert_eq!(ours, theirs);
                    continue;
                }
            };
            let (ours, theirs) = (ours.max(nanos(now)), theirs.max(nanos(now)));
            let apart = time(ours.since(theirs).max(theirs.since(ours)));
            prop_assert!(
                apart <= may_be_apart,
                "{n} at {now}: {ours:?}, idle {theirs:?}, {setup:?}"
            );
            now = now.max(i128::from(theirs.get().max(ours.get())));
            policy.charge(&mut state, nanos(now), cost);
            policy.charge(&mut idle, nanos(now), cost);
        }
        Ok(())
    });
}
