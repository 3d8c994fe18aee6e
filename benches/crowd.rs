//! What does a crowd of waiters cost, how late is it, and how much memory does it take?
//!
//! `cargo bench --bench crowd`, a minute; with arguments only the cases named: `limiters`, `leaving`, `memory`.
//! Tasks wait in 10,000 queues, beside as many plain tokio sleeps until the same times, and as many tasks that a bare
//! thread wakes then; `benches/peers` has those that wait in one queue. The sides run in turns, three times; the medians
//! are printed, as `name=value`.
//! Processor time is the process's own, so it is only known on Linux.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};
use tollgate::{Rate, RateLimiter, SmoothBursty};

#[path = "support/crowd.rs"]
mod crowd;
#[path = "support/measure.rs"]
mod measure;
#[path = "support/woken.rs"]
mod woken;

use crowd::Crowd;
use measure::{Run, cpu_time, median};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const ROUNDS: usize = 3;
const LIMITERS: u32 = 10_000;
const WAITERS_EACH: u32 = 10;

type Case = (&'static str, fn(&Runtime));

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let cases: [Case; 3] = [
        ("limiters", many_queues),
        ("memory", |runtime| [100_000, 1_000_000].into_iter().for_each(|n| memory(runtime, n))),
        ("leaving", |_| [10_000, 100_000, 1_000_000].into_iter().for_each(leaving)),
    ];
    let asked: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    for (name, case) in cases {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            case(&runtime);
        }
    }
}

/// Each limiter at a rate of its own, so that their grants do not fall together.
fn many_queues(runtime: &Runtime) {
    let rate = |limiter: u32| 2.0 + f64::from(limiter) / f64::from(LIMITERS);
    let due = move |index: u32| {
        let (limiter, place) = (index / WAITERS_EACH, index % WAITERS_EACH);
        Duration::from_secs_f64(f64::from(place + 1) / rate(limiter))
    };
    let all = LIMITERS * WAITERS_EACH;
    // Each limiter begins with a permit that is taken before its callers come.
    let begun = Cell::new(Instant::now());
    let tollgate = || {
        let limiters: RefCell<Vec<RateLimiter<SmoothBursty>>> = RefCell::default();
        run(runtime, Crowd::new(all), all, due, |index, _| {
            let mut limiters = limiters.borrow_mut();
            if index % WAITERS_EACH == 0 {
                let rate = Rate::per_second(rate(index / WAITERS_EACH));
                limiters.push(RateLimiter::new(SmoothBursty::new(rate).max_burst(Duration::ZERO)));
                begun.set(Instant::now());
                drop(limiters.last().expect("one").try_acquire(1));
            }
            let (limiter, begun) = (limiters.last().expect("one").clone(), begun.get());
            async move {
                drop(limiter.acquire(1).await.expect("granted"));
                begun.elapsed()
            }
        })
    };
    let sleeps = || {
        run(runtime, Crowd::new(all), all, due, |index, _| {
            if index % WAITERS_EACH == 0 {
                begun.set(Instant::now());
            }
            asleep(begun.get(), due(index))
        })
    };
    let woken = || {
        let crowd = Crowd::new(all);
        let woken = RefCell::new(woken::woken(all, due).into_iter());
        run(runtime, crowd, all, due, |_, start| {
            let woken = woken.borrow_mut().next().expect("one for each");
            async move {
                woken.await.expect("sent");
                start.elapsed()
            }
        })
    };
    let name = format!("waiters={all} limiters={LIMITERS}");
    compare(&name, [("tollgate", &tollgate), ("woken", &woken), ("sleeps", &sleeps)]);
}

async fn asleep(start: Instant, due: Duration) -> Duration {
    sleep_until((start + due).into()).await;
    start.elapsed()
}

fn run<F: Future<Output = Duration> + Send + 'static>(
    runtime: &Runtime,
    crowd: Crowd,
    waiters: u32,
    due: impl Fn(u32) -> Duration,
    future: impl Fn(u32, Instant) -> F,
) -> Run {
    const LIMIT: Duration = Duration::from_secs(60);
    let ended = runtime.block_on(crowd.run(LIMIT, cpu_time, future));
    assert_eq!(ended.ends.len(), waiters as usize, "not all ended");
    Run::new(ended.cpu, ended.ends, (0..waiters).map(due).collect())
}

