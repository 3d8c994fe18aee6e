//! Law 2: nobody is granted before its due time, and grants are in the order of arrival. Held
//! against the oracle, who also knows who is refused, when, and how long it would have taken.

use proptest::prelude::*;

use crate::driver::{Caller, Driver, run};
use crate::line::{self, Fate, Line};
use crate::measure;
use crate::oracle::{CASES, Conforms, Setup, Time, prove, setups};
use crate::script::{GiveBack, Kinds, play, scripts};
use crate::subject::Subject;

pub(crate) fn the_oracle_agrees<P: Conforms, S: Subject<P::Policy>>() {
    let tells = measure::TELLS_LOCKS || !P::PUNISHES;
    agree::<P, S>(4 * CASES, Kinds::FORWARD, GiveBack::Fresh, tells);
}

/// Nobody has been granted since, so it is as if the grant had never been.
pub(crate) fn the_last_grant_comes_back_at_its_price<P: Conforms, S: Subject<P::Policy>>() {
    let changes = measure::KNOWS_PRICES;
    let kinds = Kinds { changes, refunds: true, leaves: true, ..Kinds::default() };
    agree::<P, S>(2 * CASES, kinds, GiveBack::Last, true);
}

/// `tells`: and when who is refused hears so, and what.
pub(crate) fn agree<P: Conforms, S: Subject<P::Policy>>(
    cases: u32,
    kinds: Kinds,
    give_back: GiveBack,
    tells: bool,
) {
    prove(cases, &(setups::<P>(), scripts(kinds)), |(setup, script)| {
        let (line, steps) = play::<P>(&setup, &script, give_back);
        prop_assume!(!line.doubtful);
        run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            in_order(driver)?;
            same(&setup, tells, &line, driver).map_err(|reason| {
                TestCaseError::fail(format!("{reason}, {setup:?}\nafter {steps:?}"))
            })
        })
    });
}

/// Whoever comes later is granted later, and at the time of which its grant speaks.
fn in_order<P: Conforms, S: Subject<P::Policy>>(
    driver: &Driver<'_, P, S>,
) -> Result<(), TestCaseError> {
    let granted = |caller: &&Caller<'_>| {
        caller.n > 0 && caller.told.is_some() && matches!(caller.fate, Fate::Granted { .. })
    };
    let granted: Vec<_> = driver.all().filter(granted).collect();
    for pair in granted.windows(2) {
        prop_assert!(pair[0].turn() < pair[1].turn());
    }
    for caller in granted {
        let Fate::Granted { at } = caller.fate else { continue };
        prop_assert_eq!(caller.told, Some(at));
        prop_assert!(caller.rings() <= 1);
    }
    Ok(())
}

fn same<P: Conforms, S: Subject<P::Policy>>(
    setup: &Setup<P>,
    tells: bool,
    line: &Line,
    driver: &Driver<'_, P, S>,
) -> Result<(), String> {
    for (id, (expected, caller)) in line.callers.iter().zip(driver.all()).enumerate() {
        let ours = (caller.fate, caller.given_back);
        let theirs = (expected.fate, expected.given_back);
        if !close(setup.tolerance(), tells, expected, caller) {
            return Err(format!("caller {id}: {ours:?}, the oracle says {theirs:?}"));
        }
    }
    let (ours, theirs) = (driver.subject.queue_len(), line.queue.len());
    if ours != theirs { Err(format!("{ours} wait, not {theirs}")) } else { Ok(()) }
}

fn close(tolerance: Time, tells: bool, expected: &line::Caller, caller: &Caller<'_>) -> bool {
    let near = |ours: Time, theirs: Time| (ours - theirs).abs() <= tolerance;
    let both_near = |(ours, our_wait): (Time, Option<Time>), (theirs, their_wait)| {
        near(ours, theirs)
            && match (our_wait, their_wait) {
                (Some(ours), Some(theirs)) => near(ours, theirs),
                (ours, theirs) => ours == theirs,
            }
    };
    match (expected.fate, caller.fate) {
        // It left with a grant at which it had not looked: all that is known is when it was woken.
        (Fate::Granted { at }, Fate::Waiting) => {
            expected.given_back && caller.told.is_some_and(|told| near(told, at))
        }
        // Or not even that.
        (Fate::Granted { .. }, Fate::Left) => expected.given_back && caller.rings() == 0,
        (Fate::Granted { at: theirs }, Fate::Granted { at: ours }) => {
            near(ours, theirs) && expected.given_back == caller.given_back
        }
        (Fate::Refused { .. }, Fate::Refused { .. }) if !tells => true,
        (
            Fate::Refused { told: theirs, retry_after: their_wait },
            Fate::Refused { told: ours, retry_after: our_wait },
        )
        | (
            Fate::QueueFull { told: theirs, retry_after: their_wait },
            Fate::QueueFull { told: ours, retry_after: our_wait },
        ) => both_near((ours, our_wait), (theirs, their_wait)),
        // Nobody looks at a place that was only taken: it hears late.
        (Fate::ExceedsCapacity { .. }, Fate::ExceedsCapacity { .. }) if caller.rings() == 0 => true,
        (Fate::ExceedsCapacity { told: theirs }, Fate::ExceedsCapacity { told: ours }) => {
            near(ours, theirs)
        }
        (theirs, ours) => theirs == ours,
    }
}
