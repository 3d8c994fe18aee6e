//! The whole crate under one deterministic scheduler.
//!
//! A run has some limiters of any kind and rule on one clock, and an executor that is written by hand. Callers come,
//! wait, leave at any point, are leaked, run work, use their grants and hear a server; wakers panic; limits
//! change, pause, close; the clock jumps, and alarms are late. A seed determines the limiters, all operations and in
//! which order tasks are polled. Operations are data, so that a failure is shrunk to a few.
//!
//! After each step no caller has overtaken another, been granted early, late, in a pause or by a closed limiter, or been
//! decided without a wake-up. Whenever all is quiet, no caller waits, all counts are those of the callers, and each permit
//! is there or was taken. In the end law 1 holds for all grants, an idle limiter is full, and no memory is left.
//!
//! `FIRST`, `SEEDS` and `STEPS` choose other runs, and `SIMULATION_SECONDS` goes on with further seeds for so long.
//!
//! Threads are the matter of `tests/stress`, Redis that of `tests/redis_laws/simulation`.

mod calls;
// The cases of one policy use more of it.
#[allow(dead_code)]
mod grants;
#[path = "../stress/heap.rs"]
mod heap;
// The threads' tests use more of it.
#[allow(dead_code)]
#[path = "../stress/law.rs"]
mod law;
mod op;
mod quiet;
// Others use more of it.
#[allow(dead_code)]
#[path = "../random.rs"]
mod random;
mod run;
mod stage;
mod subject;
mod tally;
mod task;
mod time;

use std::env;
use std::mem::forget;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use op::{Op, Setup};
use quiet::Ended;
use random::Random;
use run::Run;
use tally::Tally;
use task::attempt;
use time::Time;

fn of_name(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Signed, as a run may also free what another one has left.
fn in_use() -> i64 {
    i64::try_from(heap::in_use()).expect("less than all addresses")
}

const YEAR: f64 = 365.25 * 86_400e9;

/// The tests take turns, so that none counts the memory of another.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn any_operations_in_any_order() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, seeds) = (of_name("FIRST", 0), of_name("SEEDS", 400));
    let steps = usize::try_from(of_name("STEPS", 250)).expect("a number");
    let start = Instant::now();
    let goes_on = Duration::from_secs(of_name("SIMULATION_SECONDS", 0));
    let (mut failed, mut all, mut kept) = (Vec::new(), Tally::default(), 0_i64);
    let seeds = (first..).take_while(|seed| *seed < first + seeds || start.elapsed() < goes_on);
    let mut taken = 0;
    for seed in seeds {
        taken += steps;
        let before = in_use();
        let Some((ended, leaks)) = play_seed(seed, steps) else {
            failed.push(seed);
            if failed.len() == 10 {
                break;
            }
            continue;
        };
        ended.counts.iter().for_each(|(_, tally)| all += *tally);
        drop(ended);
        kept += if leaks { 0 } else { in_use() - before };
    }
    let took = start.elapsed();
    println!("{all:?}");
    println!("{taken} steps in {took:?}: {:.0} a minute", taken as f64 / took.as_secs_f64() * 60.0);
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(kept < i64::try_from(heap::SLACK).expect("small"), "{kept} bytes are still in use");
}

/// A caller that is polled late between its two queues; a kept place that is granted last of all.
#[test]
fn runs_that_failed_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    const SEEDS: [u64; 9] =
        [5015632, 5038690, 6017978, 5004052, 5010452, 5054842, 6020431, 5057096, 5526962];
    let failed: Vec<_> = SEEDS.into_iter().filter(|&seed| play_seed(seed, 250).is_none()).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// Ten years of mixed load on each form of limiter. Whenever all is quiet, each permit that has come by the exact rate is
/// there or was taken.
#[test]
fn ten_years_lose_no_permit_and_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let setup = Setup::years();
    let ops = setup.ops(&mut Random(of_name("FIRST", 0)), 60_000);
    let ended = match play(&setup, &ops) {
        Ok(ended) => ended,
        Err(reason) => {
            tell(&setup, ops, reason);
            panic!("permits were lost or gained");
        }
    };
    for (plan, tally) in &ended.counts {
        println!("{:?}: {tally:?}", plan.form);
    }
    let years = ended.nanos as f64 / YEAR;
    let memory = ended.memory.check();
    println!(
        "{years:.1} years in {:?}, at most {memory:?} bytes in use when all is quiet",
        start.elapsed()
    );
    assert!(years >= 10.0);
}

/// Plays the run of a seed, and prints a failure. Also returns whether the run may leak.
fn play_seed(seed: u64, steps: usize) -> Option<(Ended, bool)> {
    let mut chance = Random(seed);
    let setup = Setup::new(&mut chance);
    let ops = setup.ops(&mut chance, steps);
    match play(&setup, &ops) {
        Ok(ended) => Some((ended, setup.leaks)),
        Err(reason) => {
            println!("FIRST={seed} SEEDS=1 STEPS={steps}");
            tell(&setup, ops, reason);
            None
        }
    }
}

/// Prints a failure, with as few operations as show one.
fn tell(setup: &Setup, ops: Vec<Op>, reason: String) {
    let (least, reason) = shrink(setup, ops, reason);
    println!("{reason}");
    setup.plans.iter().for_each(|plan| println!("    {plan:?}"));
    let Setup { is_late, panics, leaks, .. } = setup;
    println!("    is_late: {is_late}, panics: {panics}, leaks: {leaks}");
    least.iter().for_each(|op| println!("    {op:?}"));
}

fn play(setup: &Setup, ops: &[Op]) -> Result<Ended, String> {
    let time = Rc::new(Time::new(setup.is_late));
    let _guard = time.enter();
    let mut run = Run::new(setup, &time);
    for (step, &op) in ops.iter().enumerate() {
        if let Err(reason) = attempt(|| run.take(op)).and_then(|taken| taken.unwrap_or(Ok(()))) {
            // Its tasks may panic again.
            forget(run);
            return Err(format!("{reason}\nin step {step}, {op:?}"));
        }
    }
    run.end()
}

/// Leaves out operations as long as any fault remains.
fn shrink(setup: &Setup, mut ops: Vec<Op>, mut reason: String) -> (Vec<Op>, String) {
    let mut chunk = ops.len() / 2;
    while chunk > 0 {
        let (mut at, mut has_shrunk) = (0, false);
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(fewer.len()));
            match play(setup, &fewer) {
                Err(other) => (ops, reason, has_shrunk) = (fewer, other, true),
                Ok(_) => at += chunk,
            }
        }
        if !has_shrunk {
            chunk /= 2;
        }
    }
    (ops, reason)
}
