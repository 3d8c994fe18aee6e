//! A task for each of many waits, and what all of them cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// What the tasks cost and when they ended, each by what its future says. Fewer ends than tasks, if they took
/// longer than `limit`.
pub(crate) struct Ended {
    pub(crate) cpu: Duration,
    pub(crate) ends: Vec<Duration>,
}

/// The tasks to be. Made before what they wait for, so that its time does not begin before theirs.
pub(crate) struct Crowd(Arc<Tally>);

struct Tally {
    /// Of each task in nanoseconds, and zero until then.
    ends: Box<[AtomicU64]>,
    ended: AtomicUsize,
    all: Notify,
}

impl Crowd {
    pub(crate) fn new(tasks: u32) -> Self {
        let ends = (0..tasks).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Tally { ends, ended: AtomicUsize::new(0), all: Notify::new() }))
    }

    /// Spawns a task for each future. No task is joined: a joiner is woken for some of them, and what that costs
    /// is no part of what waiting costs. Their memory is given back at the end, when all handles are dropped.
    pub(crate) async fn run<F>(
        self,
        limit: Duration,
        cpu_time: fn() -> Duration,
        future: impl Fn(u32, Instant) -> F,
    ) -> Ended
    where
        F: Future<Output = Duration> + Send + 'static,
    {
        let mut handles = Vec::with_capacity(self.0.ends.len());
        let cpu = cpu_time();
        let start = Instant::now();
        for task in 0..u32::try_from(self.0.ends.len()).expect("made of a u32") {
            let (tally, future) = (Arc::clone(&self.0), future(task, start));
            handles.push(tokio::spawn(async move {
                let end = u64::try_from(future.await.as_nanos()).expect("centuries");
                tally.ends[task as usize].store(end.max(1), Ordering::Relaxed);
                if tally.ended.fetch_add(1, Ordering::AcqRel) + 1 == tally.ends.len() {
                    tally.all.notify_one();
                }
            }));
        }
        let _ = timeout(limit, self.0.all.notified()).await;
        let cpu = cpu_time().saturating_sub(cpu);
        let ends = self.0.ends.iter().map(|end| end.load(Ordering::Relaxed));
        Ended { cpu, ends: ends.filter(|&end| end > 0).map(Duration::from_nanos).collect() }
    }
}
