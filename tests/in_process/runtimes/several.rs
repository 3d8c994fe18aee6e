//! One `static` limiter with waiters in several runtimes. One of the runtimes ends, or is no longer
//! driven, while its waiter is at the head of the queue. Waiters elsewhere are granted in time.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Clock, Rate, RateLimiter, SmoothBursty};

use crate::support::{Limiter, block_on, finishes};

const INTERVAL: Duration = Duration::from_millis(30);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime")
}

/// Where the other waiter is: it depends on no runtime, or on a healthy one.
#[derive(Clone, Copy, Debug)]
enum Elsewhere {
    OneThread,
    SeveralThreads,
    NoRuntime,
    PlainThread,
}

impl Elsewhere {
    const ALL: [Self; 4] =
        [Self::OneThread, Self::SeveralThreads, Self::NoRuntime, Self::PlainThread];

    /// Takes a permit there, on a thread of its own. Joins the queue before this returns.
    fn acquire(self, limiter: &'static Limiter) -> thread::JoinHandle<()> {
        let waiting = limiter.queue_len();
        let waiter = thread::spawn(move || {
            let granted = match self {
                Self::OneThread => one_thread().block_on(limiter.acquire(1)).is_ok(),
                Self::SeveralThreads => {
                    let runtime = several_threads();
                    let task = runtime.spawn(async { limiter.acquire(1).await.is_ok() });
                    runtime.block_on(task).expect("no panic")
                }
                Self::NoRuntime => block_on(limiter.acquire(1)).is_ok(),
                Self::PlainThread => limiter.blocking_acquire(1).is_ok(),
            };
            assert!(granted);
        });
        // Or it was granted already, if this thread was delayed.
        let start = Instant::now();
        while limiter.queue_len() <= waiting && start.elapsed() < INTERVAL {
            thread::yield_now();
        }
        waiter
    }
}

/// A limiter that lives as long as the program, as a `static` does.
fn forever(clock: Clock) -> &'static Limiter {
    let policy = SmoothBursty::new(Rate::every(INTERVAL));
    let limiter: &'static Limiter = Box::leak(Box::new(RateLimiter::with_clock(policy, clock)));
    limiter.try_acquire(1).expect("a new limiter grants at once");
    limiter
}

/// A runtime with a task that waits at the head of the queue.
fn with_a_waiter(runtime: Runtime, limiter: &'static Limiter) -> Runtime {
    drop(runtime.spawn(async { limiter.acquire(1).await.map(drop) }));
    // Runs the task until it is in the queue.
    runtime.block_on(async {
        // Or it was granted already, if this thread was delayed.
        while limiter.queue_len() == 0 && limiter.stats().granted < 2 {
            tokio::task::yield_now().await;
        }
    });
    runtime
}

enum End {
    Drop,
    Shutdown,
    /// Keeps it for good, without ever running it again.
    Neglect,
}

/// The waiter of `runtime` comes first, one elsewhere behind it; then `end` is done to the runtime.
#[track_caller]
fn check(clock: Clock, runtime: Runtime, elsewhere: Elsewhere, end: End) {
    let (end, ahead): (fn(Runtime), _) = match end {
        End::Drop => (drop, 1),
        End::Shutdown => (Runtime::shutdown_background, 1),
        End::Neglect => (std::mem::forget, 2),
    };
    finishes(move || {
        let start = Instant::now();
        let limiter = forever(clock);
        let runtime = with_a_waiter(runtime, limiter);
        let waiter = elsewhere.acquire(limiter);
        end(runtime);
        waiter.join().expect("no panic");
        // If the first waiter has left, the next is granted in its place, and otherwise after it.
        assert!(start.elapsed() >= INTERVAL * ahead, "{elsewhere:?}: {:?}", start.elapsed());
        limiter.blocking_acquire(1).expect("a grant");
    });
}

#[test]
fn a_runtime_that_shuts_down_delays_no_other_waiter_by_tokios_clock() {
    for elsewhere in Elsewhere::ALL {
        check(Clock::tokio(), one_thread(), elsewhere, End::Drop);
        check(Clock::tokio(), several_threads(), elsewhere, End::Shutdown);
    }
}

#[test]
fn a_runtime_that_is_not_driven_delays_no_other_runtime_by_tokios_clock() {
    for elsewhere in [Elsewhere::OneThread, Elsewhere::SeveralThreads] {
        check(Clock::tokio(), one_thread(), elsewhere, End::Neglect);
    }
}

#[test]
fn a_runtime_that_is_not_driven_delays_no_thread_by_tokios_clock() {
    for elsewhere in [Elsewhere::NoRuntime, Elsewhere::PlainThread] {
        check(Clock::tokio(), one_thread(), elsewhere, End::Neglect);
    }
}

/// The runtime drives the queue at first, and stops while others still wait.
#[test]
fn a_runtime_that_is_not_driven_after_its_turn_delays_no_other_waiter() {
    for clock in [Clock::system(), Clock::tokio()] {
        finishes(|| {
            let start = Instant::now();
            let limiter = forever(clock);
            let runtime = with_a_waiter(one_thread(), limiter);
            let waiters: Vec<_> =
                Elsewhere::ALL.iter().map(|elsewhere| elsewhere.acquire(limiter)).collect();
            runtime.block_on(async {
                while limiter.stats().granted < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            std::mem::forget(runtime);
            for waiter in waiters {
                waiter.join().expect("no panic");
            }
            assert!(start.elapsed() >= INTERVAL * 5);
        });
    }
}

static SHARED: LazyLock<Limiter> = LazyLock::new(|| {
    RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1000.0)), Clock::tokio())
});

/// As test programs do it: each test has a runtime of its own, and all use one limiter.
#[test]
fn runtimes_that_come_and_go_share_a_static_limiter() {
    finishes(|| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..5 {
                        let runtime = one_thread();
                        let tasks: Vec<_> = (0..3)
                            .map(|_| runtime.spawn(async { SHARED.acquire(1).await.is_ok() }))
                            .collect();
                        for task in tasks {
                            assert!(runtime.block_on(task).expect("no panic"));
                        }
                        // And some that are still waiting when it ends.
                        runtime.spawn(SHARED.acquire_owned(1));
                        runtime.block_on(tokio::task::yield_now());
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(SHARED.queue_len(), 0);
    });
}
