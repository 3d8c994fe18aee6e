//! Calls of several threads at once.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn calls_a_second(
    threads: usize,
    span: Duration,
    call: &(dyn Fn() -> bool + Sync),
) -> f64 {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let calls: u64 = thread::scope(|scope| {
        let count = || {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                (0..100).for_each(|_| _ = black_box(call()));
                calls += 100;
            }
            calls
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
        thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    #[allow(clippy::cast_precision_loss)]
    let calls = calls as f64;
    calls / start.elapsed().as_secs_f64()
}
