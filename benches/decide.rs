//! What does a decision without a wait cost, on one thread?
//!
//! `cargo bench --bench decide`. The floor is one reading of the clock and one uncontended compare-exchange: what any
//! exact decision must at least do. All cases take turns of some hundred microseconds, so that what else the machine
//! does meets all of them alike, and a case's figure is the median of its ratios to the floor in the same round.
//! Compare within one run. Other crates and several threads are in `benches/peers`.

#[path = "support/median.rs"]
mod median;

use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use median::median;
use tollgate::{
    FixedWindow, Gcra, InFlight, Policy, Rate, RateLimiter, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

const ROUNDS: usize = 101;
const CALLS: u32 = 20_000;
const SECOND: Duration = Duration::from_secs(1);

/// A name, with what is measured, and a function that makes a number of calls.
struct Case(String, Box<dyn FnMut(u32)>);

fn case<T: 'static>(name: impl Into<String>, it: T, call: impl Fn(&T) -> bool + 'static) -> Case {
    Case(
        name.into(),
        Box::new(move |calls| {
            for _ in 0..calls {
                black_box(call(black_box(&it)));
            }
        }),
    )
}

/// Fast enough that the ticket has always come.
fn bursty() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1e9))
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1e9), u32::MAX)
}

fn window() -> FixedWindow {
    FixedWindow::new(u32::MAX, SECOND)
}

fn granted<P: Policy>(name: &str, policy: P, cost: P::Cost) -> Case {
    let name = format!("{name}/granted");
    case(name, RateLimiter::new(policy), move |limiter| limiter.try_acquire(cost).is_ok())
}

/// After `permits`, for as long as the bench takes.
fn refused<P: Policy<Cost = u32>>(name: &str, policy: P, permits: u32) -> Case {
    let limiter = RateLimiter::new(policy);
    limiter.try_acquire(permits).expect("the first is granted");
    case(format!("{name}/refused"), limiter, |limiter| limiter.try_acquire(1).is_err())
}

fn floor() -> Case {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    case("floor", (clock, origin, AtomicU64::new(0)), |(clock, origin, word)| {
        let now = clock.delta_as_nanos(*origin, clock.raw());
        let old = word.load(Ordering::Acquire);
        word.compare_exchange(old, black_box(now), Ordering::AcqRel, Ordering::Acquire).is_ok()
    })
}

fn cases() -> Vec<Case> {
    let warming = SmoothWarmingUp::new(Rate::per_second(1e9), SECOND / 100_000);
    let cold = SmoothWarmingUp::new(Rate::per_second(5.0), SECOND);
    vec![
        floor(),
        granted("SmoothBursty", bursty(), 1),
        granted("TokenBucket", bucket(), 1),
        granted("Gcra", Gcra::new(u32::MAX - 1, 1_000_000_000, SECOND), 1),
        granted("SmoothWarmingUp", warming, 1),
        granted("FixedWindow", window(), 1),
        granted("SlidingWindowCounter", SlidingWindowCounter::new(u32::MAX, SECOND, 10), 1),
        // Some hundred grants at a time in memory.
        granted("SlidingWindowLog", SlidingWindowLog::new(u32::MAX, SECOND / 100_000), 1),
        granted("InFlight, and back", InFlight::new(10), 1),
        granted("(SmoothBursty, TokenBucket)", (bursty(), bucket()), (1, 1)),
        granted("(TokenBucket, InFlight), and back", (bucket(), InFlight::new(10)), (1, 1)),
        granted("three rules, and back", (window(), bucket(), InFlight::new(10)), (1, 1, 1)),
        refused("SmoothBursty", SmoothBursty::new(Rate::per_second(5.0)), 1_000_000),
        refused("TokenBucket", TokenBucket::new(Rate::per_hour(1.0), 9), 9),
        refused("SmoothWarmingUp", cold, 1_000_000),
        case("SmoothBursty/acquire", RateLimiter::new(bursty()), |limiter| {
            pin!(limiter.acquire(1)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }),
        case("SmoothBursty/blocking_acquire", RateLimiter::new(bursty()), |limiter| {
            limiter.blocking_acquire(1).is_ok()
        }),
        case("tokio's Semaphore, and back/acquire", tokio::sync::Semaphore::new(10), |semaphore| {
            pin!(semaphore.acquire()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }),
    ]
}

fn main() {
    let mut cases = cases();
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        let times = cases.iter_mut().map(|Case(_, calls)| {
            let start = Instant::now();
            calls(CALLS);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
        });
        let times: Vec<_> = times.collect();
        for (rounds, time) in rounds.iter_mut().zip(&times) {
            rounds.push((time / times[0], *time));
        }
    }
    for (Case(name, _), rounds) in cases.iter().zip(rounds) {
        let (ratios, times) = rounds.into_iter().unzip();
        println!("{name:42} x_floor={:.2} ns={:.1}", median(ratios), median(times));
    }
}
