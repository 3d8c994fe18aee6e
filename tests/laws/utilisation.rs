//! Law 4: while somebody always waits, the whole rate is used, however many give up.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{ManualClock, RateLimiter};

use crate::driver::Driver;
use crate::oracle::{Conforms, Fraction, Setup, TICKS, Time, prove};
use crate::script::Step;

/// What a caller asks for at most, and how many always wait.
const MOST: u32 = 4;
const IN_LINE: usize = 5;

/// How long the rate is measured, in permits.
const PERMITS: i128 = 2000;

/// Time goes on by so many eighths of an interval, then one of those in line leaves, or nobody.
type Turn = (u32, Option<usize>);

pub(crate) fn the_whole_rate_is_used<P: Conforms>() {
    let leaver = prop::option::weighted(0.6, 0..IN_LINE);
    let turns = prop::collection::vec((0u32..30, leaver), 100);
    prove(24, &(setups::<P>(), turns), |(setup, turns)| {
        prop_assume!(P::ramp(&setup) < 400 * setup.rates[0].nanos_each());
        let used = used::<P>(&setup, &turns);
        let (rate, span) = (setup.rates[0], PERMITS * setup.rates[0].nanos_each());
        let offered = span * TICKS / rate.interval();
        // The first and the last request lie across the edges of the span.
        let least = (offered - 2 * i128::from(MOST)) * 99 / 100;
        prop_assert!(used >= least, "{used} of {offered} permits, {setup:?}");
        Ok(())
    });
}

/// Half of them so fast, and without a store, that a nanosecond lost at each grant would be seen.
fn setups<P: Conforms>() -> impl Strategy<Value = Setup> {
    (P::setups(), prop::option::of(65u64..80)).prop_map(|(mut setup, fast)| {
        if let Some(nanos) = fast {
            setup.rates[0] = Fraction { permits: 16, nanos };
            setup.max_burst = Duration::ZERO;
            setup.warm_up = Duration::from_nanos(nanos);
        }
        setup
    })
}

/// Permits granted and kept while `PERMITS` could be.
fn used<P: Conforms>(setup: &Setup, turns: &[Turn]) -> i128 {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(P::policy(setup), &clock);
    let rate = setup.rates[0];
    let mut driver = Driver::new(&limiter, clock, rate);
    let end = P::ramp(setup) + PERMITS * rate.nanos_each();
    let mut turns = turns.iter().cycle();
    let mut n = 0;
    let mut waiting = Vec::new();
    while driver.now() < end {
        while waiting.len() < IN_LINE {
            n = n % MOST + 1;
            driver.take(Step::Arrive { n, timeout: None, polled: true });
            waiting.push(driver.callers.len() - 1);
            keep_waiting(&driver, &mut waiting);
        }
        let &(eighths, leaver) = turns.next().expect("a cycle");
        let span = rate.nanos_each() * i128::from(eighths) / 8;
        driver.take(Step::Advance(span.clamp(1, end - driver.now())));
        // Who was granted is no leaver: others have waited for it, and that time does not come back.
        keep_waiting(&driver, &mut waiting);
        if let Some(&id) = leaver.and_then(|leaver| waiting.get(leaver)) {
            driver.take(Step::Leave(id));
            waiting.retain(|&other| other != id);
        }
    }
    driver.poll_all();
    let start = P::ramp(setup);
    let inside = |at: Time| at >= start;
    driver
        .all()
        .filter(|caller| caller.kept().is_some_and(inside))
        .map(|caller| i128::from(caller.n))
        .sum()
}

fn keep_waiting<P: Conforms>(driver: &Driver<'_, P>, ids: &mut Vec<usize>) {
    let waits = |&id: &usize| driver.callers[id].as_ref().is_some_and(|caller| !caller.is_over());
    ids.retain(waits);
}
