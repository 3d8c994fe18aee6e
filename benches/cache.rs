//! What does a decision cost whose permit the thread holds already?
//!
//! `cargo bench --bench cache`. Against the floor, one reading of the clock and one uncontended compare-exchange, and on
//! several threads against a `RateLimiter`; `benches/peers` has it beside other crates. All cases take turns, and a figure is the median of the ratios
//! in the same round. Compare within one run.

#[path = "support/median.rs"]
mod median;
#[path = "support/throughput.rs"]
mod throughput;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use median::median;
use throughput::calls_a_second;
use tollgate::{CachedRateLimiter, Rate, RateLimiter, TokenBucket};

const ROUNDS: usize = 51;
const CALLS: u32 = 20_000;

/// Never empty: the floor of a call, not the rate, is measured.
fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1e9), u32::MAX)
}

/// Refuses nearly all calls.
fn exhausted() -> TokenBucket {
    TokenBucket::new(Rate::per_second(10_000.0), 1_000).initial(0)
}

fn floor((clock, origin, word): &(quanta::Clock, u64, AtomicU64)) -> bool {
    let now = clock.delta_as_nanos(*origin, clock.raw());
    let old = word.load(Ordering::Acquire);
    word.compare_exchange(old, black_box(now), Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Nanoseconds a call.
fn time<T>(it: &T, call: impl Fn(&T) -> bool) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call(black_box(it)));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn one_thread() {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    let (least, plain) = ((clock, origin, AtomicU64::new(0)), RateLimiter::new(bucket()));
    let (cached, refusing) =
        (CachedRateLimiter::new(bucket()), CachedRateLimiter::new(exhausted()));
    let plain_refusing = RateLimiter::new(exhausted());
    let round = |_| {
        [
            time(&least, floor),
            time(&plain, |limiter| limiter.try_acquire(1).is_ok()),
            time(&plain, |limiter| limiter.try_acquire_up_to(64).is_ok()),
            time(&cached, |limiter| limiter.try_acquire(1).is_ok()),
            time(&plain_refusing, |limiter| limiter.try_acquire(1).is_ok()),
            time(&refusing, |limiter| limiter.try_acquire(1).is_ok()),
        ]
    };
    let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
    let names = [
        "floor",
        "RateLimiter, granted",
        "RateLimiter, up to 64 granted",
        "CachedRateLimiter, granted",
        "RateLimiter, refused",
        "CachedRateLimiter, refused",
    ];
    for (column, name) in names.iter().enumerate() {
        let ratio = median(rounds.iter().map(|round| round[column] / round[0]).collect());
        let nanos = median(rounds.iter().map(|round| round[column]).collect());
        println!("{name:42} x_floor={ratio:.2} ns={nanos:.1}");
    }
}

/// Calls of several threads on one limiter, in millions a second.
fn throughput(threads: usize, call: impl Fn() -> bool + Sync) -> f64 {
    calls_a_second(threads, Duration::from_millis(20), &call) / 1e6
}

fn several_threads(threads: usize) {
    let plain = RateLimiter::new(bucket());
    let round = |_| {
        // A full bucket each time: the threads may take more than the rate.
        let cached = CachedRateLimiter::new(bucket());
        [
            throughput(threads, || plain.try_acquire(1).is_ok()),
            throughput(threads, || cached.try_acquire(1).is_ok()),
        ]
    };
    let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
    for (column, name) in ["RateLimiter", "CachedRateLimiter"].iter().enumerate() {
        let name = format!("{name}, {threads} threads");
        let ratio = median(rounds.iter().map(|round| round[column] / round[0]).collect());
        let calls = median(rounds.iter().map(|round| round[column]).collect());
        println!("{name:42} x_plain={ratio:.2} million_a_second={calls:.1}");
    }
}

fn main() {
    one_thread();
    [1, 2, 4].into_iter().for_each(several_threads);
}
