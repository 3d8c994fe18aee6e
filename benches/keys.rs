//! What does a decision cost among many keys, and what does a key?
//!
//! `cargo bench --bench keys`, or a part of it: `decide`, `grow`, `memory`, `stall`, `idle`; and how many keys at
//! most, a million unless it says more: `cargo bench --bench keys -- grow 10000000`. `stall` and `idle` take 25 seconds.
//!
//! The floor is one reading of the clock and one addition in a sharded map with the same hash function: what any keyed
//! decision must at least do. Cases take turns, and what counts is the median of the rounds. Compare within one run.
//! `benches/peers` has other crates beside it.

#[path = "support/median.rs"]
mod median;

use std::borrow::Borrow;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use median::median;
use parking_lot::Mutex;
use tollgate::{
    FastHash, FixedWindow, InFlight, KeyedRateLimiter, Policy, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, TokenBucket,
};

const CALLS: u64 = 2_000_000;
const ROUNDS: usize = 7;

/// A key is not idle before, so all keys stay.
const LONG: Duration = Duration::from_secs(86_400);

/// Numbers that follow no pattern.
struct Scatter(u64);

impl Scatter {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// A map in shards, whose calls do nothing but add the time.
struct Floor<K> {
    clock: quanta::Clock,
    hasher: FastHash,
    shards: Vec<Mutex<HashMap<K, u64, FastHash>>>,
}

impl<K: std::hash::Hash + Eq + Clone> Floor<K> {
    fn new() -> Self {
        let hasher = FastHash::new();
        let shards = (0..256).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect();
        Self { clock: quanta::Clock::new(), hasher, shards }
    }

    fn call(&self, key: &K) {
        let shard = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0) % 256;
        let mut shard = self.shards[shard].lock();
        match shard.get_mut(key) {
            Some(sum) => *sum = sum.wrapping_add(self.clock.raw()),
            None => _ = shard.insert(key.clone(), 0),
        }
    }
}

/// A name and the call for a key.
type Case<'a, K> = (&'static str, Box<dyn Fn(&K) + Sync + 'a>);

/// Nanoseconds for each of many calls at random keys.
fn time<K, B: Borrow<K>>(
    keys: u64,
    key_of: &(impl Fn(u64) -> B + Sync),
    threads: u64,
    call: &(dyn Fn(&K) + Sync),
) -> f64 {
    let work = |thread| {
        let mut scatter = Scatter(7 + thread);
        for _ in 0..CALLS / threads {
            call(black_box(key_of(scatter.next(keys))).borrow());
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        (1..threads).for_each(|thread| _ = scope.spawn(move || work(thread)));
        work(0);
    });
    start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
}

/// The median time of each case.
fn rounds<K, B: Borrow<K>>(
    keys: u64,
    key_of: &(impl Fn(u64) -> B + Sync),
    threads: u64,
    cases: &[Case<'_, K>],
) -> Vec<f64> {
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((_, call), times) in cases.iter().zip(&mut times) {
            times.push(time(keys, key_of, threads, call));
        }
    }
    times.into_iter().map(median).collect()
}

/// Grants only, or refusals only.
fn decisions<K, B: Borrow<K>>(name: &str, keys: u64, key_of: impl Fn(u64) -> B + Sync)
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + tollgate::ToKey<K> + 'static,
{
    for (what, burst) in [("granted", 1_000_000), ("refused", 1)] {
        let policy = TokenBucket::new(Rate::every(LONG / burst.min(1_000)), burst);
        let most = usize::try_from(2 * keys).expect("fits");
        let ours = KeyedRateLimiter::builder(policy.clone()).max_keys(most).build();
        let ours_sip =
            KeyedRateLimiter::builder(policy).max_keys(most).hasher(RandomState::new()).build();
        let floor = Floor::new();
        let cases: [Case<'_, K>; 3] = [
            ("floor", Box::new(|key| floor.call(key))),
            ("tollgate", Box::new(|key| drop(ours.try_acquire(key, 1)))),
            ("tollgate, RandomState", Box::new(|key| drop(ours_sip.try_acquire(key, 1)))),
        ];
        for key in (0..keys).map(&key_of) {
            cases.iter().for_each(|(_, call)| call(key.borrow()));
        }
        for threads in [1, 2] {
            let times = rounds(keys, &key_of, threads, &cases);
            let [floor, ours, ours_sip] = times[..] else { unreachable!() };
            println!(
                "{what}, {name}/{threads}/{keys} floor_ns={floor:.0} x_floor={:.2} by_random_state_x_floor={:.2}",
                ours / floor,
                ours_sip / floor,
            );
        }
    }
}

