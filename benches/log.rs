//! What does a call of a `SlidingWindowLog` cost, as its limit grows?
//!
//! `cargo bench --bench log`. The log is full of grants that came one after the other, on a clock that stands still until
//! it is advanced. The cases take turns, and each figure is a median, with its ratio to that at a limit of 100.

#[path = "support/median.rs"]
mod median;

use std::hint::black_box;
use std::time::{Duration, Instant};

use median::median;
use tollgate::{ManualClock, RateLimiter, SlidingWindowLog};

const LIMITS: [u32; 4] = [100, 1_000, 10_000, 100_000];
const CASES: [&str; 7] = [
    "granted",
    "refused",
    "joins_and_leaves",
    "waits_and_is_granted",
    "timed_out",
    "timed_out_after_a_leave",
    "settled",
];
const STEP: Duration = Duration::from_micros(10);
const WAITERS: u32 = 100;
const ROUNDS: usize = 9;

/// Nanoseconds a call, for each case.
fn run(limit: u32) -> [f64; CASES.len()] {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SlidingWindowLog::new(limit, STEP * limit), &clock);
    let grant = || limiter.try_acquire(1).expect("one expires at each step");
    // Twice, so that the memory of the log has been in use before, as in a program that runs for longer than a window.
    for _ in 0..2 * limit {
        clock.advance(STEP);
        drop(grant());
    }
    let time = |calls: u32, call: &dyn Fn()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    let granted = time(2_000, &|| {
        clock.advance(STEP);
        drop(black_box(grant()));
    });
    let refused = time(2_000, &|| _ = black_box(limiter.try_acquire(1)).is_err());

    let join = || limiter.acquire_owned(1).reserve().expect("a place in the queue");
    let waiting: Vec<_> = (0..WAITERS).map(|_| join()).collect();
    let joins_and_leaves = time(WAITERS, &|| drop(black_box(join())));
    let time_out = || {
        let call = limiter.try_acquire_timeout(1, Duration::from_nanos(1));
        assert!(black_box(call.reserve()).is_err());
    };
    let timed_out = time(WAITERS, &time_out);
    let timed_out_after_a_leave = time(WAITERS, &|| {
        drop(join());
        time_out();
    });
    let waits_and_is_granted = time(WAITERS, &|| clock.advance(STEP));
    assert_eq!(limiter.queue_len(), 0);
    drop(waiting);

    let settled = time(WAITERS, &|| {
        clock.advance(STEP * 2);
        drop(black_box(limiter.try_acquire(2)).map(|mut grant| grant.settle(1)));
    });
    [
        granted,
        refused,
        joins_and_leaves,
        waits_and_is_granted,
        timed_out,
        timed_out_after_a_leave,
        settled,
    ]
}

fn main() {
    let mut runs: [Vec<[f64; CASES.len()]>; LIMITS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (runs, limit) in runs.iter_mut().zip(LIMITS) {
            runs.push(run(limit));
        }
    }
    let figure =
        |limit: usize, case: usize| median(runs[limit].iter().map(|run| run[case]).collect());
    for (case, name) in CASES.iter().enumerate() {
        for (index, limit) in LIMITS.iter().enumerate() {
            let nanos = figure(index, case);
            let ratio = nanos / figure(0, case);
            println!("limit={limit:<7} case={name:<24} nanos={nanos:<9.0} ratio={ratio:.2}");
        }
    }
}
