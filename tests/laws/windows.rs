//! Law 1, over every span of the recorded grants: what was granted in it, without its last request,
//! is worth no more than the span and what could be stored. And law 7: nor with refunds, changes of
//! the rate, pauses and a clock that goes back.
//!
//! Each permit is counted at the price in force when it was granted. That is stricter than the law,
//! which counts all at the greatest rate in force.

use proptest::prelude::*;

use crate::driver::{Driver, run};
use crate::oracle::{Conforms, Setup, TICKS, Time, prove};
use crate::script::{Kinds, scripts, steps};

pub(crate) fn no_span_grants_more_than_its_share<P: Conforms>() {
    hold::<P>(300, Kinds { timeouts: true, leaves: true, ..Kinds::default() });
}

pub(crate) fn refunds_changes_and_time_going_back_mint_nothing<P: Conforms>() {
    hold::<P>(300, Kinds { back: true, timeouts: false, ..Kinds::FORWARD });
    hold::<P>(300, Kinds { refunds: true, rates: true, ..Kinds::default() });
}

fn hold<P: Conforms>(cases: u32, kinds: Kinds) {
    prove(cases, &(P::setups(), scripts(kinds)), |(setup, script)| {
        let steps = steps(&setup, &script);
        run(&setup, &steps, |driver: &Driver<'_, P>| {
            every_span_is_covered(&setup, driver)
                .map_err(|reason| TestCaseError::fail(format!("{reason}\nafter {steps:#?}")))
        })
    });
}

struct Record {
    at: Time,
    /// What the permits are worth, in ticks.
    worth: i128,
}

/// What was granted and kept, in the order in which it was granted.
fn records<P: Conforms>(driver: &Driver<'_, P>) -> Vec<Record> {
    let mut grants: Vec<_> = driver
        .all()
        .filter_map(|caller| {
            let at = caller.kept()?;
            let worth = caller.rate?.interval() * i128::from(caller.n);
            Some((caller.turn(), Record { at, worth }))
        })
        .collect();
    grants.sort_by_key(|&(turn, _)| turn);
    grants.into_iter().map(|(_, record)| record).filter(|record| record.worth > 0).collect()
}

fn every_span_is_covered<P: Conforms>(setup: &Setup, driver: &Driver<'_, P>) -> Result<(), String> {
    let records = records(driver);
    for Record { at: start, .. } in &records {
        for Record { at: end, .. } in records.iter().filter(|record| record.at >= *start) {
            let inside = records.iter().filter(|record| (*start..=*end).contains(&record.at));
            let (mut before_last, mut last) = (0, 0);
            for record in inside {
                before_last += last;
                last = record.worth;
            }
            // Due times are rounded up to nanoseconds, which a store makes good.
            let share = end - start + P::stored_time(setup) + 3;
            if before_last > share * TICKS {
                let worth = before_last / TICKS;
                return Err(format!(
                    "{worth} ns worth in {start}..={end}, share {share}, {setup:?}"
                ));
            }
        }
    }
    Ok(())
}
