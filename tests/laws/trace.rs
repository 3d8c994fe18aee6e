//! Law 2: nobody is granted before its due time, and grants are in the order of arrival. Held
//! against the oracle, who also knows who is refused, when, and how long it would have taken.

use proptest::prelude::*;

use crate::driver::{Caller, Driver, run};
use crate::line::{self, Fate, Line};
use crate::oracle::{Conforms, Oracle, Setup, Time, prove};
use crate::script::{GiveBack, Kinds, play, scripts};

pub(crate) fn the_oracle_agrees<P: Conforms>() {
    agree::<P>(800, Kinds::FORWARD, GiveBack::Fresh);
}

/// Nobody has been granted since, so it is as if the grant had never been.
pub(crate) fn the_last_grant_comes_back_at_its_price<P: Conforms>() {
    let kinds = Kinds { rates: true, refunds: true, leaves: true, ..Kinds::default() };
    agree::<P>(400, kinds, GiveBack::Last);
}

fn agree<P: Conforms>(cases: u32, kinds: Kinds, give_back: GiveBack) {
    prove(cases, &(P::setups(), scripts(kinds)), |(setup, script)| {
        let (line, steps) = play::<P>(&setup, &script, give_back);
        prop_assume!(!line.doubtful);
        run(&setup, &steps, |driver: &Driver<'_, P>| {
            in_order(driver)?;
            same(&setup, &line, driver)
                .map_err(|reason| TestCaseError::fail(format!("{reason}\nafter {steps:?}")))
        })
    });
}

/// Whoever comes later is granted later, and at the time of which its grant speaks.
fn in_order<P: Conforms>(driver: &Driver<'_, P>) -> Result<(), TestCaseError> {
    let granted = |caller: &&Caller<'_, P>| {
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

fn same<P: Conforms>(
    setup: &Setup,
    line: &Line<P::Oracle>,
    driver: &Driver<'_, P>,
) -> Result<(), String> {
    for (id, (expected, caller)) in line.callers.iter().zip(driver.all()).enumerate() {
        let ours = (caller.fate, caller.given_back);
        let theirs = (expected.fate, expected.given_back);
        if !close(setup.tolerance, expected, caller) {
            return Err(format!("caller {id}: {ours:?}, the oracle says {theirs:?}, {setup:?}"));
        }
    }
    Ok(())
}

fn close<O: Oracle, P: Conforms>(
    tolerance: Time,
    expected: &line::Caller<O>,
    caller: &Caller<'_, P>,
) -> bool {
    let near = |ours: Time, theirs: Time| (ours - theirs).abs() <= tolerance;
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
        (
            Fate::Refused { told: theirs, retry_after: their_wait },
            Fate::Refused { told: ours, retry_after: our_wait },
        ) => near(ours, theirs) && near(our_wait, their_wait),
        (theirs, ours) => theirs == ours,
    }
}
