//! All methods at once, at random, from threads and tasks that start and end, by the system's
//! clock.
//!
//! In any order of the scheduler, the counts are exact, no waiter is lost, the number in flight
//! stays within the limit, no memory is lost, and no span of time holds more than law 1 allows. All bounds are
//! one-sided: a busy or stalled machine makes the run lazier and fails no check.
//!
//! A program of its own, with the other test that measures real time, as both need the processors.
//!
//! Two seconds in all. `STRESS_SECONDS=60 cargo test -p tests --test stress -- --nocapture` runs for a minute and
//! prints how close each scenario came; `STRESS_SEED` repeats the choices, though not the order in which
//! threads meet.

mod caller;
mod crowd;
mod ends;
mod heap;
mod law;
mod mix;
mod places;
// Others use more of it.
#[allow(dead_code)]
#[path = "../random.rs"]
mod random;
mod scenario;
#[path = "../in_process/support/mod.rs"]
mod support;
mod system_clock;
mod table;
mod tally;
mod watched;

use std::env;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use random::Random;

/// Waits of the tests of this file together, unless `STRESS_SECONDS` says otherwise.
const SHORT: Duration = Duration::from_secs(2);

/// All tests of this program take turns, so that none has the processor of another.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_count_is_lost_and_no_law_is_broken_by_any_mix_of_calls() {
    let _turn = turn();
    let (mut seeds, scenarios) = (seeds(), table::scenarios());
    let each = span() * 9 / 10 / u32::try_from(scenarios.len()).expect("a few");
    for scenario in scenarios {
        scenario.run(each, seeds.next());
    }
}

#[test]
fn a_queue_that_is_never_empty_uses_the_whole_rate_when_waiters_leave() {
    let _turn = turn();
    crowd::all(span() / 10, &mut seeds());
}

fn span() -> Duration {
    let seconds = env::var("STRESS_SECONDS").map(|value| value.parse().expect("seconds"));
    seconds.map_or(SHORT, Duration::from_secs_f64)
}

/// The same in each short run, others in each long one.
fn seeds() -> Random {
    let by_time = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::from(since.subsec_nanos())
    };
    let seed = match env::var("STRESS_SEED") {
        Ok(seed) => seed.parse().expect("a seed"),
        Err(_) if env::var_os("STRESS_SECONDS").is_some() => by_time(),
        Err(_) => 1,
    };
    println!("STRESS_SEED={seed}");
    Random(seed)
}
