//! Law 1, over every span of the recorded grants: what was granted in it, without its last request,
//! is worth no more than the span and what could be stored. And law 7: nor with refunds, changes of
//! the rate, pauses and a clock that goes back.
//!
//! Each permit is counted at the price in force when it was granted. That is stricter than the law,
//! which counts all at the greatest rate in force.

use std::time::Duration;

use proptest::prelude::*;

use crate::driver::{Driver, run};
use crate::oracle::{Conforms, Fraction, Setup, TICKS, Time, prove};
use crate::script::{Kinds, Step, scripts, steps};

pub(crate) fn no_span_grants_more_than_its_share<P: Conforms>() {
    hold::<P>(300, Kinds { timeouts: true, leaves: true, ..Kinds::default() });
}

pub(crate) fn refunds_and_changes_mint_nothing<P: Conforms>() {
    hold::<P>(300, Kinds { rates: false, ..Kinds::FORWARD });
    hold::<P>(300, Kinds { refunds: false, leaves: false, ..Kinds::FORWARD });
}

pub(crate) fn time_going_back_mints_nothing<P: Conforms>() {
    hold::<P>(300, Kinds { back: true, refunds: false, leaves: false, ..Kinds::FORWARD });
}

pub(crate) fn a_refund_after_time_went_back_mints_nothing<P: Conforms>() {
    hold::<P>(300, Kinds { back: true, refunds: true, ..Kinds::default() });
}

pub(crate) fn a_refund_at_another_rate_mints_nothing<P: Conforms>() {
    hold::<P>(300, Kinds::FORWARD);
    hold::<P>(300, Kinds { refunds: true, rates: true, ..Kinds::default() });
}

/// The store is filled again and again if what was taken at one price comes back at twice that.
pub(crate) fn halving_the_rate_before_a_refund_mints_nothing<P: Conforms>() {
    let millisecond = Fraction { permits: 1, nanos: 1_000_000 };
    let half = Fraction { nanos: 2_000_000, ..millisecond };
    let setup = Setup {
        rates: vec![millisecond, half],
        max_burst: Duration::from_secs(1),
        warm_up: Duration::from_secs(1),
        cold_factor: 3.0,
        catch_up: Duration::ZERO,
        tolerance: 0,
    };
    let mut steps = Vec::new();
    for round in 0..10 {
        steps.extend([
            Step::SetRate(millisecond),
            Step::Arrive { n: 1000, timeout: Some(0), polled: true },
            Step::SetRate(half),
            Step::Leave(2 * round),
            Step::Arrive { n: 500, timeout: Some(0), polled: true },
        ]);
    }
    let verdict = run(&setup, &steps, |driver: &Driver<'_, P>| {
        every_span_is_covered(P::stored_time(&setup), driver)
    });
    assert_eq!(verdict, Ok(()));
}

pub(crate) fn a_pause_leaves_no_credit<P: Conforms>() {
    hold_behind_pauses::<P>(Kinds { pauses: true, rates: true, ..Kinds::default() });
}

pub(crate) fn a_refund_in_a_pause_leaves_no_credit_at_its_end<P: Conforms>() {
    hold_behind_pauses::<P>(Kinds { pauses: true, refunds: true, ..Kinds::default() });
}

/// In a span that begins with the end of a pause nothing counts but the span itself.
fn hold_behind_pauses<P: Conforms>(kinds: Kinds) {
    prove(300, &(P::setups(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        run(&setup, &steps, |driver: &Driver<'_, P>| {
            for &(start, told) in &driver.pauses {
                let mut records = records(driver);
                records.retain(|record| record.turn >= told);
                for end in records.iter().map(|record| record.at).filter(|&end| end >= start) {
                    span_is_covered(&records, start, end, 0).map_err(|reason| {
                        TestCaseError::fail(format!("{reason}, {setup:?}\nafter {steps:?}"))
                    })?;
                }
            }
            Ok(())
        })
    });
}

fn hold<P: Conforms>(cases: u32, kinds: Kinds) {
    prove(cases, &(P::setups(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        run(&setup, &steps, |driver: &Driver<'_, P>| {
            every_span_is_covered(P::stored_time(&setup), driver).map_err(|reason| {
                TestCaseError::fail(format!("{reason}, {setup:?}\nafter {steps:?}"))
            })
        })
    });
}

struct Record {
    turn: u32,
    at: Time,
    /// What the permits are worth, in ticks.
    worth: i128,
}

/// What was granted and kept, in the order in which it was granted.
fn records<P: Conforms>(driver: &Driver<'_, P>) -> Vec<Record> {
    let mut records: Vec<_> = driver
        .all()
        .filter_map(|caller| {
            let at = caller.kept()?;
            let worth = caller.rate?.interval() * i128::from(caller.n);
            (worth > 0).then(|| Record { turn: caller.turn(), at, worth })
        })
        .collect();
    records.sort_by_key(|record| record.turn);
    records
}

fn every_span_is_covered<P: Conforms>(
    stored_time: Time,
    driver: &Driver<'_, P>,
) -> Result<(), String> {
    let records = records(driver);
    for start in records.iter().map(|record| record.at) {
        for end in records.iter().map(|record| record.at).filter(|&end| end >= start) {
            span_is_covered(&records, start, end, stored_time)?;
        }
    }
    Ok(())
}

fn span_is_covered(
    records: &[Record],
    start: Time,
    end: Time,
    stored_time: Time,
) -> Result<(), String> {
    let (mut before_last, mut last) = (0, 0);
    for record in records.iter().filter(|record| (start..=end).contains(&record.at)) {
        before_last += last;
        last = record.worth;
    }
    // Due times are rounded up to nanoseconds, which a store makes good.
    let share = end - start + stored_time + 2;
    if before_last > share * TICKS {
        return Err(format!("{} ns worth in {start}..={end}, share {share}", before_last / TICKS));
    }
    Ok(())
}
