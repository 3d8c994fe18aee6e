//! Laws 3 and 5, by twins: two limiters, one of which sees an event that must leave no trace. The
//! outcomes must be equal to the nanosecond. Each charge is on record, because a refusal puts those before it on
//! record, and a late refund is exact then.

use proptest::prelude::*;

use crate::driver::{Caller, CostOf, Driver, run_recorded as run};
use crate::line::Outcome;
use crate::measure;
use crate::oracle::{CASES, Conforms, Setup, Time, prove, setups};
use crate::script::{GiveBack, Kinds, Op, Step, play, scripts};
use crate::subject::Subject;

/// Where all waiters are asked for at once, those that are overtaken learn that they are late with the next request, which
/// may be that of a caller that is refused, or a look at them.
const NOT_OVERTAKEN: Kinds = Kinds { ahead: measure::REFUSED_AT_ONCE.is_none(), ..Kinds::FORWARD };

/// The outcomes of all callers.
fn outcomes<P: Conforms, S: Subject<P::Policy>>(
    setup: &Setup<P>,
    steps: &[Step],
) -> Vec<Option<Outcome>> {
    run(setup, steps, |driver: &Driver<'_, P, S>| driver.outcomes())
}

pub(crate) fn a_refusal_changes_nothing<P: Conforms, S: Subject<P::Policy>>() {
    prove(CASES, &(setups::<P>(), scripts(NOT_OVERTAKEN)), |(setup, script)| {
        let (line, mut steps) = play::<P>(&setup, &script, GiveBack::Any);
        prop_assume!(!line.has_unaware());
        let with = run(&setup, &steps, |driver: &Driver<'_, P, S>| {
            // If a policy penalizes a denial, other refusals still change nothing.
            let harmless = |outcome| !P::PUNISHES || !matches!(outcome, Outcome::Refused { .. });
            let judge = |caller: &Caller<'_, CostOf<P>>| {
                (caller.outcome, caller.refused_at_once && harmless(caller.outcome))
            };
            driver.all().map(judge).collect::<Vec<_>>()
        });
        let arrivals = steps.iter_mut().filter(|step| matches!(step, Step::Arrive { .. }));
        for (step, (_, refused)) in arrivals.zip(&with) {
            if *refused {
                *step = Step::NoArrival;
            }
        }
        for (id, without) in outcomes::<P, S>(&setup, &steps).into_iter().enumerate() {
            let (outcome, refused) = with[id];
            prop_assert!(
                same::<P>(without, (!refused).then_some(outcome)),
                "{id}: {outcome:?}, {without:?}"
            );
        }
        Ok(())
    });
}

