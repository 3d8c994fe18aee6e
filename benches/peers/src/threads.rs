//! How many calls a second do several threads make on one limiter?

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tollgate::{Rate, RateLimiter, SmoothWarmingUp};

use crate::limiters::{
    bursty, exhausted, governor, governor_exhausted, leaky_bucket_full, ratelimit_exhausted,
    ratelimit_full, throttle_net_full,
};
use crate::measure::{print_rates, rounds, runtime};

const THREADS: [usize; 4] = [1, 2, 4, 8];
const SPAN: Duration = Duration::from_millis(20);
const ROUNDS: usize = 21;

/// A call, made by all threads at once.
type Call = Box<dyn Fn() -> bool + Sync>;

pub fn run() {
    let runtime = runtime();
    let _context = runtime.enter();
    let cases = cases();
    for threads in THREADS {
        let mut rates = vec![Vec::new(); cases.len()];
        for _ in 0..rounds(ROUNDS) {
            for ((_, call), rates) in cases.iter().zip(&mut rates) {
                rates.push(calls_a_second(threads, call));
            }
        }
        let names = cases.iter().map(|(name, _)| format!("{name}/{threads}"));
        print_rates(2, names, rates);
    }
}

fn cases() -> Vec<(&'static str, Call)> {
    let (granted, refused) = (bursty(), exhausted());
    let warming = SmoothWarmingUp::new(Rate::per_second(1e9), Duration::from_micros(10));
    let warming = RateLimiter::new(warming);
    let (theirs, theirs_refused) =
        (governor(Duration::from_nanos(1), u32::MAX), governor_exhausted());
    let (leaky_bucket, semaphore) = (leaky_bucket_full(), Semaphore::new(64));
    let (ratelimit, ratelimit_refused) = (ratelimit_full(), ratelimit_exhausted());
    let throttle_net = throttle_net_full();
    let (clock, word) = (quanta::Clock::new(), AtomicU64::new(0));
    let origin = clock.raw();
    // As in `decide`, until it is this thread's turn.
    let floor = move || {
        let now = clock.delta_as_nanos(origin, clock.raw());
        let mut old = word.load(Ordering::Acquire);
        while let Err(other) =
            word.compare_exchange_weak(old, old.max(now) + 1, Ordering::AcqRel, Ordering::Acquire)
        {
            old = other;
        }
        true
    };
    vec![
        ("floor", Box::new(floor)),
        ("governor, granted", Box::new(move || theirs.check().is_ok())),
        ("tollgate, granted", Box::new(move || granted.try_acquire(1).is_ok())),
        ("governor, refused", Box::new(move || theirs_refused.check().is_err())),
        ("tollgate, refused", Box::new(move || refused.try_acquire(1).is_err())),
        ("tollgate, warming up", Box::new(move || warming.try_acquire(1).is_ok())),
        ("leaky-bucket, granted", Box::new(move || leaky_bucket.try_acquire(1))),
        ("ratelimit, granted", Box::new(move || ratelimit.try_wait().is_ok())),
        ("ratelimit, refused", Box::new(move || ratelimit_refused.try_wait().is_err())),
        ("throttle-net, granted", Box::new(move || throttle_net.try_acquire())),
        ("Semaphore, granted", Box::new(move || semaphore.try_acquire().is_ok())),
    ]
}

fn calls_a_second(threads: usize, call: &Call) -> f64 {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let calls: u64 = thread::scope(|scope| {
        let count = || {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                (0..100).for_each(|_| _ = black_box(call()));
                calls += 100;
            }
            calls
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
        thread::sleep(SPAN);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    calls as f64 / start.elapsed().as_secs_f64()
}
