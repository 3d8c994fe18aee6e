//! What does a decision cost that needs no wait?
//!
//! `cargo bench --bench decide`. The floor is one reading of the clock and one uncontended
//! compare-exchange: what any exact decision must at least do. Compare within one run.

use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate::{
    FixedWindow, InFlight, Policy, Rate, RateLimiter, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

/// Fast enough that the ticket has always come.
fn bursty() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1e9))
}

fn warming_up() -> SmoothWarmingUp {
    SmoothWarmingUp::new(Rate::per_second(1e9), Duration::from_micros(10))
}

/// A limiter that refuses for the next hours.
fn exhausted<P: Policy<Cost = u32>>(policy: P) -> RateLimiter<P> {
    let limiter = RateLimiter::new(policy);
    limiter.try_acquire(1_000_000).expect("the first is granted");
    limiter
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

/// A policy that grants each time.
fn granted<P: Policy>(group: &mut Group<'_>, name: &str, policy: P, cost: P::Cost) {
    let limiter = RateLimiter::new(policy);
    group.bench_function(format!("try_acquire, {name}"), |b| {
        b.iter(|| limiter.try_acquire(cost).is_ok());
    });
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("one thread");
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    let word = AtomicU64::new(0);
    group.bench_function("floor", |b| {
        b.iter(|| {
            let now = clock.delta_as_nanos(origin, clock.raw());
            let old = word.load(Ordering::Acquire);
            word.compare_exchange(old, black_box(now), Ordering::AcqRel, Ordering::Acquire)
        });
    });
    let limiter = RateLimiter::new(bursty());
    group.bench_function("try_acquire, bursty", |b| b.iter(|| limiter.try_acquire(1).is_ok()));
    group.bench_function("acquire, ready, bursty", |b| {
        b.iter(|| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(limiter.acquire(1)).poll(&mut context).is_ready()
        });
    });
    let refusing = exhausted(SmoothBursty::new(Rate::per_second(5.0)));
    group.bench_function("refused, bursty", |b| b.iter(|| refusing.try_acquire(1).is_ok()));
    let limiter = RateLimiter::new(warming_up());
    group.bench_function("try_acquire, warming up", |b| b.iter(|| limiter.try_acquire(1).is_ok()));
    let refusing = exhausted(SmoothWarmingUp::new(Rate::per_second(5.0), Duration::from_secs(1)));
    group.bench_function("refused, warming up", |b| b.iter(|| refusing.try_acquire(1).is_ok()));
    let rate = Rate::per_second(1e9);
    let second = Duration::from_secs(1);
    granted(&mut group, "token bucket", TokenBucket::new(rate, u32::MAX), 1);
    granted(&mut group, "fixed window", FixedWindow::new(u32::MAX, second), 1);
    // A thousand grants at a time in memory.
    granted(&mut group, "sliding log", SlidingWindowLog::new(u32::MAX, second / 1_000_000), 1);
    granted(&mut group, "sliding counter", SlidingWindowCounter::new(u32::MAX, second, 10), 1);
    granted(&mut group, "in flight, and back", InFlight::new(10), 1);
    let policy =
        (FixedWindow::new(u32::MAX, second), TokenBucket::new(rate, u32::MAX), InFlight::new(10));
    granted(&mut group, "three together, and back", policy, (1, 1, 1));
    let semaphore = tokio::sync::Semaphore::new(10);
    group.bench_function("tokio's Semaphore, ready", |b| {
        b.iter(|| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(semaphore.acquire()).poll(&mut context).is_ready()
        });
    });
    group.finish();
}

/// The same from two threads at once on one limiter: calls of both, per thread.
fn contended(c: &mut Criterion) {
    fn with_another_thread(group: &mut Group<'_>, name: &str, call: impl Fn() + Sync) {
        use std::sync::atomic::AtomicBool;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    call();
                }
            });
            group.bench_function(name, |b| b.iter(&call));
            stop.store(true, Ordering::Relaxed);
        });
    }

    let mut group = c.benchmark_group("two threads");
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    let word = AtomicU64::new(0);
    with_another_thread(&mut group, "floor", || {
        let now = clock.delta_as_nanos(origin, clock.raw());
        let mut old = word.load(Ordering::Acquire);
        while let Err(current) =
            word.compare_exchange_weak(old, black_box(now), Ordering::AcqRel, Ordering::Acquire)
        {
            old = current;
        }
    });
    let limiter = RateLimiter::new(bursty());
    with_another_thread(&mut group, "try_acquire, bursty", || {
        black_box(limiter.try_acquire(1).is_ok());
    });
    let refusing = exhausted(SmoothBursty::new(Rate::per_second(5.0)));
    with_another_thread(&mut group, "refused, bursty", || {
        black_box(refusing.try_acquire(1).is_ok());
    });
    let limiter = RateLimiter::new(warming_up());
    with_another_thread(&mut group, "try_acquire, warming up", || {
        black_box(limiter.try_acquire(1).is_ok());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = decide, contended
}
criterion_main!(benches);
