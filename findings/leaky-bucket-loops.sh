#!/usr/bin/env bash
# leaky-bucket 1.1.2 (crates.io): a permit each 10 ms, and the scheduler that is the default and called fair. Six tasks on two
# threads take one after the other for two seconds.
#
# Guess: each has a sixth of about 200.
# Seen: the first task has all, and the others none at all. If each task sleeps for 5 ms after a permit, all have as many.
source "$(dirname "$0")/common.bash"

cargo init --quiet --name seen --vcs none .
cargo add --quiet "leaky-bucket@=1.1.2"
cargo add --quiet "tokio@=1.54.1" --features rt-multi-thread,time
cat > src/main.rs <<'END'
use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
use std::time::Duration;
use leaky_bucket::RateLimiter;
use tokio::{task::JoinSet, time::sleep};

/// The tasks that get a tenth of the permits or more.
async fn served(work: Option<Duration>) -> usize {
    let limiter = Arc::new(RateLimiter::builder().interval(Duration::from_millis(10)).max(1).build());
    let counts: Arc<[AtomicU32; 6]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (limiter, counts) = (limiter.clone(), counts.clone());
        tasks.spawn(async move {
            loop {
                limiter.acquire_one().await;
                counts[task].fetch_add(1, Ordering::Relaxed);
                if let Some(work) = work {
                    sleep(work).await;
                }
            }
        });
    }
    sleep(Duration::from_secs(2)).await;
    tasks.shutdown().await;
    let counts = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    counts.iter().filter(|&&count| count >= counts.iter().sum::<u32>() / 10).count()
}

fn main() {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let work = Duration::from_millis(5);
    println!("{} {}", threads.block_on(served(None)), threads.block_on(served(Some(work))));
}
END
expect "tasks that get permits, without other work and with 5 ms of it" "$(cargo run --quiet)" "1 6"
