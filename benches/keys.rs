//! How much memory does a key take, and how long is the longest call while keys come and go?
//!
//! `cargo bench --bench keys`, half a minute. `peers keys` compares decisions at keys with governor's:
//! `cargo run --release -p peers -- keys`.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use tollgate::{
    FixedWindow, KeyedRateLimiter, Policy, Rate, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, TokenBucket,
};

const KEYS: u64 = 1_000_000;

/// A key is not idle before, so all keys stay.
const LONG: Duration = Duration::from_secs(86_400);

fn limiter<P: Policy<Cost = u32>>(policy: P) -> KeyedRateLimiter<u64, P> {
    let most = usize::try_from(KEYS).expect("fits");
    KeyedRateLimiter::builder(policy).max_keys(most).build()
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// What a key takes, as this process grows: it must have freed nothing before.
fn bytes(policy: impl Policy<Cost = u32>) {
    let limiter = limiter(policy);
    limiter.at(&u64::MAX).try_acquire(1).map(drop).expect("the first");
    let before = resident_bytes();
    (1..KEYS).for_each(|key| drop(limiter.at(&key).try_acquire(1)));
    println!("{}", (resident_bytes() - before) / limiter.len());
}

/// Each is measured in a process of its own.
const MEMORY: [(&str, fn()); 5] = [
    ("SmoothBursty", || bytes(SmoothBursty::new(Rate::every(LONG)))),
    ("TokenBucket", || bytes(TokenBucket::new(Rate::every(LONG), 10))),
    ("FixedWindow", || bytes(FixedWindow::new(10, LONG))),
    ("SlidingWindowLog", || bytes(SlidingWindowLog::new(10, LONG))),
    ("SlidingWindowCounter", || bytes(SlidingWindowCounter::new(10, LONG, 10))),
];

/// The longest of many calls. Each is compared with a loop of the same length that does nothing: what the system
/// takes for others is in both.
#[derive(Default)]
struct Longest {
    call: Duration,
    nothing: Duration,
}

impl Longest {
    fn time(&mut self, call: impl FnOnce()) {
        let start = Instant::now();
        call();
        let took = start.elapsed();
        self.call = self.call.max(took);
        let start = Instant::now();
        while start.elapsed() < took {}
        self.nothing = self.nothing.max(start.elapsed() - took);
    }

    fn print(&self, name: &str) {
        let [call, nothing] = [self.call, self.nothing].map(|time| time.as_secs_f64() * 1e3);
        println!(
            "{name}/{KEYS} longest_call_ms={call:.3} longest_pause_of_the_machine_ms={nothing:.3}"
        );
    }
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let Some((_, of)) = MEMORY.iter().find(|(name, _)| arguments.iter().any(|it| it == name)) {
        return of();
    }
    let program = env::current_exe().expect("this program");
    for (name, _) in MEMORY {
        let output = Command::new(&program).arg(name).output().expect("this program runs");
        print!("{name}/{KEYS} bytes={}", String::from_utf8_lossy(&output.stdout));
    }
    let mut come = Longest::default();
    let keys = limiter(TokenBucket::new(Rate::every(LONG), 10));
    (0..KEYS).for_each(|key| come.time(|| drop(keys.at(&key).try_acquire(1))));
    come.print("keys come");
    // All of them are idle after a second, and go when others come.
    let mut go = Longest::default();
    let keys = limiter(TokenBucket::new(Rate::per_second(1.0), 1));
    (0..KEYS).for_each(|key| drop(keys.at(&key).try_acquire(1)));
    std::thread::sleep(Duration::from_secs(1));
    (KEYS..2 * KEYS).for_each(|key| go.time(|| drop(keys.at(&key).try_acquire(1))));
    go.print("keys go");
}