/// From a thousand keys on: ours beside an array of atomics, by which the memory shows.
fn growth(most: u64) {
    let mut first = None;
    for keys in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        if keys > most {
            break;
        }
        let policy = TokenBucket::new(Rate::every(LONG / 1_000), 1_000_000);
        let room = usize::try_from(2 * keys).expect("fits");
        let ours = KeyedRateLimiter::builder(policy).max_keys(room).build();
        let array: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        let clock = quanta::Clock::new();
        let add = |&key: &u64| {
            let at = usize::try_from(key).expect("fits");
            array[at].fetch_add(clock.raw(), Ordering::Relaxed);
        };
        let cases: [Case<'_, u64>; 2] = [
            ("array", Box::new(add)),
            ("tollgate", Box::new(|key| drop(ours.try_acquire(key, 1)))),
        ];
        (0..keys).for_each(|key| drop(ours.try_acquire(&key, 1)));
        let times = rounds(keys, &|key| key, 1, &cases);
        let [array, ours] = times[..] else { unreachable!() };
        let &mut (first_array, first_ours) = first.get_or_insert((array, ours));
        println!(
            "grow/{keys} array_ns={array:.0} array_x_thousand={:.2} ns={ours:.0} x_thousand={:.2}",
            array / first_array,
            ours / first_ours
        );
    }
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

/// What a key takes, as this process grows: it must have freed nothing before.
fn bytes<P: Policy<Cost = u32>>(policy: P, keys: u64) {
    let room = usize::try_from(keys).expect("fits");
    let limiter = KeyedRateLimiter::builder(policy).max_keys(room).build();
    limiter.try_acquire(&u64::MAX, 1).map(drop).expect("the first");
    let before = resident_bytes();
    (1..keys).for_each(|key| drop(limiter.try_acquire(&key, 1)));
    println!("{} {}", limiter.len(), (resident_bytes() - before) / limiter.len());
}

