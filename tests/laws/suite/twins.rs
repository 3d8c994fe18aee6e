//! Laws 3 and 5, by twins: two limiters, one of which lives through something that must leave no
//! trace. No tolerance: the same must come out to the nanosecond.

use proptest::prelude::*;

use crate::driver::{Caller, Driver, run};
use crate::line::Fate;
use crate::measure;
use crate::oracle::{CASES, Conforms, Setup, prove, setups};
use crate::script::{GiveBack, Kinds, Op, Step, play, scripts};
use crate::subject::Subject;

/// What became of everybody.
fn fates<P: Conforms, S: Subject<P::Policy>>(
    setup: &Setup<P>,
    steps: &[Step],
) -> Vec<Option<Fate>> {
    run(setup, steps, |driver: &Driver<'_, P, S>| driver.fates())
}

pub(crate) fn a_refusal_changes_nothing<P: Conforms, S: Subject<P::Policy>>() {
    prove(CASES, &(setups::<P>(), scripts(Kinds::FORWARD)), |(setup, script)| {
        let (_, mut steps) = play::<P>(&setup, &script, GiveBack::Any);
        let with = run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            // Where a rule punishes who is denied, other refusals still change nothing.
            let harmless = |fate| !P::PUNISHES || !matches!(fate, Fate::Refused { .. });
            let judge = |caller: &Caller<'_>| {
                (caller.fate, caller.refused_at_once && harmless(caller.fate))
            };
            driver.all().map(judge).collect::<Vec<_>>()
        });
        let arrivals = steps.iter_mut().filter(|step| matches!(step, Step::Arrive { .. }));
        for (step, (_, refused)) in arrivals.zip(&with) {
            if *refused {
                *step = Step::NobodyCame;
            }
        }
        for (id, without) in fates::<P, S>(&setup, &steps).into_iter().enumerate() {
            let (fate, refused) = with[id];
            prop_assert!(without == (!refused).then_some(fate), "{id}: {fate:?}, {without:?}");
        }
        Ok(())
    });
}

pub(crate) fn a_leaver_makes_nobody_later<P: Conforms, S: Subject<P::Policy>>() {
    let kinds = Kinds { pauses: true, ..Kinds::default() };
    let values = (setups::<P>(), scripts(kinds), any::<prop::sample::Index>(), any::<usize>());
    prove(CASES, &values, |(setup, mut script, position, leaver)| {
        script.insert(position.index(script.len() + 1), Op::Leave(leaver));
        let (_, steps) = play::<P>(&setup, &script, GiveBack::Any);
        let Some(leave) = steps.iter().position(|step| matches!(step, Step::Leave(_))) else {
            return Err(TestCaseError::reject("nobody was in line"));
        };
        let Step::Leave(leaver) = steps[leave] else { unreachable!("found just now") };
        let (mut stays, mut never_came) = (steps.clone(), steps.clone());
        stays.remove(leave);
        never_came.remove(leave);
        let mut arrivals = never_came.iter_mut().filter(|step| matches!(step, Step::Arrive { .. }));
        *arrivals.nth(leaver).expect("the leaver came") = Step::NobodyCame;

        let came_before = |step: &&Step| matches!(step, Step::Arrive { .. });
        let in_line = steps[..leave].iter().filter(came_before).count();
        let leaves = fates::<P, S>(&setup, &steps);
        let stays = fates::<P, S>(&setup, &stays);
        let never_came = fates::<P, S>(&setup, &never_came);
        for id in (0..leaves.len()).filter(|&id| id != leaver) {
            // Who has not been granted by the end is later than anybody.
            if id < leaver {
                prop_assert!(leaves[id] == stays[id], "ahead: {:?}, {:?}", leaves[id], stays[id]);
            } else if id < in_line {
                let (ours, theirs) = (granted(leaves[id]), granted(stays[id]));
                prop_assert!(ours <= theirs, "{id} behind {leaver}: {ours} after {theirs}");
            }
            prop_assert!(
                !P::PREPAID || leaves[id] == never_came[id],
                "{id} knows that {leaver} was there: {:?}, {:?}",
                leaves[id],
                never_came[id]
            );
        }
        Ok(())
    });
}

fn granted(fate: Option<Fate>) -> i128 {
    if let Some(Fate::Granted { at }) = fate { at } else { i128::MAX }
}

pub(crate) fn looking_and_polling_change_nothing<P: Conforms, S: Subject<P::Policy>>() {
    let looks = prop::collection::vec((any::<u8>(), 1u8..16), 30);
    prove(CASES, &(setups::<P>(), scripts(Kinds::FORWARD), looks), |(setup, script, looks)| {
        let (_, steps) = play::<P>(&setup, &script, GiveBack::Any);
        // In the twin, time comes in pieces, and between any two steps somebody looks and all are
        // polled.
        let mut meddled = Vec::new();
        let mut looks = looks.iter().cycle();
        for &step in &steps {
            let &(part, at) = looks.next().expect("a cycle");
            if let Step::Advance(span) = step {
                let first = span * i128::from(part) / 256;
                let second = (span - first) * i128::from(at) / 16;
                meddled.extend([Step::Advance(first), Step::Look(at)]);
                meddled.extend([Step::Advance(second), Step::Look(31)]);
                meddled.push(Step::Advance(span - first - second));
            } else {
                meddled.push(step);
            }
            meddled.push(Step::Look(at));
        }
        let judge = |driver: &Driver<'_, P, S>| {
            driver.all().map(|caller| (caller.kept(), caller.given_back)).collect::<Vec<_>>()
        };
        let (plain, polled) = (run(&setup, &steps, judge), run(&setup, &meddled, judge));
        let refusals = |steps: &[Step]| -> Vec<_> {
            let refused = |fate: &Option<Fate>| matches!(fate, Some(Fate::Refused { .. }));
            fates::<P, S>(&setup, steps).into_iter().filter(refused).collect()
        };
        let (plainly, meddled) = (refusals(&steps), refusals(&meddled));
        if measure::TELLS_LOCKS || !P::PUNISHES {
            prop_assert_eq!(plainly, meddled);
        } else {
            prop_assert_eq!(plainly.len(), meddled.len());
        }
        for (id, (plain, polled)) in plain.iter().zip(&polled).enumerate() {
            prop_assert!(plain == polled, "{id}: {plain:?}, looked at {polled:?}: {setup:?}");
        }
        Ok(())
    });
}
