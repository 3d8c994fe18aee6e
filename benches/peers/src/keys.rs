//! What does a decision at one of many keys cost, and what does a key?
//!
//! The keys are asked at random, and none is ever idle. An array of atomics, indexed by the key, is what memory
//! costs at the least.

use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use governor::Quota;
use throttle_net::{Eviction, PerKey};
use tollgate::{KeyedRateLimiter, Rate, TokenBucket};

use crate::limiters::{PLENTY, leaky_bucket, ratelimit};
use crate::measure::{print, print_rates, quick, runtime};

const CALLS: usize = 250_000;
const ROUNDS: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);

/// A decision at a key by its number.
type Call = Box<dyn Fn(usize) -> bool + Sync>;

pub fn run() {
    let runtime = runtime();
    let _context = runtime.enter();
    // First: memory that the process gives back to its allocator is not seen to grow again.
    population("u64", (0..1_000_000).collect::<Vec<u64>>());
    population("String", (0..100_000).map(|key| format!("tenant:{key:08}")).collect::<Vec<_>>());
}

fn population<K: Clone + Eq + Hash + Send + Sync + 'static>(kind: &str, keys: Vec<K>) {
    let count = keys.len();
    let cases = cases(kind, &keys);
    for threads in [1, 2] {
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..if quick() { 1 } else { ROUNDS } {
            for ((_, call), times) in cases.iter().zip(&mut times) {
                times.push(calls_a_second(threads, count, call));
            }
        }
        let names = cases.iter().map(|(name, _)| format!("{name}/{kind}/{threads}/{count}"));
        print_rates(1, names, times);
    }
}

/// The keys are put in one after the other, so that the memory that the process grows by is that of the case.
fn cases<K: Clone + Eq + Hash + Send + Sync + 'static>(
    kind: &str,
    keys: &[K],
) -> Vec<(&'static str, Call)> {
    let filled = |name: &'static str, call: Call| {
        let before = resident_bytes();
        assert!((0..keys.len()).all(&call), "{name} refuses");
        if kind == "u64" {
            let bytes = resident_bytes().saturating_sub(before) as f64 / keys.len() as f64;
            print(&format!("{name}/{kind}"), &[("bytes", bytes)]);
        }
        (name, call)
    };
    let array: Vec<_> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    let clock = quanta::Clock::new();
    let ours = KeyedRateLimiter::new(TokenBucket::new(Rate::every(MINUTE), PLENTY));
    let own = || keys.to_vec();
    let (a, b, c, d, e, f) = (own(), own(), own(), own(), own(), own());
    let quota = Quota::with_period(MINUTE).expect("not zero");
    let quota = quota.allow_burst(NonZeroU32::new(PLENTY).expect("not zero"));
    let default_hash = governor::RateLimiter::dashmap(quota);
    let same_hash =
        governor::RateLimiter::dashmap_with_hasher(quota, foldhash::fast::RandomState::default());
    // Its keys are bounded, by default to a million over all shards.
    let per_key = PerKey::builder().rate(1, MINUTE).burst(PLENTY);
    let per_key = per_key.eviction(Eviction::capacity(2 * keys.len())).build();
    let leaky = DashMap::new();
    let plain = DashMap::new();
    vec![
        filled(
            "array of atomics",
            Box::new(move |key| array[key].fetch_add(clock.raw(), Ordering::AcqRel) < u64::MAX),
        ),
        filled("tollgate", Box::new(move |key| ours.at(&a[key]).try_acquire(1).is_ok())),
        filled("governor, its hash", Box::new(move |key| default_hash.check_key(&b[key]).is_ok())),
        filled("governor, our hash", Box::new(move |key| same_hash.check_key(&c[key]).is_ok())),
        filled("throttle-net", Box::new(move |key| per_key.try_acquire(&f[key]))),
        filled(
            "leaky-bucket in a DashMap",
            in_a_map(
                leaky,
                d,
                || leaky_bucket(1, MINUTE, PLENTY as usize, PLENTY as usize),
                |it| it.try_acquire(1),
            ),
        ),
        filled(
            "ratelimit in a DashMap",
            in_a_map(
                plain,
                e,
                || ratelimit(1, MINUTE, PLENTY.into(), PLENTY.into()),
                |it| it.try_wait().is_ok(),
            ),
        ),
    ]
}

/// A limiter for each key, in a map with its own hash function.
fn in_a_map<K, L, S>(
    map: DashMap<K, L, S>,
    keys: Vec<K>,
    new: fn() -> L,
    call: fn(&L) -> bool,
) -> Call
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    L: Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Box::new(move |key| {
        let key = &keys[key];
        match map.get(key) {
            Some(limiter) => call(&limiter),
            None => call(&map.entry(key.clone()).or_insert_with(new)),
        }
    })
}

/// Calls of all threads in a second, each at a random key.
fn calls_a_second(threads: usize, keys: usize, call: &Call) -> f64 {
    let calls = if quick() { CALLS / 10 } else { CALLS };
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut scatter = 7 + thread as u64;
                for _ in 0..calls {
                    scatter = scatter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    black_box(call((scatter >> 33) as usize % keys));
                }
            });
        }
    });
    (threads * calls) as f64 / start.elapsed().as_secs_f64()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
