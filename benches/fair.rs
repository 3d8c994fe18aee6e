//! What does a turn cost, as the number of tenants grows?
//!
//! `cargo bench --bench fair`. Each case grants its calls on a clock that stands still until it is advanced: all that is
//! measured is the queue. The cases take turns, and each figure is a median, as a ratio to the same number of waiters
//! without tenants.

#[path = "support/median.rs"]
mod median;

use std::hint::black_box;
use std::time::{Duration, Instant};

use median::median;
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

const WAITERS: usize = 100_000;
const TENANTS: &[usize] = &[0, 1, 100, 10_000, 100_000];
const ROUNDS: usize = 7;

/// Nanoseconds to join, to be granted, and to be refused for a timeout that is too short.
fn run(tenants: usize) -> [f64; 3] {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1e6)), &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let each = |start: Instant, calls: usize| start.elapsed().as_nanos() as f64 / calls as f64;

    let start = Instant::now();
    let mut places = Vec::with_capacity(WAITERS);
    for caller in 0..WAITERS {
        let call = limiter.acquire_owned(1);
        let call = if tenants == 0 { call } else { call.for_tenant(&(caller % tenants)) };
        places.push(call.reserve().expect("a place"));
    }
    let join = each(start, WAITERS);

    const REFUSED: usize = 200;
    let start = Instant::now();
    for caller in 0..REFUSED {
        let call = limiter.try_acquire_timeout(1, Duration::from_nanos(1));
        let call = if tenants == 0 { call } else { call.for_tenant(&(caller % tenants)) };
        assert!(black_box(call.reserve()).is_err());
    }
    let refused = each(start, REFUSED);

    let start = Instant::now();
    clock.advance(Duration::from_secs(1));
    let grant = each(start, WAITERS);
    assert_eq!(limiter.queue_len(), 0);
    [join, grant, refused]
}

fn main() {
    let mut runs: Vec<Vec<[f64; 3]>> = vec![Vec::new(); TENANTS.len()];
    for _ in 0..ROUNDS {
        for (runs, &tenants) in runs.iter_mut().zip(TENANTS) {
            runs.push(run(tenants));
        }
    }
    println!("{WAITERS} waiters; nanoseconds, and times as long as without tenants");
    println!("{:>10}{:>18}{:>18}{:>22}", "tenants", "join", "grant", "refused, timeout");
    let figure =
        |tenants: usize, which: usize| median(runs[tenants].iter().map(|run| run[which]).collect());
    for (index, tenants) in TENANTS.iter().enumerate() {
        let figures = [0, 1, 2].map(|which| {
            let (ours, plain) = (figure(index, which), figure(0, which));
            format!("{ours:.0} ({:.2} x)", ours / plain)
        });
        println!("{tenants:>10}{:>18}{:>18}{:>22}", figures[0], figures[1], figures[2]);
    }
}
