//! What does a decision cost among many keys, and what does a key?
//!
//! `cargo bench --bench keys`. The floor is one reading of the clock and one addition in a sharded map
//! with the same hash function: what any keyed decision must at least do. Compare within one run.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use tollgate::{
    FixedWindow, InFlight, KeyedRateLimiter, Policy, Rate, Same, SlidingWindowLog, SmoothBursty,
    TokenBucket,
};

const CALLS: usize = 4_000_000;
const ROUNDS: usize = 5;

/// Numbers that follow no pattern.
struct Scatter(u64);

impl Scatter {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % below
    }
}

struct Floor {
    clock: quanta::Clock,
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<HashMap<u64, u64, DefaultHashBuilder>>>,
}

impl Floor {
    fn new() -> Self {
        let shards = (0..256).map(|_| Mutex::default()).collect();
        Self { clock: quanta::Clock::new(), hasher: DefaultHashBuilder::default(), shards }
    }

    fn call(&self, key: u64) {
        let shard = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0) % 256;
        let mut shard = self.shards[shard].lock();
        *shard.entry(key).or_default() += self.clock.raw();
    }
}

/// Nanoseconds for each of many calls at random keys.
fn time(keys: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut scatter = Scatter(7);
    let start = Instant::now();
    for _ in 0..CALLS {
        call(black_box(scatter.next(keys)));
    }
    start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn decisions(keys: u64) {
    let floor = Floor::new();
    // Never idle, so that all keys stay.
    let rate = Rate::every(Duration::from_secs(60));
    let bursty = KeyedRateLimiter::new(SmoothBursty::new(rate));
    let bucket = KeyedRateLimiter::new(TokenBucket::new(rate, u32::MAX));
    (0..keys).for_each(|key| {
        floor.call(key);
        drop((bursty.try_acquire(&key, 1), bucket.try_acquire(&key, 1)));
    });
    let (mut floors, mut granted, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(time(keys, |key| floor.call(key)));
        granted.push(time(keys, |key| drop(bucket.try_acquire(&key, 1))));
        refused.push(time(keys, |key| drop(bursty.try_acquire(&key, 1))));
    }
    let floor = median(floors);
    let (granted, refused) = (median(granted), median(refused));
    println!(
        "{keys:>9} keys: floor {floor:.0} ns, granted {:.2}, refused {:.2} x floor",
        granted / floor,
        refused / floor
    );
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .map_or(0, |pages: usize| pages * 4096)
}

fn memory<P: Policy<Cost = u32>>(name: &str, policy: P) {
    const KEYS: u64 = 1_000_000;
    let before = resident_bytes();
    let limiter = KeyedRateLimiter::new(policy);
    let mut worst = Duration::ZERO;
    for key in 0..KEYS {
        let start = Instant::now();
        drop(limiter.try_acquire(&key, 1));
        worst = worst.max(start.elapsed());
    }
    let bytes = resident_bytes().saturating_sub(before) / limiter.len().max(1);
    println!(
        "{name:<18} {:>9} keys, {bytes:>4} bytes a key, longest call {worst:.1?}",
        limiter.len()
    );
}

fn main() {
    for keys in [1_000, 100_000, 1_000_000] {
        decisions(keys);
    }
    let day = Duration::from_secs(86_400);
    memory("SmoothBursty", SmoothBursty::new(Rate::every(day)));
    memory("TokenBucket", TokenBucket::new(Rate::every(day), 10));
    memory("FixedWindow", FixedWindow::new(10, day));
    memory("SlidingWindowLog", SlidingWindowLog::new(10, day));
    memory("Same((log, 2))", Same((SlidingWindowLog::new(10, day), InFlight::new(2))));
}
