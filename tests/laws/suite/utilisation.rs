//! Law 4: while callers always wait, the whole rate is used, however many give up. For policies
//! without a steady rate, law 2 covers law 4: it compares with the oracle under the same
//! departures.

use proptest::prelude::*;
use tollgate::ManualClock;

use crate::driver::Driver;
use crate::measure::{PERMITS, RATES};
use crate::oracle::{Conforms, Setup, TICKS, Time, When, lean_setups, prove, setups};
use crate::script::Step;
use crate::subject::Subject;
use crate::turns::Rank;

/// The largest request, and the number of callers that always wait.
const MOST: u32 = 4;
const WAITING: usize = 5;

/// Time advances by a number of eighths of an interval. Then one waiter leaves, or none.
type Turn = (u32, Option<usize>);

pub(crate) fn the_whole_rate_is_used<P: Conforms, S: Subject<P::Policy>>() {
    let leaver = prop::option::weighted(0.6, 0..WAITING);
    let turns = prop::collection::vec((0u32..30, leaver), 100);
    let setups = prop_oneof![setups::<P>(), lean_setups::<P>()];
    prove(RATES, &(setups, turns), |(setup, turns)| {
        let rate = setup.scale.rate;
        prop_assume!(P::ramp(&setup.versions[0]) < 400 * rate.nanos_each());
        // All of them fit, also in a bounded queue.
        let together = MOST * u32::try_from(WAITING + 1)?;
        prop_assume!(setup.oracle().ready(0, together) != When::Never);
        let used = used::<P, S>(&setup, &turns);
        let span = PERMITS * rate.nanos_each();
        let offered = span * TICKS / rate.interval();
        // The first and the last request lie across the edges of the span.
        let least = (offered - 2 * i128::from(MOST)) * 99 / 100;
        prop_assert!(used >= least, "{used} of {offered} permits, {setup:?}");
        Ok(())
    });
}

/// Permits granted and kept while `PERMITS` could be.
fn used<P: Conforms, S: Subject<P::Policy>>(setup: &Setup<P>, turns: &[Turn]) -> i128 {
    let clock = ManualClock::new();
    let subject = S::new(setup.policy(0), &clock);
    let rate = setup.scale.rate;
    let mut driver = Driver::new(&subject, setup, clock);
    let start = P::ramp(&setup.versions[0]);
    let end = start + PERMITS * rate.nanos_each();
    let mut turns = turns.iter().cycle();
    let mut n = 0;
    let mut waiting = Vec::new();
    while driver.now() < end {
        while waiting.len() < WAITING {
            n = n % MOST + 1;
            driver.take(Step::Arrive { n, timeout: None, polled: true, rank: Rank::default() });
            waiting.push(driver.callers.len() - 1);
            keep_waiting(&driver, &mut waiting);
        }
        let &(eighths, leaver) = turns.next().expect("a cycle");
        let span = rate.nanos_each() * i128::from(eighths) / 8;
        driver.take(Step::Advance(span.clamp(1, end - driver.now())));
        // A caller that was granted does not leave: others have waited for it, and that time is
        // lost.
        keep_waiting(&driver, &mut waiting);
        if let Some(&id) = leaver.and_then(|leaver| waiting.get(leaver)) {
            driver.take(Step::Leave(id));
            waiting.retain(|&other| other != id);
        }
    }
    driver.poll_all();
    let inside = |at: Time| at >= start;
    driver
        .all()
        .filter(|caller| caller.kept().is_some_and(inside))
        .map(|caller| i128::from(caller.n))
        .sum()
}

fn keep_waiting<P: Conforms, S: Subject<P::Policy>>(
    driver: &Driver<'_, P, S>,
    ids: &mut Vec<usize>,
) {
    let waits = |&id: &usize| driver.callers[id].as_ref().is_some_and(|caller| !caller.is_over());
    ids.retain(waits);
}
