//! Law 6: charging `a` and then `b` leaves what charging `a + b` leaves.

use proptest::prelude::*;
use tollgate::{Nanos, Policy};

use crate::oracle::{Conforms, Fraction, prove, setups};

/// Some of its own intervals after the last charge, or before.
fn moment(rate: Fraction, eighths: u64) -> Nanos {
    Nanos::new(rate.nanos / rate.permits * eighths / 8)
}

pub(crate) fn two_charges_are_one_charge_of_their_sum<P: Conforms>() {
    let past = prop::collection::vec((0u64..200, 1u32..20), 0..6);
    let sizes = (prop_oneof![0u32..20, 0u32..2000], prop_oneof![0u32..20, 0u32..2000]);
    let future = prop::collection::vec((0u64..2000, 1u32..50), 1..6);
    prove(2000, &(setups::<P>(), past, sizes, future), |(setup, past, (a, b), future)| {
        let (policy, rate) = (setup.policy(0), setup.scale.rate);
        let mut whole = policy.start(Nanos::ZERO);
        let mut at = Nanos::ZERO;
        for (eighths, n) in past {
            at = at.saturating_add(moment(rate, eighths).since(Nanos::ZERO));
            policy.charge(&mut whole, at, P::cost(n));
        }
        let mut parts = whole.clone();
        policy.charge(&mut whole, at, P::cost(a + b));
        policy.charge(&mut parts, at, P::cost(a));
        policy.charge(&mut parts, at, P::cost(b));
        // A difference that does not show at once shows when more permits are drawn.
        for (eighths, n) in future {
            // Asked at the origin, for the exact times: they may be before `at`.
            let [one, two] = [&whole, &parts].map(|state| {
                policy.ready_at(state, Nanos::ZERO, P::cost(n)).expect("soon").earliest()
            });
            let apart = one.since(two).max(two.since(one)).as_nanos();
            prop_assert!(apart <= 1, "{a} + {b} at {at:?}: {one:?}, {two:?}, {setup:?}");
            at = at.saturating_add(moment(rate, eighths).since(Nanos::ZERO));
            policy.charge(&mut whole, at, P::cost(n));
            policy.charge(&mut parts, at, P::cost(n));
        }
        Ok(())
    });
}