/// Also prints the processor time of each as a ratio to that of the last.
fn compare(name: &str, sides: [(&str, &dyn Fn() -> Run); 3]) {
    let mut runs: [Vec<Run>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (runs, (_, side)) in runs.iter_mut().zip(&sides) {
            runs.push(side());
        }
    }
    for (of_side, (side, _)) in runs.iter().zip(&sides) {
        let cpu = |run: &Run| run.cpu.as_secs_f64();
        let ratios = of_side.iter().zip(&runs[2]).map(|(run, last)| cpu(run) / cpu(last));
        let (medians, ratio) = (measure::medians(of_side), median(ratios.collect()));
        println!("crowd {name} side={side} {medians} cpu_ratio={ratio:.2}");
    }
}

/// The heap of tasks that wait, with all that they wait in.
fn memory(runtime: &Runtime, waiters: u32) {
    const LONG: Duration = Duration::from_secs(86_400);
    let bytes = |spawn: &dyn Fn(Instant) -> JoinHandle<Duration>| {
        let mut tasks = Vec::with_capacity(waiters as usize);
        let before = HEAP.current_usage();
        let start = Instant::now();
        runtime.block_on(async {
            tasks.extend((0..waiters).map(|_| spawn(start)));
            // Not until all are spawned, but until all have been polled.
            while runtime.metrics().global_queue_depth() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
            sleep(Duration::from_millis(100)).await;
        });
        let bytes = HEAP.current_usage().saturating_sub(before) as f64 / f64::from(waiters);
        runtime.block_on(async {
            tasks.iter().for_each(JoinHandle::abort);
            for task in tasks.drain(..) {
                task.await.expect_err("aborted");
            }
        });
        bytes
    };
    let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(LONG)));
    drop(limiter.try_acquire(1));
    let ours = bytes(&|start| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            limiter.acquire(1).await.expect("granted");
            start.elapsed()
        })
    });
    let sleeps = bytes(&|start| {
        tokio::spawn(async move {
            sleep(LONG).await;
            start.elapsed()
        })
    });
    println!("crowd memory waiters={waiters} side=tollgate heap_bytes={ours:.0}");
    println!("crowd memory waiters={waiters} side=sleeps heap_bytes={sleeps:.0}");
}

/// A list of numbered entries behind a lock, each as large as a waiter's, and those in front of and behind each.
struct Entries(Mutex<Vec<([u64; 4], [u32; 2])>>);

impl Entries {
    /// They are in the order of their numbers, and the first joins the last.
    fn new(len: u32) -> Self {
        let entry = |at: u32| ([0; 4], [at.checked_sub(1).unwrap_or(len - 1), (at + 1) % len]);
        Self(Mutex::new((0..len).map(entry).collect()))
    }

    fn unlink(&self, at: u32) {
        let mut entries = self.0.lock().expect("no panic");
        let [previous, next] = entries[at as usize].1;
        entries[previous as usize].1[1] = next;
        entries[next as usize].1[0] = previous;
    }
}

/// A future that leaves such a list when it is dropped: the least that leaving a queue of numbered entries takes.
struct Entry<'a> {
    entries: &'a Entries,
    at: u32,
    _as_large_as_a_waiters: [u64; 12],
}

impl Future for Entry<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.entries.unlink(self.at);
    }
}

/// All waiters leave at once: by a drop, from the front on and in no order.
fn leaving(waiters: u32) {
    let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(Duration::from_secs(86_400))));
    drop(limiter.try_acquire(1));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    for (order, name) in [(1, "front"), (7_919, "mixed")] {
        let ours = || time_to_leave(waiters, order, |_| limiter.acquire(1));
        let entries = || {
            let entries = Entries::new(waiters);
            let entry = |at| Entry { entries: &entries, at, _as_large_as_a_waiters: [0; 12] };
            time_to_leave(waiters, order, entry)
        };
        let asleep = || time_to_leave(waiters, order, |_| sleep(Duration::from_secs(86_400)));
        let times: Vec<_> = (0..ROUNDS).map(|_| [ours(), entries(), asleep()]).collect();
        for (side, name_of) in ["tollgate", "entries", "sleeps"].into_iter().enumerate() {
            let nanos = median(times.iter().map(|times| times[side]).collect());
            println!("crowd leaving={waiters} order={name} side={name_of} nanos_each={nanos:.0}");
        }
    }
}

fn time_to_leave<F: Future>(waiters: u32, step: usize, wait: impl Fn(u32) -> F) -> f64 {
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<Option<Pin<Box<F>>>> = (0..waiters).map(|_| None).collect();
    for (place, at) in waiting.iter_mut().zip(0..) {
        let mut future = Box::pin(wait(at));
        assert!(black_box(future.as_mut().poll(&mut context)).is_pending());
        *place = Some(future);
    }
    let start = Instant::now();
    let mut place = 0;
    for _ in 0..waiters {
        drop(waiting[place].take().expect("each leaves once"));
        place = (place + step) % waiting.len();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(waiters)
}
