//! Law 2: no caller is granted before its due time, and grants are in the order of arrival, less the time
//! by which callers enter ahead of others: no caller is overtaken by one that comes later than that.
//! Compared with the oracle, which also predicts refusals, their times, and their waits.

use proptest::prelude::*;
use tollgate::Limiter as _;

use crate::driver::{Caller, CostOf, Driver, run_recorded};
use crate::line::{self, Line, Outcome};
use crate::measure;
use crate::oracle::{CASES, Conforms, Setup, Time, prove, setups};
use crate::script::{GiveBack, Kinds, play, scripts};
use crate::subject::Subject;

pub(crate) fn the_oracle_agrees<P: Conforms, S: Subject<P::Policy>>() {
    let exact_refusals = P::EXACT_REFUSALS;
    if measure::REFUSED_AT_ONCE.is_some() {
        // But not those that are overtaken.
        let kinds = Kinds { ahead: false, ..Kinds::FORWARD };
        agree::<P, S>(2 * CASES, kinds, GiveBack::Fresh, exact_refusals);
        let kinds = Kinds { timeouts: false, ..Kinds::FORWARD };
        agree::<P, S>(2 * CASES, kinds, GiveBack::Fresh, exact_refusals);
    } else {
        agree::<P, S>(4 * CASES, Kinds::FORWARD, GiveBack::Fresh, exact_refusals);
    }
}

/// With pauses that end early: it is as if they had been made to end then.
pub(crate) fn the_oracle_agrees_about_pauses_that_end_early<P: Conforms, S: Subject<P::Policy>>() {
    let exact = measure::EXACT_PAUSES;
    let kinds =
        Kinds { resumes: true, changes: exact, ahead: exact, refunds: exact, ..Kinds::FORWARD };
    agree::<P, S>(CASES, kinds, GiveBack::Fresh, P::EXACT_REFUSALS);
}

/// Among tenants.
pub(crate) fn the_oracle_agrees_about_tenants<P: Conforms, S: Subject<P::Policy>>() {
    let kinds = Kinds { tenants: true, ..Kinds::FORWARD };
    agree::<P, S>(2 * CASES, kinds, GiveBack::Fresh, true);
}

/// There was no grant since, so the refund is exact.
pub(crate) fn the_last_grant_comes_back_at_its_price<P: Conforms, S: Subject<P::Policy>>() {
    let changes = measure::KNOWS_PRICES;
    let kinds = Kinds { changes, refunds: true, leaves: true, ..Kinds::default() };
    agree::<P, S>(2 * CASES, kinds, GiveBack::Last, true);
}

/// `exact_refusals`: also compares the times of refusals and their waits.
pub(crate) fn agree<P: Conforms, S: Subject<P::Policy>>(
    cases: u32,
    kinds: Kinds,
    give_back: GiveBack,
    exact_refusals: bool,
) {
    prove(cases, &(setups::<P>(), scripts(kinds)), |(setup, script)| {
        let (line, steps) = play::<P>(&setup, &script, give_back);
        prop_assume!(!line.is_doubtful());
        run_recorded(&setup, &steps, |driver: &Driver<'_, P, S>| {
            in_order(driver)?;
            same(&setup, exact_refusals, &line, driver).map_err(|reason| {
                TestCaseError::fail(format!("{reason}, {setup:?}\nafter {steps:?}"))
            })
        })
    });
}

/// Later callers are granted later, unless they enter ahead by more than that, and at the times that their
/// grants report.
fn in_order<P: Conforms, S: Subject<P::Policy>>(
    driver: &Driver<'_, P, S>,
) -> Result<(), TestCaseError> {
    let granted = |caller: &&Caller<'_, CostOf<P>>| {
        caller.n > 0
            && caller.decided.is_some()
            && matches!(caller.outcome, Outcome::Granted { .. })
    };
    let granted: Vec<_> = driver.all().filter(granted).collect();
    let arrival = |caller: &Caller<'_, CostOf<P>>| caller.joined - caller.rank.ahead;
    let tenant = |caller: &Caller<'_, CostOf<P>>| caller.rank.tenant.map(|tenant| tenant.id);
    for (index, first) in granted.iter().enumerate() {
        for second in &granted[index + 1..] {
            if tenant(first) == tenant(second) && arrival(first) <= arrival(second) {
                prop_assert!(first.turn() < second.turn());
            }
        }
    }
    for caller in granted {
        let Outcome::Granted { at } = caller.outcome else { continue };
        prop_assert_eq!(caller.decided, Some(at));
        prop_assert!(caller.rings() <= 1);
    }
    Ok(())
}

fn same<P: Conforms, S: Subject<P::Policy>>(
    setup: &Setup<P>,
    exact_refusals: bool,
    line: &Line,
    driver: &Driver<'_, P, S>,
) -> Result<(), String> {
    for (id, (expected, caller)) in line.callers.iter().zip(driver.all()).enumerate() {
        let ours = (caller.outcome, caller.given_back);
        let theirs = (expected.outcome, expected.given_back);
        if !close(setup.tolerance(), exact_refusals, expected, caller) {
            return Err(format!("caller {id}: {ours:?}, the oracle says {theirs:?}"));
        }
    }
    let (ours, theirs) = (driver.subject.limiter().queue_len(), line.queue.len());
    if ours != theirs { Err(format!("{ours} wait, not {theirs}")) } else { Ok(()) }
}

fn close<C>(
    tolerance: Time,
    exact_refusals: bool,
    expected: &line::Caller,
    caller: &Caller<'_, C>,
) -> bool {
    let near = |ours: Time, theirs: Time| (ours - theirs).abs() <= tolerance;
    let both_near = |(ours, our_wait): (Time, Option<Time>), (theirs, their_wait)| {
        near(ours, theirs)
            && match (our_wait, their_wait) {
                (Some(ours), Some(theirs)) => near(ours, theirs),
                (ours, theirs) => ours == theirs,
            }
    };
    match (expected.outcome, caller.outcome) {
        // It left with a grant that it had not polled: only the time of its wake-up is known.
        (Outcome::Granted { at }, Outcome::Waiting) => {
            expected.given_back && caller.decided.is_some_and(|decided| near(decided, at))
        }
        // Or not even that.
        (Outcome::Granted { .. }, Outcome::Left) => expected.given_back && caller.rings() == 0,
        (Outcome::Granted { at: theirs }, Outcome::Granted { at: ours }) => {
            near(ours, theirs) && expected.given_back == caller.given_back
        }
        (Outcome::Refused { .. }, Outcome::Refused { .. }) if !exact_refusals => true,
        (
            Outcome::Refused { decided: theirs, retry_after: their_wait },
            Outcome::Refused { decided: ours, retry_after: our_wait },
        )
        | (
            Outcome::QueueFull { decided: theirs, retry_after: their_wait },
            Outcome::QueueFull { decided: ours, retry_after: our_wait },
        ) => both_near((ours, our_wait), (theirs, their_wait)),
        // A reservation is not polled, so it gets its error late.
        (Outcome::ExceedsCapacity { .. }, Outcome::ExceedsCapacity { .. })
            if caller.rings() == 0 =>
        {
            true
        }
        (
            Outcome::ExceedsCapacity { decided: theirs },
            Outcome::ExceedsCapacity { decided: ours },
        ) => near(ours, theirs),
        (theirs, ours) => theirs == ours,
    }
}
