//! The search: from each state that was not seen before, each thing that can happen next.
//!
//! A state cannot be copied, so each run begins anew and repeats the choices that led to a state. Two runs are in the
//! same state if the server remembers the same, the same is on its way, and each process has been told the same at the
//! same times: what is inside of a process follows from that.

use std::collections::{HashSet, VecDeque};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use tollgate::redis::Scripted;

use crate::fixed::SEED;
use crate::store::Redis;
use crate::world::{Scenario, World};

/// A state, as a hash of all that it consists of.
pub(crate) type State = u128;

/// The number of states, and of the steps between them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    states: usize,
    steps: usize,
    longest: usize,
}

/// What has to be tried: choices from the begin, and the state before the last of them.
type Untried = (Vec<u8>, State);

/// All states of a scenario.
pub(crate) fn explore<P: Scripted<Cost = u32>>(name: &str, scenario: &Scenario<P>) {
    let began = Instant::now();
    let redis = Redis::new();
    let mut seen = HashSet::new();
    let mut found = Found::default();
    let mut untried = VecDeque::<Untried>::from([(Vec::new(), 0)]);
    let of_name =
        |name, default| env::var(name).map_or(default, |value| value.parse().expect("a number"));
    let mut scenario = scenario.clone();
    scenario.ticks = of_name("TICKS", scenario.ticks);
    scenario.most_faults = of_name("FAULTS", scenario.most_faults);
    while let Some((choices, before)) = untried.pop_front() {
        let (state, next) = run(&scenario, &redis, &choices, before, &mut seen);
        found.steps += 1;
        found.longest = found.longest.max(choices.len());
        for choice in 0..next {
            let mut choices = choices.clone();
            choices.push(choice);
            untried.push_back((choices, state));
        }
    }
    found.states = seen.len();
    println!("{name}: {found:?} in {:.1?}", began.elapsed());
}

/// One run: the state to which these choices lead, and in how many ways it goes on, if it is new.
fn run<P: Scripted<Cost = u32>>(
    scenario: &Scenario<P>,
    redis: &Redis,
    choices: &[u8],
    before: State,
    seen: &mut HashSet<State>,
) -> (State, u8) {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let end = thread::scope(|scope| {
        let told = Arc::clone(&told);
        let run = move || {
            SEED.set(scenario.seed);
            let mut world = World::new(scenario, redis);
            for (index, &choice) in choices.iter().enumerate() {
                if index + 1 == choices.len() {
                    assert_eq!(world.state(), before, "a run that cannot be repeated");
                }
                let event = world.events()[usize::from(choice)];
                told.lock().expect("whole").push(format!("{:?} {event:?}", world.now()));
                world.act(event);
            }
            let state = world.state();
            let is_new = seen.insert(state);
            let next = if is_new { world.events().len() } else { 0 };
            if is_new {
                told.lock().expect("whole").push("all faults cease".into());
                world.calm_down();
            }
            world.end();
            (state, u8::try_from(next).expect("few events"))
        };
        // A panic within a scope loses its message otherwise.
        scope.spawn(move || catch_unwind(AssertUnwindSafe(run))).join().expect("caught")
    });
    end.unwrap_or_else(|panic| {
        let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        eprintln!("This fails:\n{}", told.join("\n"));
        resume_unwind(panic)
    })
}