pub(crate) fn a_leaver_delays_no_other_caller<P: Conforms, S: Subject<P::Policy>>() {
    let kinds = Kinds { pauses: true, ahead: true, ..Kinds::default() };
    let values = (setups::<P>(), scripts(kinds), any::<prop::sample::Index>(), any::<usize>());
    prove(CASES, &values, |(setup, mut script, position, leaver)| {
        script.insert(position.index(script.len() + 1), Op::Leave(leaver));
        let (_, steps) = play::<P>(&setup, &script, GiveBack::Any);
        let Some(leave) = steps.iter().position(|step| matches!(step, Step::Leave(_))) else {
            return Err(TestCaseError::reject("no caller was waiting"));
        };
        let Step::Leave(leaver) = steps[leave] else { unreachable!("found just now") };
        let (mut stays, mut never_came) = (steps.clone(), steps.clone());
        stays.remove(leave);
        never_came.remove(leave);
        let mut arrivals = never_came.iter_mut().filter(|step| matches!(step, Step::Arrive { .. }));
        *arrivals.nth(leaver).expect("the leaver came") = Step::NoArrival;

        let came_before = |step: &&Step| matches!(step, Step::Arrive { .. });
        let came = steps[..leave].iter().filter(came_before).count();
        let (joined, ranks) = times_and_ranks(&steps);
        let leaves = outcomes::<P, S>(&setup, &steps);
        let stays = outcomes::<P, S>(&setup, &stays);
        let never_came = outcomes::<P, S>(&setup, &never_came);
        let is_earlier = |id: usize| id != leaver && granted(leaves[id]) < granted(stays[id]);
        // The place of the leaver may be taken by a caller that would have found the queue full, and another one may
        // find it full then. If such a caller goes ahead of others, it delays them, and not the leaver.
        let is_full = |outcome| matches!(outcome, Some(Outcome::QueueFull { .. }));
        // A caller cannot go ahead of one that the leaver let through before it came. It is charged behind that one then,
        // and in another order other costs fit a window.
        let misses = |id: usize, other: usize| {
            let was_there = granted(stays[other]) >= joined[id];
            let is_gone = is_earlier(other) && granted(leaves[other]) <= joined[id];
            ranks[id] < ranks[other] && was_there && is_gone
        };
        let depends = |&id: &usize| {
            is_full(stays[id]) != is_full(leaves[id]) || (0..id).any(|other| misses(id, other))
        };
        let first = (came..leaves.len()).filter(depends).map(|id| ranks[id]).min();
        // Where one rule delays the grant that begins the window of another, a caller that the leaver let through may
        // delay it too: the next window is later then. So may one that went before a pause in which the rule cools.
        let cools = P::COOLS && steps.iter().any(|step| matches!(step, Step::Pause(_)));
        let is_shifted = |theirs: Time| {
            let let_through = |id: usize| is_earlier(id) && granted(leaves[id]) <= theirs;
            (P::SHIFTS || cools) && (0..leaves.len()).any(let_through)
        };
        for id in (0..leaves.len()).filter(|&id| id != leaver) {
            prop_assert!(
                !P::PREPAID || leaves[id] == never_came[id],
                "{id} knows that {leaver} was there: {:?}, {:?}",
                leaves[id],
                never_came[id]
            );
            if id >= came || first.is_some_and(|first| first < ranks[id]) {
                continue;
            }
            // A caller without a grant at the end counts as later than all others.
            let (ours, theirs) = (granted(leaves[id]), granted(stays[id]));
            if (ranks[id], id) < (ranks[leaver], leaver) {
                prop_assert!(leaves[id] == stays[id], "ahead: {:?}, {:?}", leaves[id], stays[id]);
            } else {
                // Less than a nanosecond of idle time stays in the store. It is there or not by the time of a grant.
                prop_assert!(
                    ours <= theirs.saturating_add(1) || is_shifted(theirs),
                    "{id} behind {leaver}: {ours} after {theirs}"
                );
            }
        }
        Ok(())
    });
}

/// When each caller came, and that less the time by which it enters ahead of others.
fn times_and_ranks(steps: &[Step]) -> (Vec<Time>, Vec<Time>) {
    let mut now = 0;
    let arrival = |step: &Step| match *step {
        Step::Arrive { rank, .. } => Some((now, now - rank.ahead)),
        Step::Advance(span) => {
            now += span;
            None
        }
        _ => None,
    };
    steps.iter().filter_map(arrival).unzip()
}

/// Where it is open when a waiter learns that it is late, a change may end its wait before.
fn same<P: Conforms>(first: Option<Outcome>, second: Option<Outcome>) -> bool {
    let is_granted = |outcome| granted(outcome) < i128::MAX;
    first == second || !P::EXACT_REFUSALS && !is_granted(first) && !is_granted(second)
}

fn granted(outcome: Option<Outcome>) -> i128 {
    if let Some(Outcome::Granted { at }) = outcome { at } else { i128::MAX }
}

pub(crate) fn looking_and_polling_change_nothing<P: Conforms, S: Subject<P::Policy>>() {
    let looks = prop::collection::vec((any::<u8>(), 1u8..16), 30);
    prove(CASES, &(setups::<P>(), scripts(NOT_OVERTAKEN), looks), |(setup, script, looks)| {
        let (line, steps) = play::<P>(&setup, &script, GiveBack::Any);
        prop_assume!(!line.has_unaware());
        // In the twin, time comes in pieces, and between any two steps the limiter is read and all
        // callers are polled.
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
            let all = driver.all();
            all.map(|caller| (caller.outcome, caller.kept(), caller.given_back)).collect::<Vec<_>>()
        };
        let (plain, polled) = (run(&setup, &steps, judge), run(&setup, &meddled, judge));
        prop_assert_eq!(plain.len(), polled.len());
        for (id, (&plain, &polled)) in plain.iter().zip(&polled).enumerate() {
            let ends = [plain.0, polled.0];
            // A caller may leave in the moment in which it becomes late: it knows that or not.
            let left = measure::REFUSED_AT_ONCE.is_some() && ends.contains(&Outcome::Left);
            let refused = ends.iter().any(|end| matches!(end, Outcome::Refused { .. }));
            prop_assert!(
                (!refused || left || same::<P>(Some(plain.0), Some(polled.0)))
                    && (plain.1, plain.2) == (polled.1, polled.2),
                "{id}: {plain:?}, looked at {polled:?}: {setup:?}"
            );
        }
        Ok(())
    });
}
