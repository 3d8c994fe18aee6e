//! The search: from each state that was not seen before, each thing that can happen next.
//!
//! A state cannot be copied. So a run begins anew, repeats the choices that led to a state, and goes on from there for
//! as long as the states are new. Two runs are in the same state if the server remembers the same, the same is on its
//! way, and each process has been told the same at the same times: what is inside of a process follows from that.

use std::collections::HashSet;
use std::env;
use std::time::Instant;

use tollgate::redis::Scripted;

use crate::store::Redis;
use crate::world::{AT_ONCE, Event, Fault, SLOW, Scenario, World, begin};

/// A state, as a hash of all that it consists of.
pub(crate) type State = u128;

/// The number of states, and of the steps between them.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    steps: usize,
    longest: usize,
}

struct Search {
    seen: HashSet<State>,
    found: Found,
    /// What has to be tried: choices from the begin, and the state before the last of them.
    untried: Vec<(Vec<Event>, State)>,
}

/// All states of a scenario: while the clock moves, with a fault, and, of two callers, with a fault during which the clock
/// moves and with two faults. `TICKS`, `FAULTS` and `CALLERS` set how much of each there is at once.
pub(crate) fn explore_all<P: Scripted<Cost = u32>>(name: &str, scenario: &Scenario<P>) {
    let by_name = |name| env::var(name).ok().map(|value| value.parse::<u8>().expect("a number"));
    let by_names = ["TICKS", "FAULTS", "CALLERS"].map(by_name);
    if let [None, None, None] = by_names {
        explore(name, scenario, 3, 1, (0, &[]));
        explore(name, scenario, 3, 0, (1, &AT_ONCE));
        explore(name, scenario, 2, 0, (1, &SLOW));
        explore(name, scenario, 2, 0, (2, &AT_ONCE));
    } else {
        let [ticks, faults, callers] = by_names.map(Option::unwrap_or_default);
        let callers = if callers == 0 { 3 } else { callers };
        explore(
            name,
            scenario,
            callers.into(),
            ticks,
            (faults, &[AT_ONCE.as_slice(), &SLOW].concat()),
        );
    }
}

fn explore<P: Scripted<Cost = u32>>(
    name: &str,
    scenario: &Scenario<P>,
    callers: usize,
    ticks: u8,
    (most_faults, faults): (u8, &[Fault]),
) {
    let mut scenario = Scenario { ticks, most_faults, faults: faults.to_vec(), ..scenario.clone() };
    scenario.callers.truncate(callers);
    let (began, redis) = (Instant::now(), Redis::new());
    let mut search =
        Search { seen: HashSet::new(), found: Found::default(), untried: vec![(Vec::new(), 0)] };
    while let Some((choices, before)) = search.untried.pop() {
        begin(&scenario, &redis, |world| run(world, choices, before, &mut search));
    }
    let (found, time) = (search.found, began.elapsed());
    println!(
        "{name}: {callers} callers, {ticks} ticks, {most_faults} faults of {faults:?}: {found:?} in {time:.1?}"
    );
}

/// One run: these choices, and the first of those that follow, up to a state that is not new.
fn run<P: Scripted<Cost = u32>>(
    world: &mut World<'_, P>,
    mut choices: Vec<Event>,
    before: State,
    search: &mut Search,
) {
    if let Some((&last, earlier)) = choices.split_last() {
        earlier.iter().for_each(|&event| world.repeat(event));
        assert_eq!(world.state(), before, "a run that cannot be repeated");
        world.act(last);
    }
    loop {
        search.found.steps += 1;
        search.found.longest = search.found.longest.max(choices.len());
        let state = world.state();
        if !search.seen.insert(state) {
            return;
        }
        search.found.states += 1;
        let mut next = world.events();
        let goes_on = if world.is_calmed_down_here() { None } else { next.pop() };
        for event in next {
            let choices = choices.iter().copied().chain([event]).collect();
            search.untried.push((choices, state));
        }
        let Some(event) = goes_on else { return world.calm_down() };
        world.act(event);
        choices.push(event);
    }
}
