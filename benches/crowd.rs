//! How much memory does a task take that waits?
//!
//! `cargo bench --bench crowd`: the heap of tasks that wait in one queue, beside as many plain tokio sleeps. What they
//! cost the processor is measured beside other crates: `cargo run --release -p peers -- crowd`.

use std::time::Duration;

use peak_alloc::PeakAlloc;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tollgate::{Rate, RateLimiter, SmoothBursty};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const LONG: Duration = Duration::from_secs(86_400);

fn main() {
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    for waiters in [100_000, 1_000_000] {
        let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(LONG)));
        drop(limiter.try_acquire(1));
        let ours = heap_bytes(&runtime, waiters, || {
            let limiter = limiter.clone();
            tokio::spawn(async move { drop(limiter.acquire(1).await) })
        });
        let sleeps = heap_bytes(&runtime, waiters, || tokio::spawn(sleep(LONG)));
        println!("tollgate/{waiters} heap_bytes={ours:.0}");
        println!("sleeps/{waiters} heap_bytes={sleeps:.0}");
    }
}

/// The heap of each task, with all that it waits in.
fn heap_bytes(runtime: &Runtime, waiters: u32, spawn: impl Fn() -> JoinHandle<()>) -> f64 {
    let mut tasks = Vec::with_capacity(waiters as usize);
    let before = HEAP.current_usage();
    runtime.block_on(async {
        tasks.extend((0..waiters).map(|_| spawn()));
        // Not until all are spawned, but until all have been polled.
        while runtime.metrics().global_queue_depth() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(100)).await;
    });
    let bytes = HEAP.current_usage().saturating_sub(before) as f64 / f64::from(waiters);
    runtime.block_on(async {
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            task.await.expect_err("aborted");
        }
    });
    bytes
}