type Row = (&'static str, fn(u64));

/// The policies of which the memory is measured, each in a process of its own.
const MEMORY: [Row; 6] = [
    ("SmoothBursty", |keys| bytes(SmoothBursty::new(Rate::every(LONG)), keys)),
    ("TokenBucket", |keys| bytes(TokenBucket::new(Rate::every(LONG), 10), keys)),
    ("FixedWindow", |keys| bytes(FixedWindow::new(10, LONG), keys)),
    ("SlidingWindowLog", |keys| bytes(SlidingWindowLog::new(10, LONG), keys)),
    ("SlidingWindowCounter", |keys| bytes(SlidingWindowCounter::new(10, LONG, 10), keys)),
    ("Same((log, 2))", |keys| {
        bytes(Same((SlidingWindowLog::new(10, LONG), InFlight::new(2))), keys);
    }),
];

fn memory(most: u64) {
    let program = env::current_exe().expect("this program");
    for (name, _) in MEMORY {
        let sizes: &[u64] = match name {
            "SmoothBursty" | "TokenBucket" => {
                &[10_000, 100_000, 700_000, 1_000_000, 1_400_000, 10_000_000]
            }
            _ => &[1_000_000],
        };
        for keys in sizes.iter().filter(|&&keys| keys <= most.max(1_400_000)) {
            let output = Command::new(&program)
                .args([OF_A_KEY, name, &keys.to_string()])
                .output()
                .expect("this program runs");
            let text = String::from_utf8_lossy(&output.stdout);
            let (keys, bytes) = text.trim().split_once(' ').expect("two numbers");
            println!("memory, {name}/{keys} bytes={bytes}");
        }
    }
}

const OF_A_KEY: &str = "--bytes-of-a-key";

/// The longest of many calls. Each is compared with a loop of the same length that does nothing: what the system
/// takes for others is in both.
fn stall(name: &str, most: u64, calls: impl Fn(&mut dyn FnMut(&dyn Fn()))) {
    let (mut worst, mut over, mut all) = (Duration::ZERO, 0, 0);
    let mut idle_worst = Duration::ZERO;
    calls(&mut |call| {
        let start = Instant::now();
        call();
        let took = start.elapsed();
        worst = worst.max(took);
        over += u64::from(took > Duration::from_micros(200));
        all += 1;
        let start = Instant::now();
        while start.elapsed() < took {}
        idle_worst = idle_worst.max(start.elapsed() - took);
    });
    println!(
        "stall, {name}/{most} longest_ms={:.3} above_0.2_ms={over} calls={all} pause_of_the_machine_ms={:.3}",
        worst.as_secs_f64() * 1e3,
        idle_worst.as_secs_f64() * 1e3,
    );
}

/// Growth, and clean-up while all keys become idle at once.
fn stalls(most: u64) {
    let room = usize::try_from(most).expect("fits");
    let numbers = |policy| KeyedRateLimiter::builder(policy).max_keys(room).build();
    let limiter = numbers(TokenBucket::new(Rate::every(LONG), 10));
    stall("growth, u64", most, |call| {
        (0..most).for_each(|key| call(&|| drop(limiter.try_acquire(&key, 1))));
    });
    let names: Vec<_> = (0..most).map(|key| format!("customer {key:>12}")).collect();
    let policy = TokenBucket::new(Rate::every(LONG), 10);
    let limiter = KeyedRateLimiter::<String, _>::builder(policy).max_keys(room).build();
    stall("growth, String", most, |call| {
        names.iter().for_each(|key| call(&|| drop(limiter.try_acquire(key, 1))));
    });
    // All of them are idle after a second, and calls at one key go on for longer than the clean-up may take.
    let limiter = numbers(TokenBucket::new(Rate::per_second(1.0), 1));
    (0..most).for_each(|key| drop(limiter.try_acquire(&key, 1)));
    stall("all idle, then calls", most, |call| {
        let end = Instant::now() + Duration::from_secs(12);
        while Instant::now() < end {
            call(&|| drop(limiter.try_acquire(&0, 1)));
        }
    });
    println!("stall, all idle, then calls/{most} keys_left={}", limiter.len());
}

/// How long idle keys stay after the last of them became idle, and how long it takes to remove keys now.
fn idle(most: u64) {
    let full = || {
        let room = usize::try_from(most).expect("fits");
        // Longer than it takes to come, as calls at new keys remove idle ones.
        let idle_after = Duration::from_secs(2);
        let policy = TokenBucket::new(Rate::every(idle_after), 1);
        let limiter = KeyedRateLimiter::builder(policy).max_keys(room).build();
        (0..most).for_each(|key| drop(limiter.try_acquire(&key, 1)));
        (limiter, Instant::now() + idle_after)
    };
    // In the second, calls at one key go on, so that this one stays.
    let limiters = [full(), full()];
    let mut gone = [None; 2];
    let end = Instant::now() + Duration::from_secs(30);
    while gone.contains(&None) && Instant::now() < end {
        drop(limiters[1].0.try_acquire(&0, 1));
        for (least, (limiter, idle)) in limiters.iter().enumerate() {
            if gone[least].is_none() && limiter.len() <= least {
                gone[least] = Some(idle.elapsed().as_secs_f64());
            }
        }
    }
    for (name, gone) in ["no calls", "calls at one key"].into_iter().zip(gone) {
        println!("idle, {name}/{most} gone_after_s={:.3}", gone.unwrap_or(f64::INFINITY));
    }
    let (limiter, _) = full();
    let start = Instant::now();
    let removed = limiter.retain(|key| key % 2 == 0);
    let took = start.elapsed().as_secs_f64() * 1e3;
    println!("retain, half/{most} ms={took:.0} removed={removed} keys_left={}", limiter.len());
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [of_a_key, name, keys] = &arguments[..]
        && of_a_key == OF_A_KEY
    {
        let (_, of) = MEMORY.into_iter().find(|(other, _)| other == name).expect("a policy");
        return of(keys.parse().expect("a number"));
    }
    let most = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let is_asked = |part: &str| {
        let parts: Vec<_> =
            arguments.iter().filter(|argument| argument.parse::<u64>().is_err()).collect();
        parts.is_empty() || parts.iter().any(|asked| *asked == part)
    };
    if is_asked("decide") {
        for keys in [1_000, 100_000, 1_000_000, 10_000_000].into_iter().filter(|&keys| keys <= most)
        {
            decisions::<u64, u64>("u64", keys, |key| key);
        }
        let name = |key: u64| format!("customer {key:>12}");
        let names: Vec<String> = (0..100_000).map(name).collect();
        decisions::<String, &String>("String", 100_000, |key| {
            &names[usize::try_from(key).expect("fits")]
        });
    }
    if is_asked("grow") {
        growth(most);
    }
    if is_asked("memory") {
        memory(most);
    }
    if is_asked("stall") {
        stalls(most);
    }
    if is_asked("idle") {
        idle(most);
    }
}
