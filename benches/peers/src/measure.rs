//! What all questions share: turns, medians, clocks, and how a figure is printed.

#[path = "../../support/median.rs"]
mod median;

use std::hint::black_box;
use std::time::{Duration, Instant};

pub(crate) use median::median;
use rustix::time::{ClockId, clock_gettime};

/// A line of figures: what they are of, and each as `name=value`. `report` reads such lines.
pub fn print(of: &str, figures: &[(&str, f64)]) {
    print!("{of:<42}");
    for (name, value) in figures {
        // Four digits, as more are noise.
        let digits = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
        print!(" {name}={value:.digits$}");
    }
    println!();
}

/// Calls a second in rounds of cases that took turns: of each case the median, and the median of ours over its own in each round.
pub fn print_rates(ours: usize, cases: impl Iterator<Item = String>, rates: Vec<Vec<f64>>) {
    let ours = rates[ours].clone();
    for (case, rates) in cases.zip(rates) {
        let ratios = ours.iter().zip(&rates).map(|(ours, theirs)| ours / theirs);
        let ratio = median(ratios.collect());
        print(&case, &[("ours_over_it", ratio), ("million_a_second", median(rates) / 1e6)]);
    }
}

/// `BENCH_QUICK` is set: short runs that only show that all works.
pub fn quick() -> bool {
    std::env::var_os("BENCH_QUICK").is_some()
}

pub fn rounds(full: usize) -> usize {
    if quick() { 1.max(full / 10) } else { full }
}

/// A name, and a function that makes a number of calls.
pub struct Case(pub &'static str, Box<dyn FnMut(u32)>);

impl Case {
    pub fn new<T: 'static>(
        name: &'static str,
        mut it: T,
        mut call: impl FnMut(&mut T) -> bool + 'static,
    ) -> Self {
        let calls = move |calls| {
            for _ in 0..calls {
                assert!(black_box(call(black_box(&mut it))), "{name}: not what the case is about");
            }
        };
        Self(name, Box::new(calls))
    }
}

/// The cases take turns, so that what else the machine does meets all of them alike. The first is the floor; a
/// figure is the median of the ratios to the floor of the same round.
pub fn against_floor(mut cases: Vec<Case>, calls: u32) {
    let rounds = rounds(101);
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    for _ in 0..rounds {
        for (Case(_, make), times) in cases.iter_mut().zip(&mut times) {
            let start = Instant::now();
            make(calls);
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls));
        }
    }
    let floor = times[0].clone();
    for (Case(name, _), times) in cases.iter().zip(times) {
        let ratios = times.iter().zip(&floor).map(|(time, floor)| time / floor);
        let ratio = median(ratios.collect());
        print(name, &[("x_floor", ratio), ("ns", median(times))]);
    }
}

/// The processor time that this process has used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime")
}
