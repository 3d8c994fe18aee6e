//! Laws 1 and 7: the grants keep the policy's own limit, over every span or window of the recorded
//! grants; with refunds, changes of the policy, pauses and a clock that goes back, too.

use proptest::prelude::*;

use crate::driver::{Driver, run, run_out};
use crate::history::History;
use crate::oracle::{CASES, Conforms, Fraction, Scale, Setup, prove, setups};
use crate::script::{Kinds, Step, scripts, steps};
use crate::subject::Subject;
use crate::turns::Rank;

pub(crate) fn no_span_grants_more_than_its_share<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds { timeouts: true, leaves: true, drops: true, ..Kinds::default() });
}

pub(crate) fn no_span_grants_more_than_its_share_to_tenants<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds { tenants: true, ..Kinds::FORWARD });
}

pub(crate) fn refunds_and_changes_mint_nothing<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds { changes: false, ..Kinds::FORWARD });
    hold::<P, S>(Kinds { refunds: false, leaves: false, ..Kinds::FORWARD });
}

pub(crate) fn time_going_back_mints_nothing<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds { back: true, refunds: false, leaves: false, ..Kinds::FORWARD });
}

pub(crate) fn a_refund_after_time_went_back_mints_nothing<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds { back: true, refunds: true, ..Kinds::default() });
}

pub(crate) fn a_refund_at_another_rate_mints_nothing<P: Conforms, S: Subject<P::Policy>>() {
    hold::<P, S>(Kinds::FORWARD);
    hold::<P, S>(Kinds { refunds: true, changes: true, ..Kinds::default() });
}

/// The store would be filled again and again if permits taken at one price came back at twice that
/// price, or the other way round. A policy without a rate has no price.
pub(crate) fn halving_the_rate_before_a_refund_mints_nothing<P: Conforms, S: Subject<P::Policy>>() {
    let millisecond = Fraction { permits: 1, nanos: 1_000_000 };
    let half = Fraction { nanos: 2_000_000, ..millisecond };
    for rates in [[millisecond, half], [half, millisecond]] {
        let Some(versions) = rates.map(P::with_thousand).into_iter().collect() else { return };
        let scale = Scale { rate: rates[0], span: 1_000_000, is_exact: false, is_lean: false };
        let setup = Setup { versions, scale, catch_up: Default::default() };
        let mut steps = Vec::new();
        for round in 0..10 {
            steps.extend([
                Step::SetPolicy(0),
                Step::Arrive { n: 1000, timeout: Some(0), polled: true, rank: Rank::default() },
                Step::SetPolicy(1),
                Step::Leave(2 * round),
                Step::Arrive { n: 500, timeout: Some(0), polled: true, rank: Rank::default() },
            ]);
        }
        let verdict = run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            P::kept(&setup.versions, &driver.history())
        });
        assert_eq!(verdict, Ok(()));
    }
}

pub(crate) fn a_pause_leaves_no_credit<P: Conforms, S: Subject<P::Policy>>() {
    hold_behind_pauses::<P, S>(Kinds { pauses: true, changes: true, ..Kinds::default() });
}

pub(crate) fn a_refund_in_a_pause_leaves_no_credit_at_its_end<
    P: Conforms,
    S: Subject<P::Policy>,
>() {
    hold_behind_pauses::<P, S>(Kinds { pauses: true, refunds: true, ..Kinds::default() });
}

/// At its end, when all callers have gone, a limiter says when all is there; and then it is.
pub(crate) fn settlements_mint_nothing_and_all_comes_back<P: Conforms, S: Subject<P::Policy>>() {
    let kinds = Kinds { settles: true, resumes: true, ..Kinds::FORWARD };
    prove(CASES, &(setups::<P>(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        let (history, [ended, full]) = run_out::<P, S>(&setup, &steps);
        judge(&setup, &steps, &history)?;
        prop_assert!(ended.reset_after.is_some(), "a place is out: {setup:?}\nafter {steps:?}");
        prop_assert!(
            full.remaining == full.limit,
            "{ended:?}, {full:?}, {setup:?}\nafter {steps:?}"
        );
        Ok(())
    });
}

/// In a span that begins with the end of a pause only the span itself counts.
fn hold_behind_pauses<P: Conforms, S: Subject<P::Policy>>(kinds: Kinds) {
    prove(CASES, &(setups::<P>(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            for &(start, turn) in &driver.pauses {
                let history = History { resumed: Some((turn, start)), ..driver.history() };
                judge(&setup, &steps, &history)?;
            }
            Ok(())
        })
    });
}

fn hold<P: Conforms, S: Subject<P::Policy>>(kinds: Kinds) {
    prove(CASES, &(setups::<P>(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            let mut history = driver.history();
            if kinds.back && kinds.refunds && !P::KNOWS_LAST {
                // Permits that time had already given back may come back once more.
                let given_back = history.all.iter().filter(|grant| grant.given_back);
                history.slack = given_back.map(|grant| grant.n).sum();
            }
            judge(&setup, &steps, &history)
        })
    });
}

fn judge<P: Conforms>(
    setup: &Setup<P>,
    steps: &[Step],
    history: &History,
) -> Result<(), TestCaseError> {
    P::kept(&setup.versions, history)
        .map_err(|reason| TestCaseError::fail(format!("{reason}, {setup:?}\nafter {steps:?}")))
}
