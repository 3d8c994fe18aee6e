//! What does a turn cost, as the number of tenants grows? And are the shares held while one tenant floods?
//!
//! `cargo bench --bench fair`. Each case grants its calls on a clock that stands still until it is advanced: all that is
//! measured is the queue. The cases take turns, and each figure is a median: nanoseconds, and as a ratio to the same
//! number of waiters without tenants (0) and to those of 100 tenants. The shares are those of 100 tenants of weight 1 and 2 in
//! turn, of which one has as many waiters as all others together.

#[path = "support/median.rs"]
mod median;

use std::hint::black_box;
use std::iter;
use std::time::{Duration, Instant};

use median::median;
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

const WAITERS: usize = 100_000;
const TENANTS: &[usize] = &[0, 1, 100, 10_000, 100_000];
const ROUNDS: usize = 7;

/// Nanoseconds to join, to be granted, and to be refused for a timeout that is far too short, or half of what it takes;
/// and for that with a grant before each.
fn run(tenants: usize) -> [f64; 5] {
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

    let refused = |calls: usize, timeout, grants: bool| {
        let start = Instant::now();
        for caller in 0..calls {
            if grants {
                clock.advance(Duration::from_micros(1));
            }
            let call = limiter.try_acquire_timeout(1, timeout);
            let call = if tenants == 0 { call } else { call.for_tenant(&(caller % tenants)) };
            assert!(black_box(call.reserve()).is_err());
        }
        each(start, calls)
    };
    let short = refused(200, Duration::from_nanos(1), false);
    // The queue is as long as a tenth of a second.
    let half = Duration::from_millis(50);
    let long = refused(2_000, half, false);
    let busy = refused(10_000, half, true);

    let (start, rest) = (Instant::now(), limiter.queue_len());
    clock.advance(Duration::from_secs(1));
    let grant = each(start, rest);
    assert_eq!(limiter.queue_len(), 0);
    [join, grant, short, long, busy]
}

fn main() {
    let mut runs: Vec<Vec<[f64; 5]>> = vec![Vec::new(); TENANTS.len()];
    for _ in 0..ROUNDS {
        for (runs, &tenants) in runs.iter_mut().zip(TENANTS) {
            runs.push(run(tenants));
        }
    }
    let figure =
        |tenants: usize, which: usize| median(runs[tenants].iter().map(|run| run[which]).collect());
    let hundred = TENANTS.iter().position(|&tenants| tenants == 100).expect("a case");
    for (which, case) in
        ["join", "grant", "refused_short", "refused_long", "refused_busy"].iter().enumerate()
    {
        for (index, tenants) in TENANTS.iter().enumerate() {
            let nanos = figure(index, which);
            let (plain, grown) = (nanos / figure(0, which), nanos / figure(hundred, which));
            println!(
                "waiters={WAITERS} tenants={tenants:<6} case={case:<15} nanos={nanos:<6.0} x_plain={plain:<6.2} \
                 x_hundred={grown:.2}"
            );
        }
    }
    println!("flood={FLOOD} tenants={SHARING} furthest_from_share_percent={:.3}", off_the_share());
}

const SHARING: usize = 100;
const FLOOD: usize = 99_000;

/// By how many percent of it a tenant is furthest from its share, when 60,050 permits have been granted.
fn off_the_share() -> f64 {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1e6)), &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let weight = |tenant: usize| if tenant.is_multiple_of(2) { 1 } else { 2 };
    let mut places = Vec::new();
    // The flood is there first.
    let flood = iter::repeat_n(0, FLOOD);
    let others = (0..FLOOD).map(|caller| 1 + caller % (SHARING - 1));
    for tenant in flood.chain(others) {
        let call = limiter.acquire_for(&tenant, 1).weight(weight(tenant));
        places.push(call.reserve().expect("a place"));
    }
    let waiting = |tenant| limiter.queue_len_for(&tenant);
    let before: Vec<_> = (0..SHARING).map(waiting).collect();
    clock.advance(Duration::from_micros(60_050));
    let granted = (0..SHARING).map(|tenant| (before[tenant] - waiting(tenant)) as f64);
    let (granted, weights): (Vec<_>, Vec<_>) =
        granted.enumerate().map(|(tenant, granted)| (granted, f64::from(weight(tenant)))).unzip();
    let unit = granted.iter().sum::<f64>() / weights.iter().sum::<f64>();
    let off = granted
        .iter()
        .zip(weights)
        .map(|(granted, weight)| 100.0 * (granted / (weight * unit) - 1.0).abs());
    off.fold(0.0, f64::max)
}
